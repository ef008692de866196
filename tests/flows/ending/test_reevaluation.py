"""The best trials are re-evaluated, with workers in this process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from finished.searched import Here, run_here
from flow_studies import changed, entered
from flow_studies import tell as tell_came
from observing import Heard
from studies import context_of, draw
from worlds import evaluation

from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.ending.reevaluation import finalists_of, recheck_finalists
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.facts import WeightedTrial
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import Job
from prefect_tune.optimizers import Constraint, Failure
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.keys import PREDICTIONS
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.split import TEST, load_split
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome

pytestmark = pytest.mark.slow

NAME = "searched"
LOSSES = (30.0, 20.0, 10.0, 12.0, 40.0, 15.0, 16.0)
RANKED = [2, 3, 5, 6, 1]
SINGLE = EnsembleRule("single")
PLENTY = 1e6
"""A budget in seconds that nothing exhausts."""


@dataclass
class Workers:
    """Two workers that return the outcomes set by a test for each trial.

    Attributes:
        again: Losses of the re-evaluation; None for a failure, or an exception to raise. If empty,
            trials are really evaluated.
        asked: Parameters of the evaluations, in order.
        limits: Time limit of each batch.
        after_batch: Called with the number of trials requested so far.
    """

    again: Mapping[int, float | Exception | None]
    n_slots: int = 2
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    after_batch: Callable[[int], None] = lambda _: None

    @property
    def numbers(self) -> list[int]:
        return [asked["number"] for asked in self.asked]

    def run_all(
        self, jobs: Sequence[Job], *, limit_seconds: float, check: Callable[[], None]
    ) -> list[TrialOutcome]:
        assert len(jobs) <= self.n_slots
        self.limits.append(limit_seconds)
        outcomes = [self._run(job, check) for job in jobs]
        self.after_batch(len(self.asked))
        return outcomes

    def _run(self, job: Job, check: Callable[[], None]) -> TrialOutcome:
        check()
        self.asked.append(job.parameters)
        if not self.again:
            done: TrialOutcome = run_here(job.task, job.parameters)
            return done
        loss = self.again[job.parameters["number"]]
        if isinstance(loss, Exception):
            raise loss
        if loss is None:
            return TrialOutcome(None, Failure(FailureKind.ERROR, "no rows"), 1)
        return TrialOutcome(evaluation(loss), None, 1)


@dataclass
class Ended:
    """A study whose search has ended, and the result of its re-evaluation."""

    study: Study
    context: StudyContext
    heard: Any = field(default_factory=Heard)

    def tell(self, loss: float, seconds: float = 1.0) -> None:
        query = draw(self.context, len(self.study.trials) + 10)
        tell_came(self.study, evaluation(loss, seconds), query)

    def again(self, *losses: float | Exception | None, **of_workers: Any) -> Workers:
        """Re-evaluate the finalists with these losses, the best finalist first."""
        self.heard.notes.clear()
        workers: Any = Workers(dict(zip(RANKED, losses, strict=False)), **of_workers)
        recheck_finalists(self.study, workers, self.context, self.heard)
        return workers  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Forget all re-evaluations."""
        self.study.record(replace(self.study.facts, rechecks=(), finalists=()))

    @property
    def chosen(self) -> int | None:
        return None if self.study.incumbent is None else self.study.incumbent.number

    def plan(self, **changes: Any) -> None:
        self.study.plan = changed(self.study.plan, **changes)

    def finalists(self, n_slots: int = 2) -> list[int]:
        found = finalists_of(self.study.plan, self.study.optimizer, n_slots)
        return [trial.number for trial in found]


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Ended]:
    """A study without a trial."""
    context = replace(context_of(tmp_path), study=NAME)
    with entered(context, NAME, ensemble=SINGLE) as study:
        yield Ended(study, context)


@pytest.fixture
def ended(new) -> Ended:
    """A study of seven trials, with time for five finalists."""
    for loss in LOSSES:
        new.tell(loss)
    new.plan(budget=PLENTY)
    return new  # type: ignore[no-any-return]


def test_finalist_with_the_best_mean_over_both_splits_is_chosen(ended) -> None:
    assert ended.chosen == 2
    assert ended.again(15.0, 11.0, 20.0, 20.0, 2.9).numbers == RANKED
    assert ended.chosen == Study(ended.study.store, NAME).incumbent.number == 1
    assert "error 11.45%, trial 2 12.5%" in ended.heard.notes[1]
    summary = read_study(ended.study.store, NAME).to_json()
    assert summary["finalists"][0] == {"trial": 2, "loss": 10.0, "recheck_loss": 15.0}
    assert ended.again().numbers == []  # they are known
    assert ended.chosen == 1
    ended.tell(9.0)
    assert ended.chosen == len(LOSSES)


SLOW = TimeoutError("took long")


@pytest.mark.parametrize(
    ("again", "chosen", "asked"),
    [
        ((15.0, None, 11.0, 20.0, 20.0), 2, RANKED),
        ((15.0, None, 9.9, 20.0, 20.0), 5, RANKED),
        ((None, 1.0, 1.0, 1.0, 1.0), 2, RANKED),  # without the first, nothing changes
        ((15.0, 11.0, SLOW, 13.0, 20.0), 3, [2, 3, 5, 5, 6, 1]),  # of two at once, one is alone
    ],
)
def test_failing_finalist_is_not_chosen(ended, again, chosen, asked) -> None:
    assert ended.again(*again).numbers == asked
    assert ended.chosen == chosen
    losses = [each.recheck_loss for each in ended.study.facts.finalists]
    assert losses == [None if loss is SLOW else loss for loss in again]


