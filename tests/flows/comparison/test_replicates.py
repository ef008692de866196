"""What a comparison is made of, and what may change when it is resumed."""

from collections.abc import Callable

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


def test_each_repeat_has_a_study_of_each_method_with_its_seed(compared) -> None:
    comparison = compared(methods="random,tpe", repeats=2, trials=3, name="c")
    assert names(comparison) == ["c-0-random", "c-0-tpe", "c-1-random", "c-1-tpe"]
    plans = [replicate.prepared.plan for replicate in comparison.replicates]
    assert [plan.seed for plan in plans] == [0, 0, 1, 1]
    splits = [plan.problem.split for plan in plans]
    assert splits[0] == splits[1] != splits[2] == splits[3]
    assert len({plan.problem.dataset for plan in plans}) == 1


def test_methods_that_say_so_are_compared_unless_named_otherwise(compared) -> None:
    comparison = compared(repeats=1, trials=3, name="c")
    by_default = [method.name for method in METHODS.values() if method.compared_by_default]
    assert [replicate.entrant.method for replicate in comparison.replicates] == by_default


def test_a_comparison_can_be_extended(compared) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c", folds=4)
    extended = compared(methods="smac,random,tpe", repeats=2, name="c")
    assert sorted(names(extended)) == [
        f"c-{r}-{m}" for r in (0, 1) for m in ("random", "smac", "tpe")
    ]
    options = [replicate.prepared.options for replicate in extended.replicates]
    assert {(one.folds, one.trials) for one in options} == {(4, 3)}
    assert any("comparison c: 2 of 6" in str(note) for note in extended.notes)


def test_a_comparison_of_a_changed_file_stops_or_continues_on_its_copy(compared) -> None:
    given = {"methods": "random,tpe", "repeats": 1, "trials": 3, "name": "c"}
    first = compared(**given)
    for replicate in first.replicates:
        Ledger(first.store.database).update_study(replicate.prepared.name, state="complete")
    table(seed=1).to_csv("table.csv", index=False)
    for options in ({}, {"repeats": 2}, {"methods": "random,tpe,smac"}):
        with pytest.raises(BadInput, match=r"--name.*--input"):
            compared(**given | options)
    grown = compared(**given | {"repeats": 2}, input="stored")
    assert (
        len({r.prepared.plan.problem.dataset for r in (*first.replicates, *grown.replicates)}) == 1
    )
    with pytest.raises(BadInput, match="--input stored"):
        compared(**given | {"name": "d"}, input="stored")


def test_a_killed_comparison_continues_on_its_copy_and_reads_no_file(compared, tmp_path) -> None:
    given = {"methods": "random,tpe", "repeats": 2, "trials": 3, "name": "c"}
    first = compared(**given)
    (tmp_path / "table.csv").write_text("none\n")
    again = compared(**given)
    assert sum("table.csv has changed" in str(note) for note in again.notes) == 1
    assert [r.prepared.plan.problem for r in again.replicates] == [
        r.prepared.plan.problem for r in first.replicates
    ]
    (tmp_path / "table.csv").unlink()
    grown = compared(**given | {"repeats": 3})
    assert sum("cannot be found" in str(note) for note in grown.notes) == 1
    assert len({r.prepared.plan.problem.dataset for r in grown.replicates}) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 4}, ("--seed 0", "4")),
        ({"metric": "auroc"}, ("--metric error",)),
        ({"folds": 5}, ("--folds 3", "5")),
        ({"trial_timeout": "9s"}, ("--trial-timeout",)),
        ({"no_cache": True}, ("cache",)),
        ({"race": True}, ("c-0-random", "--race")),
        ({"drop": ["a"]}, ("other data",)),
    ],
)
def test_what_replicates_share_cannot_change(compared, options, named) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c")
    with pytest.raises(BadInput) as refused:
        compared(methods="smac,random,tpe", name="c", **options)
    assert all(part in str(refused.value) for part in named)
    assert "choose another --name" in refused.value.remedy
    assert "--study" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"methods": "random"}, "two different methods"),
        ({"methods": "random,random"}, "random"),
        ({"methods": "random,tpe:x"}, "METHOD:NAME=VALUE"),
        ({"methods": "tpe,random:x=1"}, "method 'random'"),
        ({"repeats": 0}, "--repeats 0"),
        ({"trials": None}, "--budget"),
        ({"budget": "1m"}, "either --budget"),
        ({"name": "a b"}, "--name a b"),
        ({"out": "/nowhere/x.parquet"}, "/nowhere/x.parquet cannot be written"),
        ({"test_size": 0}, "--test-size 0"),
    ],
)
def test_what_cannot_be_compared_is_named(compared, options, named) -> None:
    with pytest.raises((BadInput, UnknownName)) as refused:
        compared(**{"methods": "random,tpe", "repeats": 1, "trials": 1, **options})
    assert named in str(refused.value)


