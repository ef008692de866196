"""What a comparison is made of, and how each of its replicates is scored."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from flow_studies import changed, entered, tell
from inputs import table
from observing import Heard
from studies import context_of
from worlds import evaluation

from prefect_tune.flows.comparison.comparison import Comparison, Entrant, Replicate, parse_methods
from prefect_tune.flows.comparison.prepare import prepare_comparison
from prefect_tune.flows.comparison.replicate import _message, _score, replicate_context
from prefect_tune.flows.options.declared import COMPARE_OPTIONS
from prefect_tune.flows.preparation.prepare import PreparedStudy
from prefect_tune.flows.study.facts import StudyFacts, WeightedTrial
from prefect_tune.flows.study.lease import held_study
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Optimizer, Trial
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.fitting.final_scoring import LossOnTest

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
    assert {replicate.plan.options.stop_rule.trials for replicate in extended.replicates} == {3}
    assert any("comparison c: 0 of 6" in str(note) for note in extended.notes)


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
    assert len({r.plan.problem.dataset for r in (*first.replicates, *grown.replicates)}) == 1
    assert len({r.plan.source_states for r in grown.replicates}) == 1
    with pytest.raises(BadInput, match=r"--input stored.*--name"):
        compared(**given | {"name": "d"}, input="stored")


def test_a_killed_comparison_continues_on_its_copy_and_reads_no_file(compared, tmp_path) -> None:
    given = {"methods": "random,tpe", "repeats": 2, "trials": 3, "name": "c"}
    first = compared(**given)
    (tmp_path / "table.csv").write_text("none\n")
    again = compared(**given)
    assert sum("table.csv has changed" in str(note) for note in again.notes) == 1
    assert [r.plan for r in again.replicates] == [r.plan for r in first.replicates]
    (tmp_path / "table.csv").unlink()
    grown = compared(**given | {"repeats": 3})
    assert sum("cannot be found" in str(note) for note in grown.notes) == 1
    assert len({r.plan.problem.dataset for r in grown.replicates}) == 1


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
        compared(name="c", **options)
    assert all(part in str(refused.value) for part in named)
    assert "choose another --name" in refused.value.remedy
    assert "--study" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"methods": "random"}, "two methods"),
        ({"methods": "random,random"}, "random"),
        ({"methods": "random,tpe:x"}, "METHOD:NAME=VALUE"),
        ({"methods": "tpe,random:x=1"}, "method 'random'"),
        ({"repeats": 0}, "--repeats 0"),
        ({"trials": None}, "--budget"),
        ({"budget": "1m"}, "either --budget"),
        ({"name": "a b"}, "--name 'a b"),
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
    with held_study(comparison.store, "c-0-tpe"), pytest.raises(BadInput, match="c-0-tpe") as busy:
        compared(name="c")
    assert "--name" in busy.value.remedy


def test_a_race_covers_all_methods_and_resumes_as_one(compared) -> None:
    given = {"methods": "random,tpe", "repeats": 1, "trials": 3, "name": "c"}
    for comparison in (compared(**given, race=True), compared(**given)):
        assert [replicate.plan.options.race for replicate in comparison.replicates] == [True, True]


def test_more_repeats_race_as_those_before_and_new_methods_by_default(compared) -> None:
    compared(methods="random,tpe", repeats=1, trials=3, name="c", race=False)
    wider = compared(methods="smac", repeats=2, name="c")
    raced = {(r.entrant.method, r.repeat): r.plan.options.race for r in wider.replicates}
    assert raced == {
        (method, repeat): method == "smac"
        for method in ("random", "tpe", "smac")
        for repeat in (0, 1)
    }


def test_methods_are_checked_against_what_the_study_asks_before_any_is_entered(compared) -> None:
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
    one, other = parse_methods('flash, flash:variant=paper:r=5:design="random"')
    assert (one.method, other.method, one.options) == ("flash", "flash", {})
    assert other.options == {"variant": "paper", "r": 5, "design": "random"}
    assert one.suffix != other.suffix
    assert other.suffix == "flash-variant-paper-r-5-design-random"


OBSERVER: Any = Heard()


CHOSEN = (0, 1, 1, 0)


"""Incumbent after each trial: of four in a budget of eight."""


@dataclass
class WrittenWorkers:
    """Workers whose fits have the loss of the trial's number; those of `broken` cannot be done."""

    fitted: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    broken: frozenset[int] = frozenset()
    undefined: str = ""

    def run(self, task: Any, parameters: Mapping[str, Any], **_: Any) -> Any:
        if task.name == "score":
            loss = None if self.undefined else float(self.fitted[-1])
            return LossOnTest(loss, self.undefined)
        (member,) = parameters["members"]
        self.fitted.append(member.number)
        self.epochs.append(member.query["epochs"])
        if member.number in self.broken:
            raise RuntimeError("no worker came back")
        return 1.0


