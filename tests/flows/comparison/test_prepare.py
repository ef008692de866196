"""What a comparison is made of, before anything runs."""

from collections.abc import Callable

import pytest
from inputs import table

from prefect_tune.flows.comparison.comparison import Comparison
from prefect_tune.flows.comparison.prepare import prepare_comparison
from prefect_tune.flows.preparation.options import COMPARE_OPTIONS
from prefect_tune.flows.study.lease import held_study
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.tasks.bad_input import BadInput


@pytest.fixture
def compared(tmp_path, monkeypatch) -> Callable[..., Comparison]:
    """Prepares a comparison on the test table by its options."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    table().to_csv("table.csv", index=False)
    given = {"data": "table.csv", "target": "target", "space": "small", "no_cache": False}

    def prepare(**options: object) -> Comparison:
        return prepare_comparison({**dict.fromkeys(COMPARE_OPTIONS), **given, **options})

    return prepare


def names(comparison: Comparison) -> list[str]:
    return [replicate.prepared.name for replicate in comparison.replicates]


def test_each_repeat_begins_with_another_method(compared) -> None:
    comparison = compared(methods="random,tpe,smac", repeats=2, trials=3, name="c")
    assert names(comparison) == [
        "c-0-random", "c-0-tpe", "c-0-smac", "c-1-tpe", "c-1-smac", "c-1-random"
    ]  # fmt: skip
    assert [replicate.plan.seed for replicate in comparison.replicates] == [0, 0, 0, 1, 1, 1]


def test_methods_that_say_so_are_compared_unless_named_otherwise(compared) -> None:
    comparison = compared(repeats=1, trials=3, name="c")
    by_default = [method.name for method in METHODS.values() if method.compared_by_default]
    assert [replicate.entrant.method for replicate in comparison.replicates] == by_default


def test_what_a_comparison_has_stays_part_of_it_and_can_be_extended(compared) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c")
    extended = compared(methods="smac", repeats=2, name="c")
    assert sorted(names(extended)) == [
        f"c-{r}-{m}" for r in (0, 1) for m in ("random", "smac", "tpe")
    ]
    assert {replicate.plan.stop_rule.trials for replicate in extended.replicates} == {3}
    assert "continues comparison c: 0 of 6 replicates are done" in map(str, extended.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 4}, "the comparison has --seed 0, and cannot be continued with 4"),
        ({"metric": "auroc"}, "the comparison has --metric error"),
        ({"trial_timeout": "9s"}, "the comparison has --trial-timeout its default"),
        ({"no_cache": True}, "the comparison has a cache"),
        ({"race": True}, "'c-0-random' was begun without --race, and cannot be continued with it"),
    ],
)
def test_what_replicates_share_cannot_change(compared, options, message) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c")
    with pytest.raises(BadInput, match=message) as refused:
        compared(name="c", **options)
    assert "choose another --name" in refused.value.remedy
    assert "--study" not in str(refused.value)


def test_test_rows_are_needed(compared) -> None:
    with pytest.raises(BadInput, match="--test-size 0: methods are compared by test rows"):
        compared(methods="random,tpe", repeats=1, trials=3, test_size=0)


def test_a_replicate_that_another_process_runs_is_named_with_the_ways_out(compared) -> None:
    comparison = compared(methods="random,tpe", repeats=1, trials=3, name="c")
    with held_study(comparison.store, "c-0-tpe"), pytest.raises(BadInput, match="c-0-tpe") as busy:
        compared(name="c")
    assert busy.value.remedy == "wait for it, end it, or choose another --name"


def test_methods_are_checked_before_any_study_is_entered(compared) -> None:
    with pytest.raises(BadInput, match="--methods flash:r=x: r must be a whole number"):
        compared(methods="random,flash:r=x", repeats=1, trials=3, name="c")
    assert "continues" not in " ".join(map(str, compared(methods="random,tpe", trials=3).notes))


def test_a_race_is_one_of_all_methods_and_goes_on_as_one(compared) -> None:
    given = {"methods": "random,tpe", "repeats": 1, "trials": 3, "name": "c"}
    for comparison in (compared(**given, race=True), compared(**given)):
        assert [replicate.plan.race for replicate in comparison.replicates] == [True, True]


def test_more_repeats_race_as_those_before_and_new_methods_by_default(compared) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c", race=False)
    wider = compared(methods="smac", repeats=2, name="c")
    raced = {(r.entrant.method, r.repeat): r.plan.race for r in wider.replicates}
    assert raced == {
        (method, repeat): method == "smac"
        for method in ("random", "tpe", "smac")
        for repeat in (0, 1)
    }


def test_methods_are_checked_against_what_the_study_asks_before_any_is_entered(compared) -> None:
    given = {"methods": "random,bohb:fidelity=folds", "repeats": 1, "trials": 3}
    assert len(compared(**given, name="a").replicates) == 2
    with pytest.raises(BadInput, match=r"--methods bohb:fidelity=folds: .*at least 2 folds"):
        compared(**given, holdout=0.2, name="c")
    epochs = {**given, "methods": "random,bohb:fidelity=epochs"}
    assert len(compared(**epochs, epochs=9, name="b").replicates) == 2
    with pytest.raises(BadInput, match="no number of epochs"):
        compared(**epochs, name="c")
    assert names(compared(methods="random,tpe", trials=3, repeats=1, name="c")) == [
        "c-0-random",
        "c-0-tpe",
    ]
