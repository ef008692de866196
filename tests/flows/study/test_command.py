"""The command that starts a study anew, read back by the command line itself."""

from dataclasses import replace
from typing import Any

import pytest

from prefect_tune.deployments.command import main
from prefect_tune.deployments.commands.run import run
from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.command import DEFAULT_SPACES, continue_command, run_command
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.flows.study.plan import StopRule, StudyPlan
from prefect_tune.tasks.catalogue import spaces
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.quantity import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem

PLAIN = StudyPlan(
    source=Source("my table.csv", target="target"),
    data_name="table",
    problem=Problem("data", "split", "modern", "digest", "error", seed=0),
    folds=3,
    holdout=None,
    test_size=0.2,
    positive=None,
    chance_loss=50.0,
    method="flash",
    stop_rule=StopRule(seconds=600.0),
    race=True,
)
FULL = replace(
    PLAIN,
    source=Source(
        "table.csv", target="it's", format="table", test="later.csv", group="patient",
        drop=("a b", "c"), categorical=("d",), drop_missing_target=True,
    ),
    problem=Problem("data", "split", "small", "digest", "neg_log_loss", seed=7),
    folds=None,
    holdout=0.25,
    test_size=None,
    positive="yes",
    method="tpe",
    options={"n_startup": 5, "variant": "paper"},
    stop_rule=StopRule(trials=9, seconds=90.5),
    trial_seconds=20.0,
    trial_memory_bytes=2_000_000_000,
    bounds=(
        QuantityBound(Quantity("disparate_impact", "age", (20.0, 40.5, 60.0), "auroc"), 0.1),
        QuantityBound(Quantity("latency_us"), 50.0),
    ),
    ensemble=EnsembleRule("greedy", 8),
    use_cache=False,
    epochs=27,
    race=False,
    start_from="known.json",
)  # fmt: skip


def parsed(words: list[str]) -> TuneSettings:
    assert words[:2] == ["prefect-tune", "run"]
    given = dict(run.make_context("run", words[2:], main.make_context("", ["run"])).params)
    parameters: dict[str, Any] = {name: given[name] for name in OPTIONS}
    parameters["option"] = dict(text.split("=") for text in parameters["option"])
    for name in ("drop", "categorical", "constraint"):
        parameters[name] = list(parameters[name]) or None
    return TuneSettings.parse(parameters)


def test_of_a_study_with_defaults_only_what_it_learns_from_is_said() -> None:
    words = ["prefect-tune", "run", "my table.csv", "--target", "target", "--study", "s"]
    assert run_command(PLAIN, "s") == words


def test_every_option_comes_back() -> None:
    found = parsed(run_command(FULL, "s"))
    for field in ("test_size", "folds", "holdout", "positive", "bounds", "ensemble", "stop_rule",
                  "trial_seconds", "trial_memory_bytes", "use_cache", "epochs", "race", "method",
                  "start_from", "metric", "space", "seed"):  # fmt: skip
        assert getattr(found, field) == getattr(FULL, field), field
    assert found.study == "s"
    assert found.options == {"n_startup": "5", "variant": "paper"}
    assert replace(found.source, aside=()) == FULL.source


def test_what_was_predicted_is_said_where_it_was_given() -> None:
    numbers = replace(
        PLAIN,
        source=replace(PLAIN.source, predicts="numbers"),
        problem=replace(PLAIN.problem, space="modern_regression", metric="r2"),
    )
    assert run_command(numbers, "s")[5:7] == ["--metric", "r2"]


def test_the_race_is_said_where_the_method_would_decide_otherwise() -> None:
    assert "--no-race" in run_command(replace(PLAIN, race=False), "s")
    assert "--race" in run_command(replace(PLAIN, method="random", race=True), "s")


def test_the_default_spaces_are_those_of_the_catalogue() -> None:
    assert set(spaces.DEFAULT_SPACES.values()) == DEFAULT_SPACES


@pytest.mark.parametrize("plan", [PLAIN, FULL], ids=["plain", "full"])
def test_the_words_are_texts(plan: StudyPlan) -> None:
    assert all(isinstance(word, str) for word in run_command(plan, "s"))


def test_going_on_names_the_data_and_totals_and_nothing_that_could_not_change() -> None:
    words = ["prefect-tune", "run", "my table.csv", "--target", "target", "--study", "s"]
    assert continue_command(PLAIN, "s") == words
    found = parsed(continue_command(FULL, "s"))
    assert (found.source.drop, found.stop_rule) == (FULL.source.drop, FULL.stop_rule)
    assert found.use_cache is False
    for field in ("space", "method", "metric", "seed", "folds", "holdout", "epochs", "race"):
        assert getattr(found, field) is None, field
