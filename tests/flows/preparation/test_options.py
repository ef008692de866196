"""Options are stated once: the flow's parameters and the command's options are the same."""

import inspect
from typing import Any, get_args

import click
import pytest
from prefect.exceptions import SignatureMismatchError
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from prefect_tune.deployments.command import main
from prefect_tune.flows.comparing import compare
from prefect_tune.flows.preparation.options import COMPARE_OPTIONS, OPTIONS
from prefect_tune.flows.study.ensemble_rule import ENSEMBLE_KINDS
from prefect_tune.flows.study.plan import TaskRuns
from prefect_tune.flows.tuning import tune
from prefect_tune.optimizers import METHODS
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.registry import FORMATS
from prefect_tune.tasks.objective.metric import metric_named

KINDS = {"text": "str", "whole": "int", "number": "float", "texts": "list", "switch": "bool"}
OUTPUT = {"as_json", "json_lines", "quiet", "keep_server", "report"}


@pytest.mark.parametrize(("flow", "options"), [(tune, OPTIONS), (compare, COMPARE_OPTIONS)])
def test_the_flow_takes_exactly_the_options(flow, options) -> None:
    parameters = inspect.signature(flow.fn).parameters
    assert list(parameters) == list(options)
    for name, parameter in parameters.items():
        option = options[name]
        if option.kind in KINDS:
            assert KINDS[option.kind] in str(parameter.annotation), name
        assert parameter.default in (None, False, "cohort:demo")


@pytest.mark.parametrize(("command", "options"), [("run", OPTIONS), ("compare", COMPARE_OPTIONS)])
def test_the_command_takes_exactly_the_options(command, options) -> None:
    assert isinstance(main.commands[command], click.Command)
    taken = {p.name for p in main.commands[command].params}
    assert taken - OUTPUT == set(options)


@pytest.mark.parametrize(("flow", "options"), [(tune, OPTIONS), (compare, COMPARE_OPTIONS)])
def test_the_form_of_a_deployment_describes_every_parameter(flow, options) -> None:
    properties = flow.parameters.model_dump()["properties"]
    for name, option in options.items():
        assert option.help in str(properties[name]), name


def property_of(name: str, flow=tune) -> dict[str, Any]:
    """What Prefect shows of a parameter and checks, in a deployment that is made now."""
    found: dict[str, Any] = parameter_schema(flow).properties[name]
    return found


HAVE_VALUES = ("data", "drop_missing_target", "no_cache")
"""Parameters whose default is a value."""


def accepts(name: str, value: Any) -> bool:
    try:
        validate({name: value}, parameter_schema(tune).model_dump_for_openapi(), True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("format", FORMATS),
        ("space", SPACES),
        ("method", METHODS),
        ("ensemble", ENSEMBLE_KINDS),
        ("task_runs", get_args(TaskRuns)),
    ],
)
def test_the_form_has_the_choices_that_there_are(name, known) -> None:
    chosen = property_of(name)["anyOf"][0]
    assert chosen == {"title": "choose", "type": "string", "enum": list(known)}


def test_the_form_has_sections_in_order_and_says_what_is_left_to_its_default() -> None:
    titles = [shown["title"] for shown in parameter_schema(tune).properties.values()]
    assert titles == [f"{option.group}: {option.name}" for option in OPTIONS.values()]
    sections = [title.partition(":")[0] for title in titles]
    assert list(dict.fromkeys(sections)) == ["Data", "Search", "Budget", "Where"]
    assert sections == sorted(sections, key=["Data", "Search", "Budget", "Where"].index)
    assert property_of("budget")["anyOf"][-1] == {"title": "default", "type": "null"}
    assert property_of("data")["default"] == "cohort:demo"
    assert property_of("task_runs")["default"] == "auto"
    assert property_of("method")["default"] is None  # a study that goes on has its own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trials", 0), ("trials", "many"), ("budget", "30"), ("budget", "soon"), ("seed", -1),
        ("test_size", 0.9), ("folds", 1), ("workers", 0), ("task_runs", "x"),
        ("trial_memory", "4 apples"), ("study", "a b"), ("ensemble", 0), ("ensemble", "best"),
        ("race", "yes"), ("drop", "column"), ("format", "xls"), ("epochs", 2),
    ],
)  # fmt: skip
def test_nonsense_is_refused_before_there_is_a_run(name, value) -> None:
    assert not accepts(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in OPTIONS if name not in HAVE_VALUES),
        ("budget", "1h30m"), ("budget", "90 s"), ("trial_memory", "4GB"), ("cache_budget", "1.5tb"),
        ("method", "my_own"), ("metric", "recall"), ("space", "my.py:space"), ("ensemble", 8),
        ("ensemble", "auto"), ("start", "responders"), ("option", {"r": 5}), ("race", False),
        ("constraint", ["latency_us<=50"]), ("study", "a.b-c_1"), ("test_size", 0), ("folds", 10),
    ],
)  # fmt: skip
def test_what_the_command_takes_is_taken(name, value) -> None:
    assert accepts(name, value)


@pytest.mark.parametrize("flow", [tune, compare])
def test_an_option_that_is_gone_is_ignored_in_a_deployment_and_an_error_in_a_call(flow) -> None:
    assert flow.validate_parameters({"trials": 3, "eviction": "gdsf"})["trials"] == 3
    with pytest.raises(TypeError, match="eviction"):
        flow(trials=3, eviction="gdsf")
    with pytest.raises(SignatureMismatchError, match="evict"):
        flow.validate_parameters({"evict": "gdsf"})


def test_the_metrics_to_choose_from_are_metrics() -> None:
    assert all(metric_named(name).name == name for name in OPTIONS["metric"].known)
