"""Studies of a comparison, and changes allowed on resume."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inputs import table

from prefect_tune.flows.comparison.comparison import Comparison, parse_methods, prepare_comparison
from prefect_tune.flows.options.declared import COMPARE_OPTIONS
from prefect_tune.flows.study.lease import locked_study
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.slow

Compare = Callable[..., Comparison]
TWO = {"methods": "random,tpe", "repeats": 1, "trials": 3, "name": "c"}


@pytest.fixture
def compared(tmp_path, monkeypatch) -> Compare:
    """Prepare a comparison on the test table with these options."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    table().to_csv("table.csv", index=False)
    given = {"data": "table.csv", "target": "target", "space": "small", "no_cache": False}

    def prepare(**options: object) -> Comparison:
        return prepare_comparison({**dict.fromkeys(COMPARE_OPTIONS), **given, **options})

    return prepare


def names(comparison: Comparison) -> list[str]:
    return [replicate.prepared.name for replicate in comparison.replicates]


def datasets(*comparisons: Comparison) -> set[str]:
    return {r.prepared.plan.problem.dataset for of in comparisons for r in of.replicates}


def races(comparison: Comparison) -> dict[str, bool | None]:
    return {r.prepared.name: r.prepared.plan.options.race for r in comparison.replicates}


def test_each_repeat_has_a_seed_and_a_study_of_each_method(compared) -> None:
    comparison = compared(**TWO | {"repeats": 2})
    assert names(comparison) == ["c-0-random", "c-0-tpe", "c-1-random", "c-1-tpe"]
    plans = [replicate.prepared.plan for replicate in comparison.replicates]
    assert [plan.seed for plan in plans] == [0, 0, 1, 1]
    splits = [plan.problem.split for plan in plans]
    assert splits[0] == splits[1] != splits[2] == splits[3]
    assert len(datasets(comparison)) == 1
    by_default = [method.name for method in METHODS.values() if method.compared_by_default]
    entrants = compared(repeats=1, trials=3, name="d").replicates
    assert [replicate.entrant.method for replicate in entrants] == by_default


def test_comparison_can_be_extended_by_methods_and_repeats(compared) -> None:
    compared(**TWO, folds=4, race=False)
    extended = compared(methods="smac,random,tpe", repeats=2, name="c")
    options = [replicate.prepared.plan.options for replicate in extended.replicates]
    assert {(one.folds, one.trials) for one in options} == {(4, 3)}
    assert "2 of 6" in str(extended.notes[-1])
    for comparison in (compared(**TWO | {"name": "d"}, race=True), compared(**TWO | {"name": "d"})):
        assert set(races(comparison).values()) == {True}
    # More repeats race as those before, and new methods by default.
    assert races(extended) == {
        f"c-{repeat}-{method}": method == "smac"
        for method in ("random", "smac", "tpe")
        for repeat in (0, 1)
    }


def test_comparison_of_a_changed_file_stops_or_continues_on_the_stored_data(compared) -> None:
    first = compared(**TWO)
    for name in names(first):
        Ledger(first.store.database).update_study(name, state="complete")
    table(seed=1).to_csv("table.csv", index=False)
    for options in ({}, {"repeats": 2}, {"methods": "random,tpe,smac"}):
        with pytest.raises(BadInput, check=lambda e: "--name" in e.remedy and "--input" in str(e)):
            compared(**TWO | options)
    grown = compared(**TWO | {"repeats": 2}, input="stored")
    assert len(datasets(first, grown)) == 1
    with pytest.raises(BadInput, check=lambda e: e.option == "input"):
        compared(**TWO | {"name": "d"}, input="stored")


def test_killed_comparison_continues_on_the_stored_data_and_reads_no_file(compared) -> None:
    first = compared(**TWO | {"repeats": 2})
    Path("table.csv").write_text("none\n")
    again = compared(**TWO | {"repeats": 2})
    assert sum("has changed" in str(note) for note in again.notes) == 1
    problems = [[r.prepared.plan.problem for r in of.replicates] for of in (first, again)]
    assert problems[0] == problems[1]
    Path("table.csv").unlink()
    grown = compared(**TWO | {"repeats": 3})
    assert sum("cannot be found" in str(note) for note in grown.notes) == 1
    assert len(datasets(first, grown)) == 1


def test_options_shared_by_replicates_cannot_change(compared) -> None:
    first = compared(**TWO)
    for options, named in (
        ({"seed": 4}, "--seed 0"),
        ({"folds": 5}, "--folds 3"),
        ({"trial_timeout": "9s"}, "--trial-timeout"),
        ({"no_cache": True}, "cache"),
        ({"race": True}, "c-0-random"),
        ({"drop": ["a"]}, "its data are different"),
    ):
        with pytest.raises(BadInput) as refused:
            compared(methods="smac,random,tpe", name="c", **options)
        assert named in str(refused.value)
        assert "--name" in refused.value.remedy
        assert "--study" not in str(refused.value)
    with locked_study(first.store, "c-0-tpe"), pytest.raises(BadInput, match="c-0-tpe") as busy:
        compared(methods="random,tpe", name="c")
    assert "--name" in busy.value.remedy


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"methods": "random"}, "methods"),
        ({"methods": "random,random"}, "methods"),
        ({"methods": "flash,flash:variant=default"}, "methods"),
        ({"methods": "random,tpe:x"}, "methods"),
        ({"methods": "random,bohb:fidelity=folds", "holdout": 0.2}, "methods"),
        ({"methods": "random,bohb:fidelity=epochs"}, "methods"),
        ({"repeats": 0}, "repeats"),
        ({"trials": None}, "budget"),
        ({"budget": "1m"}, "budget"),
        ({"name": "a b"}, "name"),
        ({"test_size": 0}, "test-size"),
    ],
)
def test_impossible_comparison_is_refused_before_any_study_is_created(
    compared, options, option
) -> None:
    with pytest.raises(BadInput, check=lambda e: e.option == option):
        compared(**TWO | options)
    assert names(compared(**TWO)) == ["c-0-random", "c-0-tpe"]


def test_equal_methods_with_different_options_are_distinguished() -> None:
    one, other = parse_methods('flash, flash:variant="paper":r=5:n_prune=9')
    assert (one.method, other.method, one.options) == ("flash", "flash", {})
    assert other.options == {"variant": "paper", "r": 5, "n_prune": 9}
    assert one.study("c", 0) == "c-0-flash"
    assert other.study("c", 1) == "c-1-flash-n_prune-9-r-5-variant-paper"
    flash, paper, _ = parse_methods("flash:variant=default,flash:r=5:variant=paper,random")
    assert flash.label == "flash"
    assert paper == parse_methods("flash:variant=paper:r=5,random")[0]  # another spelling
    with pytest.raises(UnknownName, match="'random'"):
        parse_methods("randm,tpe")
