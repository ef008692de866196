"""Options are declared once, and read by command line, forms and printed commands."""

import inspect
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
from flow_studies import changed, plan
from hypothesis import given
from hypothesis import strategies as st
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import validate

from prefect_tune import PipelineSearch
from prefect_tune.deployments.cli.command import main
from prefect_tune.deployments.cli.run import run
from prefect_tune.flows.compare import compare
from prefect_tune.flows.comparison.comparison import Comparison, prepare_comparison
from prefect_tune.flows.options.declared import COMPARE_OPTIONS, OPTIONS, StudyOptions
from prefect_tune.flows.options.values import ENSEMBLE_KINDS, EnsembleRule, parse_assignment
from prefect_tune.flows.reading.commands import continue_command, run_command
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.tune import tune
from prefect_tune.flows.wording.text import format_bytes, parse_bytes, parse_seconds
from prefect_tune.optimizers import METHODS
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.bad_input import BadInput, command_line, errors_for_caller, for_caller
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem

KINDS = {"text": "str", "whole": "int", "number": "float", "texts": "list", "switch": "bool"}
OUTPUT = {"as_json", "explain_labels", "help_all", "json_lines", "quiet", "keep_server", "report"}
BOTH = pytest.mark.parametrize(("flow", "options"), [(tune, OPTIONS), (compare, COMPARE_OPTIONS)])


@BOTH
def test_flow_command_and_form_have_exactly_the_declared_options(flow, options) -> None:
    parameters = inspect.signature(flow.fn).parameters
    assert sorted(parameters) == sorted(options)
    properties = flow.parameters.model_dump()["properties"]
    for name, option in options.items():
        if option.kind in KINDS:
            assert KINDS[option.kind] in str(parameters[name].annotation), name
        assert parameters[name].default in (None, False, "cohort:demo")
        assert option.help in str(properties[name]), name
    command = main.commands["run" if flow is tune else "compare"]
    assert isinstance(command, click.Command)
    assert {p.name for p in command.params} - OUTPUT == set(options)


def test_form_has_ordered_sections_choices_and_defaults() -> None:
    properties = parameter_schema(tune).properties
    known = {"format": FORMATS, "space": SPACES, "method": METHODS, "ensemble": ENSEMBLE_KINDS}
    for name, choices in known.items():
        assert properties[name]["anyOf"][0]["enum"] == list(choices)
    titles = [shown["title"] for shown in properties.values()]
    assert titles == [f"{option.group}: {option.name}" for option in OPTIONS.values()]
    sections = [title.partition(":")[0] for title in titles]
    order = ["Data", "Search", "Budget", "Series", "Where"]
    assert list(dict.fromkeys(sections)) == order
    assert sections == sorted(sections, key=order.index)
    assert properties["budget"]["anyOf"][-1] == {"title": "default", "type": "null"}
    assert properties["data"]["default"] == "cohort:demo"
    assert properties["method"]["default"] is None  # a study that goes on has its own


@cache
def schema_of(flow: Any) -> dict[str, Any]:
    found: dict[str, Any] = parameter_schema(flow).model_dump_for_openapi()
    return found


def accepts(name: str, value: Any) -> bool:
    return not validate({name: value}, schema_of(tune if name in OPTIONS else compare))


def prepared_to_compare(data: str, **options: object) -> Comparison:
    return prepare_comparison({**dict.fromkeys(COMPARE_OPTIONS), "data": data, **options})


TEXTS = (
    "gap", "budget", "trial_timeout", "trial_memory", "cache_budget", "series", "study", "name",
)  # fmt: skip
"""Texts of which not all can be read."""


def beside_bounds(*, inside: bool) -> list[Any]:
    """Return each numeric option with values next to its bounds, inside or outside."""
    found = []
    for name, option in {**COMPARE_OPTIONS, **OPTIONS}.items():
        step = 0.01 if name in ("test_size", "holdout") else 1
        for keyword, bound in option.schema_bounds.items():
            if keyword == "pattern":
                continue
            outwards = step if keyword == "maximum" else -step
            is_taken = keyword != "exclusiveMinimum"
            values = (bound, bound + outwards) if is_taken else (bound - outwards, bound)
            found.append((name, values[0] if inside else values[1]))
    return found


TAKEN = (
    *beside_bounds(inside=True),
    *((name, None) for name, one in OPTIONS.items() if one.default in (None, ())),
    ("budget", "1h30m"), ("budget", "90 s"), ("trial_memory", "4GB"), ("cache_budget", "1.5tb"),
    ("method", "my_own"), ("metric", "recall"), ("space", "my.py:space"), ("ensemble", 8),
    ("start", "responders"), ("option", {"r": 5}), ("race", False), ("study", "a.b-c_1"),
    ("constraint", ["latency_us<=50"]),
)  # fmt: skip