def chosen(optimizer: Optimizer) -> Trial | None:
    told = [t for t in optimizer.history if t.is_told]
    return optimizer.history[CHOSEN[len(told) - 1]] if told else None


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    """Full trials, of which the method comes back to the first, which ran on a subset."""
    with entered(context_of(tmp_path), "c-0-random", trials=8) as study:
        monkeypatch.setattr(type(study.optimizer), "incumbent", property(chosen))
        propose = study.optimizer._propose
        monkeypatch.setattr(
            study.optimizer,
            "_propose",
            lambda *of: replace(propose(*of), subset=1.0 if study.trials else 0.5),
        )
        for loss in (4.0, 3.0, 2.0, 1.0):
            tell(study, evaluation(loss))
        yield study


MODEL = (WeightedTrial(0, 1.0),)


def score(study: Study, workers: Any) -> StudyFacts:
    prepared = PreparedStudy(study.name, study.plan, study.store)
    _score(study, workers, Replicate(Entrant("random", "random"), 0, prepared), OBSERVER)
    return study.facts


def test_the_model_comes_from_the_end_although_its_trial_led_before(study: Study) -> None:
    workers = WrittenWorkers()
    found = score(study, workers)
    assert workers.fitted == [1, 0]
    assert found.test_losses == {"0": 0.0, "1": 1.0}
    assert (found.model.members, found.model.test_loss) == (MODEL, 0.0)
    score(study, workers)
    assert workers.fitted == [1, 0]  # nothing is left to do


def test_what_could_not_be_fitted_is_tried_again_and_the_model_stays(study: Study) -> None:
    broken = score(study, WrittenWorkers(broken=frozenset({1})))
    assert broken.test_losses == {"0": 0.0, "1": None}
    assert broken.model.members == MODEL
    workers = WrittenWorkers()
    found = score(study, workers)
    assert workers.fitted == [1, 0]
    assert (found.model.members, found.model.test_loss) == (MODEL, 0.0)


def test_a_loss_that_the_test_rows_leave_undefined_is_not_computed_again(study: Study) -> None:
    found = score(study, WrittenWorkers(undefined="one class"))
    assert found.test_losses == {"0": None, "1": None}
    assert found.model.members == MODEL
    assert study.facts.test_losses_undefined == {"0": "one class", "1": "one class"}
    workers = WrittenWorkers()
    score(study, workers)
    assert workers.fitted == []


@pytest.mark.parametrize(
    ("metric", "loss", "test"),
    [("error", "error 4 %", "0 %"), ("auroc", "1 - auroc 4", "0"), ("r2", "1 - r2 4", "0")],
)
def test_the_outcome_names_losses_with_units_and_the_subset(study, metric, loss, test) -> None:
    score(study, WrittenWorkers())
    assert study.incumbent is not None
    study.plan = replace(study.plan, problem=replace(study.plan.problem, metric=metric))
    found, tested = _message(study, study.incumbent).partition(";")[0].split(", ")
    assert found.startswith(f"{loss} (subset 1/2")
    assert tested == f"on the test rows {test}"


@pytest.mark.parametrize(
    ("method", "options", "epochs", "bootstraps"),
    [
        ("random", {}, None, None),
        ("random", {}, 10, None),
        ("ers", {}, None, Bootstraps(30, 0.5)),
        ("esmbo", {"n_histories": 7, "share": 1.0}, None, Bootstraps(7, 1.0)),
    ],
)
def test_workers_know_of_epochs_and_of_the_bootstraps_that_the_method_needs(
    study: Study, method, options, epochs, bootstraps
) -> None:
    plan = changed(study.plan, method=method, option=options, epochs=epochs)
    prepared = PreparedStudy(study.name, plan, study.store)
    context = replicate_context(Replicate(Entrant(method, method), 0, prepared))
    assert (context.epochs, context.bootstraps) == (epochs, bootstraps)


def test_the_method_says_of_how_many_epochs_its_final_model_is(study: Study, monkeypatch) -> None:
    monkeypatch.setattr(
        study.optimizer, "refit", lambda trial: replace(trial.query, epochs=trial.number + 3)
    )
    workers = WrittenWorkers()
    score(study, workers)
    assert workers.epochs == [1 + 3, 0 + 3]
