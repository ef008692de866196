"""The best trials are looked at again, on workers that are this process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from finished.searched import Here, run_here
from flow_studies import changed, entered
from flow_studies import tell as tell_came
from observing import Heard
from studies import context_of, draw
from worlds import evaluation, mixed_space

from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.ending.reevaluation import finalists_of, recheck_finalists, recheck_seconds
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.facts import WeightedTrial
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import Job
from prefect_tune.optimizers import Constraint, Failure, Query, Trial
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.keys import PREDICTIONS
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.split import TEST, load_split
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import TrialOutcome

pytestmark = pytest.mark.slow

NAME = "searched"
QUERY = Query(sample_configuration(mixed_space(), np.random.default_rng(0)))
LOSSES = (30.0, 20.0, 10.0, 12.0, 40.0, 15.0, 16.0)
RANKED = [2, 3, 5, 6, 1]


@dataclass
class Workers:
    """Two workers that answer what a test has written down, by the numbers of trials.

    Attributes:
        again: Losses of the second look; None for a failure, an exception to be raised.
        asked: What was evaluated, in turn.
        evaluates: Whether they evaluate instead.
    """

    again: Mapping[int, float | Exception | None]
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    evaluates: bool = False
    n_slots: int = 2
    most: int = 0
    limits: list[float] = field(default_factory=list)

    def run_all(
        self, jobs: Sequence[Job], *, limit_seconds: float, check: Callable[[], None]
    ) -> list[TrialOutcome]:
        self.limits.append(limit_seconds)
        self.most = max(self.most, len(jobs))
        return [self._run(job, check) for job in jobs]

    def _run(self, job: Job, check: Callable[[], None]) -> TrialOutcome:
        check()
        self.asked.append(job.parameters)
        if self.evaluates:
            done: TrialOutcome = run_here(job.task, job.parameters)
            return done
        loss = self.again[job.parameters["number"]]
        if isinstance(loss, Exception):
            raise loss
        if loss is None:
            return TrialOutcome(None, Failure(FailureKind.ERROR, "no rows"), 1)
        return TrialOutcome(evaluation(loss), None, 1)


@dataclass
class Looked:
    """A study of seven trials whose search has ended, and what a second look says."""

    study: Study
    context: StudyContext
    heard: Any = field(default_factory=Heard)

    def again(
        self,
        *losses: float | Exception | None,
        evaluates: bool = False,
        ranked: Iterable[int] = RANKED,
    ) -> Workers:
        """Look again; losses are those of the finalists, the best first."""
        self.notes.clear()
        workers: Any = Workers(dict(zip(ranked, losses, strict=False)), evaluates=evaluates)
        recheck_finalists(self.study, workers, self.context, self.heard)
        return workers  # type: ignore[no-any-return]

    @property
    def notes(self) -> list[str]:
        return self.heard.notes  # type: ignore[no-any-return]

    @property
    def trials(self) -> list[Trial]:
        return [self.study.trials[number] for number in (2, 3, 5)]

    @property
    def chosen(self) -> int | None:
        return None if self.study.incumbent is None else self.study.incumbent.number

    def plan(self, **changes: Any) -> None:
        self.study.plan = changed(self.study.plan, **changes)

    def finalists(self, n_slots: int = 2) -> list[int]:
        found = finalists_of(self.study.plan, self.study.optimizer, n_slots)
        return [trial.number for trial in found]


@contextmanager
def opened(folder: Path, **changes: Any) -> Iterator[Looked]:
    context = replace(context_of(folder), study=NAME)
    with entered(context, NAME, ensemble=EnsembleRule("single"), **changes) as study:
        yield Looked(study, context)


def tell(study: Study, context: StudyContext, loss: float, seconds: float = 1.0) -> None:
    tell_came(study, evaluation(loss, seconds), draw(context, len(study.trials) + 10))


def forget(study: Study) -> None:
    """Forget all re-evaluations."""
    study.record(replace(study.facts, rechecks=(), finalists=()))


@pytest.fixture
def looked(tmp_path: Path):
    with opened(tmp_path) as found:
        for loss in LOSSES:
            tell(found.study, found.context, loss)
        for _ in range(50):
            tell(found.study, found.context, 90.0)
        yield found


def test_another_of_the_best_five_is_chosen_where_it_is_better_over_both_splits(looked) -> None:
    assert looked.chosen == 2
    workers = looked.again(15.0, 11.0, 20.0, 20.0, 2.9)
    assert [asked["number"] for asked in workers.asked] == RANKED
    assert workers.most == 2
    assert looked.chosen == 1
    assert "2, 3, 5, 6, 1" in looked.notes[0]
    assert "trial 1" in looked.notes[1]
    assert "error 11.45 %, trial 2 12.5 %" in looked.notes[1]
    summary = read_study(looked.study.store, NAME).to_json()
    assert summary["finalists"][0] == {"trial": 2, "loss": 10.0, "recheck_loss": 15.0}


def test_the_choice_is_known_when_the_study_is_opened_again_until_another_is_better(looked) -> None:
    looked.again(15.0, 11.0, 20.0, 20.0, 20.0)
    again = Study(looked.study.store, NAME)
    assert again.incumbent is not None
    assert again.incumbent.number == 3
    tell(looked.study, looked.context, 9.0)
    assert looked.chosen == len(looked.study.trials) - 1


def test_a_finalist_that_fails_is_not_chosen_and_without_the_first_nothing_changes(looked) -> None:
    looked.again(15.0, None, 11.0, 20.0, 20.0)
    assert looked.chosen == 2
    forget(looked.study)
    looked.again(15.0, None, 9.9, 20.0, 20.0)
    assert looked.chosen == 5
    forget(looked.study)
    looked.again(None, 1.0, 1.0, 1.0, 1.0)
    assert looked.chosen == 2
    assert "trial 2 failed" in looked.notes[1]


def test_those_that_were_looked_at_are_not_again(looked) -> None:
    looked.again(15.0, 11.0, None, 20.0, 20.0)
    assert not looked.again().asked
    assert looked.chosen == 3


def test_of_several_that_run_at_once_one_over_a_limit_fails_alone(looked) -> None:
    workers = looked.again(15.0, 11.0, TimeoutError("took long"), 13.0, 20.0)
    assert [asked["number"] for asked in workers.asked] == [2, 3, 5, 5, 6, 1]
    losses = [each.recheck_loss for each in looked.study.facts.finalists]
    assert losses == [15.0, 11.0, None, 13.0, 20.0]
    assert looked.chosen == 3


def test_what_came_before_the_time_was_spent_counts(looked, monkeypatch) -> None:
    seconds = iter([1.0, 1.0, 99.0, 60.5])
    looked.plan(budget=60.0)
    monkeypatch.setattr(looked.study, "seconds", lambda: next(seconds))
    looked.again(15.0, 11.0, 1.0, 1.0, 1.0)
    assert [each.trial for each in looked.study.facts.finalists] == [2, 3]
    assert looked.chosen == 3
    assert "time budget used" in looked.notes[1]
    forget(looked.study)
    assert not looked.again(1.0).asked
    assert looked.chosen == 2
    assert looked.study.facts.finalists == ()


def test_a_finalist_may_take_twice_what_it_took_where_that_is_more_than_the_limit(tmp_path) -> None:
    with opened(tmp_path) as found:
        for n in range(30):
            tell(found.study, found.context, float(n), seconds=600.0)
        workers = found.again(1.0, 1.0, 1.0, 1.0, 1.0, ranked=range(5))
        assert {a["limit_seconds"] for a in workers.asked} == {1200.0} == set(workers.limits)
        forget(found.study)
        found.plan(trial_timeout=450.0)  # the user's own
        assert set(found.again(1.0, 1.0, 1.0, 1.0, 1.0, ranked=range(5)).limits) == {450.0}


def test_a_store_that_is_lost_ends_the_session(looked) -> None:
    with pytest.raises(StoreLost, match="away"):
        looked.again(StoreLost("away"))


def test_what_was_seen_before_an_interrupt_is_known_and_leaves_no_record(looked) -> None:
    looked.again(evaluates=True)
    rechecks = looked.study.facts.rechecks
    forget(looked.study)

    class Cut(Workers):
        def run_all(self, jobs: Sequence[Job], **options: Any) -> list[TrialOutcome]:
            outcomes = super().run_all(jobs, **options)
            if len(self.asked) > self.n_slots:  # the second batch, which has run
                raise KeyboardInterrupt
            return outcomes

    workers: Any = Cut({}, evaluates=True)
    with pytest.raises(KeyboardInterrupt):
        recheck_finalists(looked.study, workers, looked.context, looked.heard)
    assert looked.study.facts.rechecks == rechecks[:2]
    assert not looked.study.store.records.used_by(NAME, PREDICTIONS)
    again = looked.again(evaluates=True)
    assert [asked["number"] for asked in again.asked] == RANKED[2:]


def test_groups_that_cannot_be_dealt_otherwise_end_the_look(looked, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise BadInput("the groups can be dealt to the folds in one way only")

    monkeypatch.setattr("prefect_tune.flows.ending.reevaluation.another_split", refuse)
    assert not looked.again(1.0).asked
    assert looked.chosen == 2
    assert "one way only" in looked.notes[1]


def test_finalists_are_evaluated_on_other_folds_of_the_training_rows(looked) -> None:
    workers = looked.again(evaluates=True)
    asked, store = workers.asked[0]["context"].problem, looked.study.store
    folds = [load_split(store, digest).fold for digest in (looked.study.problem.split, asked.split)]
    assert (folds[0] != folds[1]).any()
    assert ((folds[0] == TEST) == (folds[1] == TEST)).all()
    assert replace(asked, split="") == replace(looked.study.problem, split="")
    losses = [each.recheck_loss for each in looked.study.facts.finalists]
    assert all(0 < loss < 60 for loss in losses)


def test_finalists_are_at_most_a_tenth_of_the_full_trials_whatever_they_cost(tmp_path) -> None:
    with opened(tmp_path) as found:
        for n in range(19):
            tell(found.study, found.context, float(n), seconds=100.0 if n == 1 else 1.0)
        assert found.finalists() == []
        tell(found.study, found.context, 19.0)
        assert found.finalists() == [0, 1]
        for n in range(20, 70):
            tell(found.study, found.context, float(n))
        assert found.finalists() == [0, 1, 2, 3, 4]


def test_looking_again_takes_at_most_a_tenth_of_the_seconds(tmp_path) -> None:
    with opened(tmp_path, budget=60.0) as found:
        for n, seconds in enumerate((1.0, 4.0, 2.0, 1.0, 1.0, 1.0)):
            tell(found.study, found.context, float(n), seconds)
        assert found.finalists(1) == [0, 2]  # 1.75 s and 3 s, of 6 s
        assert found.finalists(2) == [0, 1]  # 5.5 s side by side
        found.plan(budget=120.0)
        assert found.finalists(1) == [0, 1, 2, 3]
        found.plan(budget=17.0)
        assert found.finalists(1) == []


def test_a_look_takes_as_long_as_the_dearest_of_each_batch() -> None:
    trials = [Trial(0, QUERY).started().completed(evaluation(1.0, s)) for s in (8.0, 1.0, 1.0, 2.0)]
    assert recheck_seconds(trials, 1) == 1.25 * 12 + 4 * 0.5
    assert recheck_seconds(trials, 2) == 1.25 * (8 + 2) + 2 * 0.5
    assert recheck_seconds([], 2) == 0


def test_of_trials_with_the_same_losses_one_is_looked_at(tmp_path) -> None:
    with opened(tmp_path) as found:
        for loss in (1.0, 1.0, 2.0, 1.0, *[9.0] * 26):
            tell(found.study, found.context, loss)
        assert found.finalists() == [0, 2, 4]


@pytest.mark.parametrize(
    ("method", "rule", "is_bound", "is_looked_at"),
    [
        ("random", "single", False, True),
        ("random", None, False, True),
        ("random", "auto", False, False),
        ("flash", None, False, False),
        ("flash", None, True, True),
        ("flash", "greedy", True, False),
        ("flash", "single", False, True),
    ],
)
def test_there_are_finalists_where_the_study_ends_in_one_trial(
    looked, method, rule, is_bound, is_looked_at
) -> None:
    looked.study.optimizer.method = replace(
        looked.study.optimizer.method, ensemble="auto" if method == "flash" else None
    )
    bounds = (SimpleNamespace(constraint=Constraint("x", 1.0)),) if is_bound else ()
    looked.plan(ensemble=None if rule is None else EnsembleRule(rule), constraint=bounds)
    assert bool(looked.finalists()) is is_looked_at


@pytest.mark.parametrize("rule", [None, EnsembleRule("single")])
def test_the_model_comes_from_the_chosen_trial(looked, rule) -> None:
    looked.plan(ensemble=rule)
    with looked.study.timed(), looked.study.searching():
        looked.again(15.0, 11.0, 20.0, 20.0, 20.0)
    workers: Any = Here()
    fit_final_model(looked.study, workers, looked.context, looked.heard)
    assert looked.study.facts.model.members == (WeightedTrial(3, 1.0),)
    assert read_study(looked.study.store, NAME).to_json()["incumbent"]["trial"] == 3


def test_nothing_of_a_second_look_outlives_its_study(looked) -> None:
    looked.again(evaluates=True)
    store = looked.study.store
    assert not store.records.used_by(NAME, PREDICTIONS)
    kept = set(store.records.used_by(NAME, "splits"))
    assert len(kept) == 1
    store.records.release(NAME)
    assert not any(store.records.exists(record) for record in kept)