def test_forms_and_calls_accept_the_same_values_as_the_command() -> None:
    assert [given for given in TAKEN if not accepts(*given)] == []
    for name, value in TAKEN:
        if name in OPTIONS:
            options_from(**{**({} if name == "study" else {"series": "s"}), name: value})


@pytest.mark.slow
def test_values_out_of_bounds_are_refused_in_forms_and_calls(prepared) -> None:
    for name, value in (*beside_bounds(inside=False), *((name, "4 apples") for name in TEXTS)):
        assert not accepts(name, value)
        with pytest.raises(BadInput) as refused:
            (prepared if name in OPTIONS else prepared_to_compare)("train.csv", **{name: value})
        assert refused.value.option == name.replace("_", "-")
        assert refused.value.value in (value, repr(value))


def test_paths_become_strings_and_signatures_are_removed_from_urls() -> None:
    url = "https://host/t.csv?X-Amz-Signature=geheim&v=1"
    given = {"data": url, "test": Path("a") / "test.csv", "store": Path("b")}
    for flow, more in ((tune, {"trials": "7"}), (compare, {"out": Path("c.csv")})):
        found = flow.validate_parameters({**given, **more})
        assert found["data"] == "https://host/t.csv?X-Amz-Signature=***&v=1"
        assert (found["test"], found["store"]) == (str(Path("a") / "test.csv"), "b")
        assert found["trials"] == (7 if flow is tune else None)
    options = StudyOptions.parse({"data": url})
    assert "geheim" not in str(options)
    assert StudyOptions.parse({"data": options.data}) == options


VALUES = {
    "n=3": 3, "n=0.5": 0.5, "n=true": True, "n=null": None, "n=paper": "paper", "n=": "",
    "n=a=b": "a=b", 'n={"a": [1]}': {"a": [1]},
}  # fmt: skip


def test_assigned_value_is_parsed_as_json_if_possible() -> None:
    assert [parse_assignment(text) for text in VALUES] == [("n", v) for v in VALUES.values()]
    for text in ("", "n", "=3", "1n=3", "n m=3"):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            parse_assignment(text)


@pytest.mark.parametrize(
    ("parse", "right", "wrong"),
    [
        (
            parse_seconds,
            {"90s": 90, "30m": 1800, "1h30m": 5400, "2d": 172_800, "1.5h": 5400, "1h 5s": 3605},
            ["", "30", "m", "30 minutes", "-5m", "0s", "1h30", "5x"],
        ),
        (
            parse_bytes,
            {"10GB": 10**10, "500MB": 5 * 10**8, "1.5kb": 1500, "12B": 12},
            ["", "10", "GB", "10 gigabytes", "-1GB"],
        ),
    ],
)
def test_durations_and_sizes_require_units(parse, right, wrong) -> None:
    assert {text: parse(text, "budget") for text in right} == right
    for text in wrong:
        with pytest.raises(BadInput, check=lambda e: e.option == "budget"):
            parse(text, "budget")


@given(st.integers(0, 10**15))
def test_displayed_sizes_are_close_to_the_real_sizes(size) -> None:
    assert parse_bytes(format_bytes(size), "x") == pytest.approx(size, rel=0.06, abs=1)


def options_from(**given: object) -> StudyOptions:
    return StudyOptions.parse({**dict.fromkeys(OPTIONS), "data": "table.csv", **given})


def test_ensemble_option_is_a_number_of_picks_or_a_kind() -> None:
    numbers = {8: EnsembleRule("greedy", 8), "8": EnsembleRule("greedy", 8), None: None}
    rules = numbers | {kind: EnsembleRule(kind) for kind in ENSEMBLE_KINDS}
    for said, expected in (*rules.items(), (1, EnsembleRule("single"))):
        assert options_from(ensemble=said).ensemble == expected
    for wrong in (0, -3, "0", "Auto", "2.5", ""):
        with pytest.raises(BadInput, check=lambda e: e.option == "ensemble") as refused:
            options_from(ensemble=wrong)
        assert all(str(kind) in refused.value.remedy for kind in (1, *ENSEMBLE_KINDS))


