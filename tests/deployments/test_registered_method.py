"""A method that is registered from here, as a user's code would, works wherever methods do."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command_line import CommandLine
from inputs import write_table
from prefect.utilities.callables import parameter_schema

from prefect_tune.flows.tuning import tune
from prefect_tune.optimizers import METHODS, Method, Optimizer, Query, SpaceExhausted, register
from prefect_tune.optimizers.registry import _METHODS
from prefect_tune.optimizers.space.configuration import default_configuration


@dataclass(frozen=True)
class WalkOptions:
    """Options of `--method walk`.

    Attributes:
        first: The path to begin with.
    """

    first: int = 0


WALK = Method(
    name="walk",
    purpose="each path with its default values, in order",
    implementation=f"{__name__}:Walk",
    options=WalkOptions,
    honours_constraints=True,
    render_decisions=lambda decisions: [f"walked to path {decisions['reached']}"],
)


class Walk(Optimizer):
    method: ClassVar[Method] = WALK

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        paths = list(self.space.paths())[self.options.first + len(self.history) :]
        if not paths:
            raise SpaceExhausted
        return Query(default_configuration(self.space, paths[0]))

    @property
    def decisions(self) -> dict[str, Any]:
        return {"reached": self.options.first + len(self.history) - 1}


pytestmark = pytest.mark.usefixtures("server", "walk")


@pytest.fixture(scope="module")
def walk() -> Iterator[None]:
    register(WALK)
    yield
    del _METHODS["walk"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("walk") / "home")


@pytest.fixture(scope="module")
def data(run) -> Path:
    return write_table(run.home.parent)


@pytest.fixture(scope="module")
def ran(server, walk, run, data) -> Any:  # noqa: ARG001 - the flow goes to the server
    return run(
        *("run", data, "--target", "target", "--space", "small", "--study", "w", "--trials", 3),
        *("--method", "walk", "--option", "first=1", "--constraint", "latency_us<=1000000"),
    )


def test_run_makes_it_with_its_options(run, ran) -> None:
    assert ran.exit_code == 0, ran.stderr
    assert "walked to path 3" in ran.stdout
    assert "searches within them" not in ran.stderr
    assert run.json("show", "w")["decisions"] == {"reached": 3}


def test_show_renders_its_decisions(run, ran) -> None:  # noqa: ARG001 - the study is shown
    assert "(walk, complete)" in run("show", "w").stdout
    assert "walked to path 3" in run("show", "w").stdout


def test_methods_lists_and_explains_it(run) -> None:
    assert run("methods").stdout.count("each path with its default values, in order") == 1
    said = run("methods", "walk").stdout
    assert "searches inside of constraints" in said
    assert "--option first=0" in said
    assert "The path to begin with." in said
    assert run.json("methods", "walk")["honours_constraints"] is True


def test_the_help_names_it(run) -> None:
    assert "random or walk;" in " ".join(run("run", "--help").stdout.split())
    assert "flash,admm,fabolas,smac,tpe,random,walk]" in "".join(
        run("compare", "--help").stdout.split()
    )


def test_a_deployment_that_is_made_now_lets_people_choose_it() -> None:
    assert "walk" in parameter_schema(tune).properties["method"]["anyOf"][0]["enum"]


def test_other_methods_name_it_where_there_are_constraints(run, data) -> None:
    done = run(
        *("run", data, "--target", "target", "--space", "small", "--trials", 1),
        *("--method", "random", "--constraint", "latency_us<=1000000"),
    )
    assert " or walk searches within them" in done.stderr


def test_compare_takes_it(run, data, tmp_path) -> None:
    done = run(
        *("compare", data, "--target", "target", "--space", "small", "--methods", "walk,random"),
        *("--trials", 2, "--repeats", 1, "--workers", 1, "--out", tmp_path / "c.parquet", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert {row["method"] for row in json.loads(done.stdout)["methods"]} == {"walk", "random"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "Walk on"}, "lower-case letters"),
        ({"purpose": "two\nlines"}, "in one line"),
        ({"implementation": "walk"}, "module:Class"),
        ({"options": dict}, "are a dataclass"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(wrong, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        replace(METHODS["walk"], **wrong)
