"""The search loop, with a study and workers that follow a script."""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flow_studies import plan
from observing import Heard
from prefect.exceptions import Abort, Pause
from worlds import mixed_space

from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.running.run_requests import RunRequests
from prefect_tune.flows.search import StudySearch
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.progress import Progress, RunningTrial
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.flows.workers.dask_trials import Ended
from prefect_tune.optimizers import (
    Budget,
    Evaluation,
    Failure,
    FailureKind,
    NotYet,
    Objective,
    Query,
    Reason,
    SpaceExhausted,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import Pilot, TrialState
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.sandbox.output import Printed
from prefect_tune.tasks.trial.evaluate import TrialOutcome

QUERY = Query(sample_configuration(mixed_space(), np.random.default_rng(0)))


@dataclass
class WrittenStudy:
    """A study in memory, with no more than `n_configurations` to propose."""

    n_configurations: int = 100
    trials: StudyTrials = field(default_factory=StudyTrials)
    spent: float = 0.0
    start_seconds: float = 0.0
    ask_seconds: tuple[float, ...] = (0.25,) * 12
    asking_seconds: float = 3.0
    optimizer: Any = field(default_factory=lambda: _method(resumes_configurations=False))
    told: list[Trial] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    name: str = "written"
    plan: StudyPlan = field(default_factory=plan)

    @property
    def n_begun(self) -> int:
        return len(self.trials)

    @property
    def incumbent(self) -> Trial | None:
        complete = [t for t in self.told if t.loss is not None]
        return min(complete, key=lambda t: t.loss or 0.0, default=None)

    def seconds(self) -> float:
        return self.spent

    def next_waiting(self, numbers: Collection[int] | None = None) -> Trial | None:
        waiting = (t for t in self.trials.waiting if numbers is None or t.number in numbers)
        return next(waiting, None)

    def ask(self, budget: Budget) -> Trial:
        if len(self.trials) == self.n_configurations:
            raise SpaceExhausted("nothing is left")
        self.budgets.append(budget)
        return self.set_trial(Trial(len(self.trials), QUERY))

    def set_trial(self, trial: Trial) -> Trial:
        self.trials.keep(trial)
        return trial

    def requeue_running(self) -> None:
        for number in self.numbers("running"):
            self.set_trial(self.trials[number].waiting())

    def retry(self, number: int) -> None:
        self.set_trial(self.trials[number].retried())

    def tell(self, trial: Trial, task_run_id: str, printed: Printed) -> None:  # noqa: ARG002
        self.told.append(self.set_trial(trial))
        self.optimizer.costs.tell(trial)

    def numbers(self, state: str) -> list[int]:
        return [n for n, t in sorted(self.trials.items()) if t.state == TrialState(state)]


@dataclass
class WrittenPool:
    """Two workers; each poll advances the study by one second and ends trials in order.

    Attributes:
        fates: Outcomes by trial number and attempt; all other trials have a loss of 1.
    """

    study: WrittenStudy
    fates: Mapping[tuple[int, int], str] = field(default_factory=dict)
    n_slots: int = 2
    n_task_runs: int = 0
    under_way: list[Trial] = field(default_factory=list)
    most: int = 0
    n_cuts: int = 0
    benched: list[str] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    pilots: list[float | None] = field(default_factory=list)
    following: list[int] = field(default_factory=list)

    @property
    def n_running(self) -> int:
        return len(self.under_way)

    @property
    def running_trials(self) -> tuple[RunningTrial, ...]:
        return tuple(RunningTrial(t.number, ("unit", "svm"), 1.0, 9.0) for t in self.under_way)

    def has_room(self, n_begun: int) -> bool:
        return self.n_running + n_begun < self.n_slots - len(self.benched)

    def bench(self, worker: str) -> int:
        self.benched.append(worker)
        return self.n_slots - len(self.benched)

    def submit(
        self,
        trial: Trial,
        report: str,
        limit_seconds: float,
        *,
        pilot_seconds: float | None,
        n_following: int,
        training_seconds: float,
    ) -> None:
        assert report == "steps"
        assert training_seconds < limit_seconds
        self.following.append(n_following)
        self.limits.append(limit_seconds)
        self.pilots.append(pilot_seconds)
        assert trial.state == TrialState.RUNNING
        self.under_way.append(trial)
        self.most = max(self.most, self.n_running)

    def collect(self, timeout_seconds: float) -> list[Ended]:
        assert timeout_seconds > 0
        self.study.spent += 1
        for trial in self.under_way:
            fate = self.fates.get((trial.number, trial.attempts), "complete")
            if fate == "interrupt":
                raise KeyboardInterrupt
            if fate != "hangs":
                self.under_way.remove(trial)
                self.n_task_runs += 1
                return [_ended(trial, fate)]
        return []

    def cut(self) -> list[Trial]:
        cut, self.under_way = self.under_way, []
        self.n_cuts += 1
        return cut


def _method(*, resumes_configurations: bool) -> Any:
    return SimpleNamespace(
        resumes_configurations=resumes_configurations,
        notes=(),
        reason=Reason("design", "one of 4 paths"),
        costs=Costs(mixed_space(), Objective(n_rows=50_000, n_folds=5)),
    )


STEPS = tuple(StepCost(step, 0, 0.1, 0.0, hit=False, key="") for step in ("scale", "model"))
OUTCOMES = {
    "complete": TrialOutcome(Evaluation(1.0, steps=STEPS)),
    "starts late": TrialOutcome(Evaluation(1.0, steps=STEPS)),
    "fails": TrialOutcome(failure=Failure(FailureKind.ERROR, "no rows")),
    "times out": TrialOutcome(failure=Failure(FailureKind.TIMEOUT, "took more than 1 s")),
    "store lost": TrialOutcome(lost="the disk is full"),
    "no room": TrialOutcome(lost="the disk is full", is_lost_to_all=True),
    "dies": None,
}


def _ended(trial: Trial, fate: str) -> Ended:
    outcome = OUTCOMES[fate]
    if outcome and outcome.lost:
        outcome = replace(outcome, worker=f"w{trial.attempts}")
    return Ended(trial, outcome, 3.0 if fate in {"dies", "starts late"} else 0.0)


class Searched:
    """A search that has ended."""

    def __init__(
        self,
        fates: Mapping[tuple[int, int], str] | None = None,
        study: WrittenStudy | None = None,
        *,
        may_submit: Callable[[int], bool] = lambda _: True,
        raises: type[BaseException] | None = None,
        heard: Heard | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        **more: Any,
    ) -> None:
        self.study, self.heard = study or WrittenStudy(), heard or Heard()
        self.pool = WrittenPool(self.study, fates or {})
        pace = SimpleNamespace(report="steps", may_submit=may_submit)
        arguments: Any = (self.study, self.pool, StopRule(trials, seconds), pace, self.heard)
        search = StudySearch(*arguments, **more)
        with pytest.raises(raises) if raises else nullcontext():
            self.reason = search.run()


def test_search_keeps_every_worker_busy_until_all_trials_are_done() -> None:
    done = Searched(trials=5)
    assert done.reason == "all trials are done"
    assert done.study.numbers("complete") == [0, 1, 2, 3, 4]
    assert done.pool.most == 2
    assert done.pool.following == [1, 0, 0, 0, 0]
    assert [t.number for t in done.heard.trials] == [0, 1, 2, 3, 4]
    first, last = done.heard.ticks[0], done.heard.ticks[-1]
    assert [(r.number, r.path, r.limit_seconds) for r in first.running] == [(1, ("unit", "svm"), 9)]
    assert {progress.phase for progress in done.heard.ticks} == {"design"}
    assert (first.seconds_left, last.seconds_left) == (4.0, 0.0)  # a second for each


class Changes(Heard):
    """Change an attribute of the run requests at the first tick."""

    def __init__(self, requests: RunRequests, change: str) -> None:
        super().__init__()
        self.requests, self.change = requests, change

    def tick(self, progress: Progress) -> None:
        super().tick(progress)
        setattr(self.requests, self.change, True)


@pytest.mark.parametrize(
    ("change", "error", "complete", "waiting"),
    [("is_suspended", Pause, [0, 1], []), ("is_ended", Abort, [0], [1])],
)
def test_suspended_run_finishes_running_trials_unless_resumed_elsewhere(
    change, error, complete, waiting
) -> None:
    requests = RunRequests()
    done = Searched(trials=9, requests=requests, heard=Changes(requests, change), raises=error)
    assert done.study.numbers("complete") == complete
    assert done.study.numbers("waiting") == waiting
    assert len(done.study.trials) == 2


def test_slow_trial_delays_no_other_trial_and_is_requeued_when_time_is_up() -> None:
    done = Searched({(0, 1): "hangs"}, seconds=6)
    assert done.reason == "time budget used"
    assert done.pool.n_cuts == 1
    assert done.study.numbers("waiting") == [0]
    assert [t.number for t in done.study.told] == [1, 2, 3, 4, 5, 6]


def test_time_limit_shrinks_once_other_trials_have_ended() -> None:
    done = Searched(trials=15)
    assert done.pool.limits == [900.0] * 2 + [30.0] * 13  # the second runs beside the first
    assert done.pool.pilots == [None] * 15
    pilots = Searched(trials=15, seconds=1e3).pool.pilots
    assert None not in pilots[:2]
    assert pilots[2:] == [None] * 13


def test_cheapest_trial_keeps_running_with_a_note_if_no_trial_ends_in_time() -> None:
    fates = {(n, 1): "times out" for n in range(30)}
    study = WrittenStudy(plan=plan(trial_timeout=1.0))
    done = Searched(fates, study=study, trials=14)
    n = next(n for n, t in study.trials.items() if t.attempts == 2)
    assert study.trials[n].state == TrialState.COMPLETE
    assert [limit > 1.0 for limit in done.pool.limits].count(True) == 1
    (note,) = done.heard.notes
    assert f"trial {n}," in note


@pytest.mark.parametrize(("spent", "rule"), [(0, {"trials": 4}), (20, {"seconds": 5})])
def test_cheapest_trial_keeps_running_after_trials_or_time_are_used_up(spent, rule) -> None:
    fates = {(n, 1): "times out" for n in range(9)}
    done = Searched(fates, WrittenStudy(spent=spent), **rule)
    assert [t.state for t in done.study.trials.values()].count(TrialState.COMPLETE) == 1
    if spent:
        assert [t.attempts > 0 for t in done.study.trials.values()].count(True) == 2
        fates |= {(n, 2): "fails" for n in range(9)}
        assert Searched(fates, WrittenStudy(spent=spent), **rule).reason == "time budget used"


@dataclass
class OfTwoModels(WrittenStudy):
    """A study whose method proposes the same model three times before another model.

    Attributes:
        rows: Share of the rows of all trials but the first.
    """

    rows: float = 1.0

    def ask(self, budget: Budget) -> Trial:
        rng = np.random.default_rng(0)
        drawn = (sample_configuration(mixed_space(), rng) for _ in range(99))
        other = next(Query(c) for c in drawn if c.path[-1] != QUERY.configuration.path[-1])
        trial = super().ask(budget)
        query = QUERY if trial.number < 3 else other
        subset = self.rows if trial.number else 1.0
        return self.set_trial(replace(trial, query=replace(query, subset=subset)))


def test_trial_after_a_timeout_uses_another_algorithm() -> None:
    done = Searched({(0, 1): "times out"}, OfTwoModels(), seconds=9)
    assert [t.attempts for t in done.study.trials.values()][:4] == [1, 1, 0, 1]
    failure = done.study.trials[2].failure
    assert failure is not None
    assert (failure.kind, failure.cost_seconds) == ("timeout", 0.0)
    assert done.study.numbers("complete")[0] == 1


def test_trial_on_fewer_rows_after_a_pilot_is_not_passed_over() -> None:
    study = OfTwoModels(rows=1 / 64)
    done = Searched({(0, 1): "times out"}, study, seconds=9)
    assert [t.attempts for t in done.study.trials.values()][:4] == [1, 1, 0, 1]
    study = OfTwoModels(rows=1 / 64)
    pilot = Pilot(1000, 4000, STEPS, 1.0, 1.0, 0.1)
    study.optimizer.costs.tell_pilot(QUERY.configuration, pilot)
    done = Searched({(0, 1): "times out"}, study, seconds=9)
    assert [t.attempts for t in done.study.trials.values()][:4] == [1, 1, 1, 1]


@pytest.mark.parametrize(("reserved", "spent"), [(7.0, 93.0), (60.0, 50.0)])
def test_at_most_half_of_the_time_is_reserved_for_the_final_model(reserved, spent) -> None:
    study, asked = WrittenStudy(), []

    def reserve(most: float) -> float:
        assert most == 25.0
        asked.append(study.spent)
        return reserved  # type: ignore[no-any-return]

    assert Searched(study=study, seconds=100, reserve=reserve).reason == "time budget used"
    assert (study.spent, min(asked)) == (spent, 50.0)


def test_longest_start_of_a_trial_is_reserved_for_the_process_of_the_final_model() -> None:
    assert Searched({(1, 1): "starts late"}, seconds=20).study.spent == 17


def test_budget_spent_at_the_start_leaves_time_for_a_first_result() -> None:
    done = Searched(study=WrittenStudy(spent=20.0), seconds=5)
    assert [t.number for t in done.study.told] == [0]
    assert done.pool.most == 1
    assert done.study.budgets[0].seconds_left == 60.0
    fates = {(number, 1): "fails" for number in range(9)}
    done = Searched(fates, WrittenStudy(spent=20.0), seconds=5)
    assert [t.number for t in done.study.told] == [0, 1, 2]


def test_retry_runs_only_named_trials_and_the_next_run_starts_with_waiting_trials() -> None:
    study = WrittenStudy(5, trials=StudyTrials(Trial(n, QUERY) for n in range(4)))
    done = Searched(study=study, numbers=frozenset({1, 3}), trials=10)
    assert [t.number for t in done.study.told] == [1, 3]
    assert done.study.numbers("waiting") == [0, 2]
    again = Searched(study=study)
    assert [t.number for t in again.study.told] == [1, 3, 0, 2, 4]
    assert again.reason == "nothing is left"


def test_method_receives_workers_and_the_spent_and_remaining_budget() -> None:
    done = Searched(trials=4, seconds=10)
    first, last = done.study.budgets[0], done.study.budgets[-1]
    assert (first.trials_spent, first.trials_left, first.seconds_left) == (0, 4, 20.0)
    assert (last.trials_spent, last.trials_left, last.seconds_left) == (2, 1, 16.0)
    assert (first.n_workers, first.ask_seconds) == (2, 3.0)
    assert first.last_ask_seconds == (0.25,) * 10


@pytest.mark.parametrize(
    ("fates", "kind", "attempts"),
    [
        ({(2, 1): "fails"}, "error", 1),
        ({(2, 1): "times out"}, "timeout", 1),
        ({(2, 1): "dies"}, None, 2),
        ({(2, 1): "dies", (2, 2): "dies"}, "crashed", 2),
    ],
)
def test_failed_trial_is_reported_and_a_trial_of_a_dead_worker_is_repeated(
    fates, kind, attempts
) -> None:
    """The repetition runs even if no other trial may begin. A second death fails the trial."""
    done = Searched(fates, trials=3)
    trial = done.study.trials[2]
    assert (trial.failure and trial.failure.kind, trial.attempts) == (kind, attempts)
    assert done.study.numbers("complete") == [0, 1, 2][: 2 if kind else 3]
    assert [t.number for t in done.study.told] == [0, 1, 2]
    assert ["trial 2 was" in note for note in done.heard.notes] == [True] * (attempts - 1)
    if kind == "crashed":
        assert (trial.deaths, trial.failure.cost_seconds) == (2, 3.0)


@pytest.mark.parametrize(
    ("fate", "error", "n_benched"),
    [("store lost", StoreLost, 2), ("no room", StoreLost, 0), ("interrupt", KeyboardInterrupt, 0)],
)
def test_search_stopped_by_an_error_leaves_a_resumable_study(fate, error, n_benched) -> None:
    done = Searched({(2, 1): fate, (3, 1): fate}, trials=6, raises=error)
    assert len(done.pool.benched) == n_benched
    assert done.pool.n_cuts == 1
    assert done.study.numbers("running") == []
    assert done.study.numbers("waiting") == [2, 3]
    assert [t.number for t in done.study.told] == [0, 1]
    again = Searched(study=done.study, trials=6)
    assert again.study.numbers("complete") == [0, 1, 2, 3, 4, 5]
    assert again.study.trials[2].deaths == 0


def test_worker_without_a_store_is_benched_and_the_trial_is_requeued() -> None:
    done = Searched({(1, 1): "store lost"}, trials=4)
    assert done.pool.benched == ["w1"]
    assert done.study.numbers("complete") == [0, 1, 2, 3]
    assert done.study.trials[1].attempts == 2
    (note,) = done.heard.notes
    assert all(part in note for part in ("worker w1", "trial 1", "the disk is full"))


def test_no_trial_is_started_while_the_server_is_behind() -> None:
    looks = iter([False, False])
    done = Searched(trials=6, may_submit=lambda n_runs: n_runs != 2 or next(looks, True))
    assert done.study.numbers("complete") == list(range(6))
    assert 0 in [len(progress.running) for progress in done.heard.ticks[:-1]]


@dataclass
class Promoting(WrittenStudy):
    """A method with rungs: a configuration is promoted once both trials of a pair were told."""

    optimizer: Any = field(default_factory=lambda: _method(resumes_configurations=True))
    begun: int = 0
    n_asks: int = 0

    @property
    def n_begun(self) -> int:
        return self.begun

    def ask(self, budget: Budget) -> Trial:
        self.n_asks += 1
        if budget.trials_left:
            self.begun += 1
            return self.set_trial(Trial(len(self.trials), replace(QUERY, folds=1)))
        if len(self.told) < self.begun:
            raise NotYet
        if len(self.trials) > self.begun:
            raise SpaceExhausted("nothing to go on with")
        self.budgets.append(budget)
        return self.set_trial(Trial(len(self.trials), QUERY))


def test_waiting_method_is_asked_again_only_after_the_next_tell() -> None:
    study = Promoting()
    done = Searched({(0, 1): "hangs"}, study=study, seconds=4, trials=2)
    assert done.reason == "time budget used"
    assert study.n_asks == 2 + 1  # for a free worker, once after trial 1 was told


def test_resuming_a_configuration_does_not_count_as_another_trial() -> None:
    done = Searched(study=Promoting(), trials=2)
    assert done.reason == "all trials are done"
    assert [t.query.folds for t in done.study.told] == [1, 1, None]
    assert [t.state for t in done.study.told] == ["stopped", "stopped", "complete"]
    assert done.study.budgets[0].trials_left == 0


def test_each_note_of_a_method_is_reported_once() -> None:
    study = WrittenStudy()
    study.optimizer.notes = ("dear", "small")
    assert Searched(study=study, trials=6).heard.notes == ["dear", "small"]