PLAIN = plan(
    data="my table.csv", target="target", method="flash", budget=600.0, race=True,
    problem=Problem("data", "split", "modern", "digest", "error", seed=0),
)  # fmt: skip
FULL = changed(
    PLAIN,
    data="table.csv", target="it's", format="table", test="later.csv", group="patient",
    drop=("a b", "c"), categorical=("d",), drop_missing_target=True,
    na_values=("", "-999"), decimal="comma", splits="ignore",
    problem=Problem("data", "split", "small", "digest", "neg_log_loss", seed=7),
    folds=None, holdout=0.25, test_size=None, positive="yes",
    method="tpe", option={"n_startup": 5, "variant": "paper"}, trials=9,
    budget=90.5, trial_timeout=20.0, trial_memory=2_000_000_000,
    constraint=(
        QuantityBound(Quantity("group_gap", "age", (20.0, 40.5, 60.0), "auroc"), 0.1),
        QuantityBound(Quantity("latency_us"), 50.0),
    ),
    ensemble=EnsembleRule("greedy", 8), no_cache=True, epochs=27, race=False, start="known.json",
    time="visited", gap=86_400.0, series="nightly", promotion="always", key=("a b", "c"),
    margin=0.5,
)  # fmt: skip


def parsed(words: list[str]) -> StudyOptions:
    assert words[:2] == ["prefect-tune", "run"]
    given = dict(run.make_context("run", words[2:], main.make_context("", ["run"])).params)
    parameters: dict[str, Any] = {name: given[name] for name in OPTIONS}
    parameters["option"] = dict(map(parse_assignment, parameters["option"]))
    return StudyOptions.parse(parameters)


def test_printed_command_of_a_study_omits_default_options() -> None:
    words = ["prefect-tune", "run", "my table.csv", "--target", "target", "--study", "s"]
    assert run_command(PLAIN, "s") == continue_command(PLAIN, "s") == words


def test_every_option_survives_a_round_trip_through_a_printed_command() -> None:
    found = parsed(run_command(FULL, "s"))
    for name in (name for name, one in OPTIONS.items() if one.is_stored):
        given = getattr(FULL.options, name)
        if name not in {"labels", "folds", "test_size"}:  # which exclude others
            assert given != getattr(PLAIN.options, name), name
        assert getattr(found, name) == (None if name == "series" else given), name
    assert found.study == "s"


def test_plan_round_trips_through_the_ledger() -> None:
    for one in (PLAIN, FULL):
        settings, problem = (json.loads(json.dumps(d.to_json())) for d in (one, one.problem))
        stored = StoredStudy("s", 0.0, "new", problem, settings, {}, 0.0)
        options = replace(one.options, study="s")
        assert StudyPlan.from_stored(stored) == replace(one, options=options)


def test_resume_command_names_data_and_totals_and_no_fixed_option() -> None:
    found = parsed(continue_command(FULL, "s"))
    assert (found.drop, found.stop_rule) == (FULL.options.drop, FULL.options.stop_rule)
    assert found.use_cache is False
    for field in ("space", "method", "metric", "seed", "folds", "holdout", "epochs", "race"):
        assert getattr(found, field) is None, field


def test_empty_text_option_is_kept_and_an_empty_location_means_the_default() -> None:
    for name in ("data", "target", "metric", "start", "space"):
        assert getattr(options_from(**{name: ""}), name) == ""
    for name in ("study", "store", "dask", "database", "task_runs"):
        assert getattr(options_from(**{name: ""}), name) == OPTIONS[name].default


def test_error_texts_name_parameters_instead_of_options_except_in_commands() -> None:
    for written, python in {
        "fewer --folds or another --test-size": "fewer folds or another test_size",
        "name it, for instance --epochs 50, or": "name it, for instance epochs=50, or",
        "drop it with --drop 'heart rate'": "drop it with drop='heart rate'",
        "(override with --positive)": "(override with positive)",
        "was started with --race, not --no-race": "was started with race, not race=False",
        "see `prefect-tune show S --trial 4`": "see `prefect-tune show S --trial 4`",
    }.items():
        assert for_caller(written) == python
        with command_line():
            assert for_caller(written) == written
    with pytest.raises(BadInput) as raised, errors_for_caller():
        raise BadInput("too much", option="constraint", value="a (b) <= 1", remedy="take --folds 2")
    assert str(raised.value) == "constraint='a (b) <= 1': too much; take folds=2"


@pytest.mark.slow
def test_errors_of_python_calls_name_parameters(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    X = pd.DataFrame({"a": np.arange(60.0)})
    search = PipelineSearch(trials=1, verbose=0, positive="maybe")
    target = X["a"] > 30  # named like a column
    with pytest.raises(BadInput, match="positive='maybe'"):
        search.fit(X, target)
    with pytest.raises(BadInput, match="positive='maybe'"):
        tune(X, target=target, trials=1, positive="maybe")
