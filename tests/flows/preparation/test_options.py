"""Options are stated once: the flow's parameters and the command's options are the same."""

import inspect

import click
import pytest

from prefect_tune.deployments.command import main
from prefect_tune.flows.comparing import compare
from prefect_tune.flows.preparation.options import COMPARE_OPTIONS, OPTIONS
from prefect_tune.flows.tuning import tune

KINDS = {"text": "str", "whole": "int", "number": "float", "texts": "list", "switch": "bool"}
OUTPUT = {"as_json", "json_lines", "quiet", "keep_server"}


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