def test_a_replicate_that_another_process_runs_is_named_with_the_ways_out(compared) -> None:
    comparison = compared(methods="random,tpe", repeats=1, trials=3, name="c")
    with (
        locked_study(comparison.store, "c-0-tpe"),
        pytest.raises(BadInput, match="c-0-tpe") as busy,
    ):
        compared(methods="random,tpe", name="c")
    assert "--name" in busy.value.remedy


def test_a_race_covers_all_methods_and_resumes_as_one(compared) -> None:
    given = {"methods": "random,tpe", "repeats": 1, "trials": 3, "name": "c"}
    for comparison in (compared(**given, race=True), compared(**given)):
        assert [replicate.prepared.plan.options.race for replicate in comparison.replicates] == [
            True,
            True,
        ]


def test_more_repeats_race_as_those_before_and_new_methods_by_default(compared) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c", race=False)
    wider = compared(methods="random,tpe,smac", repeats=2, name="c")
    raced = {(r.entrant.method, r.repeat): r.prepared.plan.options.race for r in wider.replicates}
    assert raced == {
        (method, repeat): method == "smac"
        for method in ("random", "tpe", "smac")
        for repeat in (0, 1)
    }


def test_methods_are_checked_before_any_study_is_entered(compared) -> None:
    given = {"methods": "random,bohb:fidelity=folds", "repeats": 1, "trials": 3}
    assert len(compared(**given, name="a").replicates) == 2
    with pytest.raises(BadInput, match="bohb:fidelity=folds"):
        compared(**given, holdout=0.2, name="c")
    epochs = {**given, "methods": "random,bohb:fidelity=epochs"}
    assert len(compared(**epochs, epochs=9, name="b").replicates) == 2
    with pytest.raises(BadInput, match="epochs"):
        compared(**epochs, name="c")
    assert names(compared(methods="random,tpe", trials=3, repeats=1, name="c")) == [
        "c-0-random",
        "c-0-tpe",
    ]


@pytest.mark.parametrize(("methods", "guess"), [("randm,tpe", "random"), ("random,tp", "tpe")])
def test_an_unknown_method_is_named_with_the_nearest(methods, guess) -> None:
    with pytest.raises(UnknownName, match=f"'{guess}'"):
        parse_methods(methods)


def test_variants_of_one_method_are_told_apart() -> None:
    one, other = parse_methods('flash, flash:variant="paper":r=5:keep=0.1')
    assert (one.method, other.method, one.options) == ("flash", "flash", {})
    assert other.options == {"variant": "paper", "r": 5, "keep": 0.1}
    assert one.study("c", 0) == "c-0-flash"
    assert other.study("c", 1) == "c-1-flash-keep-0.1-r-5-variant-paper"


def test_two_spellings_of_one_method_are_one_study() -> None:
    flash, paper, _ = parse_methods("flash:variant=default,flash:r=5:variant=paper,random")
    assert flash.label == "flash"
    assert paper == parse_methods("flash:variant=paper:r=5,random")[0]
    with pytest.raises(BadInput, match="two different methods"):
        parse_methods("flash,flash:variant=default")