def test_only_reevaluations_finished_before_the_time_limit_count(ended, monkeypatch) -> None:
    seconds = iter([1.0, 1.0, 99.0, 60.5])
    ended.plan(budget=60.0)
    monkeypatch.setattr(ended.study, "seconds", lambda: next(seconds))
    ended.again(15.0, 11.0, 1.0, 1.0, 1.0)
    assert [each.trial for each in ended.study.facts.finalists] == [2, 3]
    assert ended.chosen == 3
    ended.forget()
    assert ended.again(1.0).numbers == []
    assert (ended.chosen, ended.study.facts.finalists) == (2, ())


def test_finalist_may_take_twice_as_long_as_the_original_trial(new) -> None:
    for loss in LOSSES:
        new.tell(loss, seconds=600.0)
    new.plan(budget=PLENTY)
    workers = new.again(1.0, 1.0, 1.0, 1.0, 1.0)
    assert {a["limit_seconds"] for a in workers.asked} == {1200.0} == set(workers.limits)
    new.forget()
    new.plan(trial_timeout=450.0)  # the user's own
    assert set(new.again(1.0, 1.0, 1.0, 1.0, 1.0).limits) == {450.0}


def test_reevaluation_is_skipped_without_a_second_split_and_fails_without_a_store(
    ended, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise BadInput("one way only")

    with monkeypatch.context() as patched:
        patched.setattr("prefect_tune.flows.ending.reevaluation.another_split", refuse)
        assert ended.again(1.0).numbers == []
    assert ended.chosen == 2
    with pytest.raises(StoreLost):
        ended.again(StoreLost("away"))


def test_finalists_use_other_folds_and_an_interrupt_loses_only_the_running_batch(
    ended,
) -> None:
    def interrupt(n_asked: int) -> None:
        if n_asked > 2:  # the second batch has run
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ended.again(after_batch=interrupt)
    first = ended.study.facts.rechecks
    workers = ended.again()
    assert workers.numbers == RANKED[2:]
    assert ended.study.facts.rechecks[:2] == first
    asked, store = workers.asked[0]["context"].problem, ended.study.store
    folds = [load_split(store, digest).fold for digest in (ended.study.problem.split, asked.split)]
    assert (folds[0] != folds[1]).any()
    assert ((folds[0] == TEST) == (folds[1] == TEST)).all()
    assert replace(asked, split="") == replace(ended.study.problem, split="")
    assert all(0 < each.recheck_loss < 60 for each in ended.study.facts.finalists)
    # Nothing of it outlives its study.
    assert not store.records.used_by(NAME, PREDICTIONS)
    [split] = store.records.used_by(NAME, "splits")
    store.records.release(NAME)
    assert not store.records.exists(split)


def test_finalists_are_a_tenth_of_the_full_trials_with_distinct_losses(new) -> None:
    for n in range(19):
        new.tell(float(n // 2), seconds=100.0 if n == 1 else 1.0)
    assert new.finalists() == []
    for n in range(19, 50):
        new.tell(float(n))
    assert new.finalists() == [0, 2, 4, 6, 8]


def test_reevaluation_takes_at_most_a_tenth_of_the_seconds(new) -> None:
    for n, seconds in enumerate((1.0, 4.0, 2.0, 1.0, 1.0, 1.0)):
        new.tell(float(n), seconds)
    for budget, n_slots, expected in (
        (60.0, 1, [0, 2]),  # 1.75 s and 3 s, of 6 s
        (60.0, 2, [0, 1]),  # 5.5 s side by side
        (120.0, 1, [0, 1, 2, 3]),
        (17.0, 1, []),
    ):
        new.plan(budget=budget)
        assert new.finalists(n_slots) == expected


def test_finalists_are_reevaluated_only_if_a_single_trial_becomes_the_model(ended) -> None:
    declared = ended.study.optimizer.method
    for of_method, rule, is_bound, expected in (
        (None, "single", False, True),
        (None, None, False, True),
        (None, "auto", False, False),
        ("auto", None, False, False),
        ("auto", None, True, True),
        ("auto", "greedy", True, False),
        ("auto", "single", False, True),
    ):
        ended.study.optimizer.method = replace(declared, ensemble=of_method)
        bounds = (SimpleNamespace(constraint=Constraint("x", 1.0)),) if is_bound else ()
        ended.plan(ensemble=None if rule is None else EnsembleRule(rule), constraint=bounds)
        assert bool(ended.finalists()) is expected, (of_method, rule, is_bound)


@pytest.mark.parametrize("rule", [None, SINGLE])
def test_model_is_fitted_from_the_chosen_finalist(ended, rule) -> None:
    ended.plan(ensemble=rule)
    with ended.study.clock.running(), ended.study.searching():
        ended.again(15.0, 11.0, 20.0, 20.0, 20.0)
    workers: Any = Here()
    fit_final_model(ended.study, workers, ended.context, ended.heard)
    assert ended.study.facts.model.members == (WeightedTrial(3, 1.0),)
    assert read_study(ended.study.store, NAME).to_json()["incumbent"]["trial"] == 3
