"""The search loop: asks the method for trials, starts the trials, and tells the outcomes.

`TimeLimit` predicts how long the next trial may take.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf

from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.running.run_requests import RunRequests
from prefect_tune.flows.study.progress import Observer, Progress, RunningTrial
from prefect_tune.flows.study.study import Study, last_lines
from prefect_tune.flows.wording.text import format_seconds
from prefect_tune.flows.workers.dask_trials import DIED, DaskTrials, Ended
from prefect_tune.flows.workers.pool import NoWorkers
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.optimizer import NotYet
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.trial.evaluate import TrialOutcome

_DEVIATIONS = 3.0
"""Number of standard deviations above the predicted median of ln seconds."""
_SHORTEST_SECONDS, _LONGEST_FLOOR_SECONDS = 5.0, 30.0
_FLOOR_SHARE = 0.25
"""Smallest limit as a share of the remaining time, within the two bounds above."""
_TIMES_MOST, _TIMES_LOOK = 2.5, 1.5
_DAY_SECONDS = 86_400.0
_PILOT_ROWS = 10_000
"""Minimum number of training rows for a pilot, which takes a fraction of a second."""


class TimeLimit:
    """Time limits of trials, based on predicted costs unless the user has set a limit.

    The first trial of a model (an algorithm of the last step) may use a share of the remaining
    worker-seconds (see `Costs.share_seconds`). The limit of later trials is the predicted median
    cost plus three standard deviations. Each limit is at least a quarter of the remaining time. The
    minimum limit itself stays between 5 and 30 s. For a trial on a subset of the rows, the minimum
    limit is at most 1.5 times the allowed seconds, and never below 5 s. Without a time budget, no
    limit exceeds `most_seconds`. A rerun trial gets 2.5 times `most_seconds`.
    """

    def __init__(self, costs: Costs, most_seconds: float, *, is_adaptive: bool) -> None:
        self._costs, self._most = costs, most_seconds
        self.of_user = None if is_adaptive else most_seconds
        """Limit set by the user; None if there is none."""
        self.lifted: int | None = None
        """Number of the trial that may take a day; None if there is none."""

    def seconds(self, trial: Trial, budget: Budget) -> float:
        """Return the time limit of a trial that starts now."""
        if trial.number == self.lifted:
            return max(self._most, _DAY_SECONDS)
        if self.of_user is not None:
            return self.of_user
        if trial.attempts:
            return _TIMES_MOST * self._most
        query, left = trial.query, budget.seconds_left
        most = self._most if left is None else inf
        floor = _LONGEST_FLOOR_SECONDS if left is None else _FLOOR_SHARE * left / budget.n_workers
        if query.subset < 1 and left is not None:
            floor = min(floor, _TIMES_LOOK * self._costs.allowed_seconds(query, budget))
        limits = [min(max(floor, _SHORTEST_SECONDS), _LONGEST_FLOOR_SECONDS)]
        is_first = self._costs.model_of(query.configuration) not in self._costs.seen
        share = self._costs.share_seconds(query.configuration, budget)
        if is_first:
            limits.append(share)
        elif query.epochs is not None:  # training times in epochs are not predicted
            limits.append(share / budget.n_workers)
        if self._costs.is_known(query.configuration):
            limits.append(self._costs.seconds(query, _DEVIATIONS))
        return min(most, max(limits))

    def training_seconds(self, trial: Trial, budget: Budget, limit: float) -> float:
        """Return the time after which boosted trees with early stopping get no more rounds.

        Until then, a trial may use a third of the time left or, if this is more, 1.5 times the
        predicted cost.
        """
        if budget.seconds_left is None:
            return _TRAINING_SHARE * limit
        left = budget.seconds_left / budget.n_workers
        most = max(left / 3, _DUE_TIMES * self._costs.seconds(trial.query))
        return min(_TRAINING_SHARE * min(limit, left), most)

    def pilot_seconds(self, trial: Trial, budget: Budget) -> float | None:
        """Return the highest pilot prediction with which a trial may start; None without a pilot.

        On large data, a pilot on few rows precedes the first trial of a model or of another
        potentially slow algorithm. Returns None if no pilot is needed: for small data, for
        a rerun, and for a trial without a limit.
        """
        is_small = self._costs.rows(trial.query) < _PILOT_ROWS
        is_again = trial.attempts or trial.number == self.lifted
        if is_small or is_again or not self._costs.has_unknown(trial.query.configuration):
            return None
        allowed = self._costs.allowed_seconds(trial.query, budget)
        return None if allowed == inf else allowed


_MOST_DEATHS = 2
"""Worker deaths after which a trial fails; the second death is attributed to the trial."""
_TIME_USED = "time budget used"
_TICK_SECONDS = 0.5
_TRAINING_SHARE = 0.85
"""Share of a trial's time that boosted trees with early stopping may use for training."""
_MOST_START_SECONDS = 10.0
"""Largest start of a trial that is expected again; a longer start waited for a store or worker."""
_MOST_RESERVED = 0.25
"""Largest share of the budget that is reserved for the final model."""
_MOST_BROKEN, _LATE_SECONDS = 3, 30.0
"""Failures that end an overdue search without a result, and the time such a search still has.
"""
_MOST_UNENDED = 10
"""Number of timeouts without any result after which the cheapest trial runs without a limit."""
_PASSED_OVER = "not started: its algorithm has exceeded the limit, and other algorithms are untried"
"""Message of a trial that fails in favor of another algorithm, at most `_MOST_UNENDED` times."""
_DUE_TIMES = 1.5
"""Multiple of the predicted cost; with no more time left than this, the limit is also lifted."""
_CUT_TIMES = 2.0
"""Smallest predicted cost of a trial that timed out, as a multiple of its time so far."""
_LAST_ASKS = 10
"""Number of recent proposals whose durations are passed to the method one by one."""


def progress_of(
    study: Study,
    stop_rule: StopRule,
    running: tuple[RunningTrial, ...] = (),
    *,
    phase: str = "",
) -> Progress:
    """Return the present progress of a study."""
    return Progress(
        study=study.name,
        metric=study.plan.metric,
        totals=replace(study.trials.totals),
        trials_total=stop_rule.trials,
        seconds=study.seconds(),
        seconds_total=stop_rule.seconds,
        incumbent=study.incumbent,
        n_begun=study.n_begun,
        running=running,
        phase=phase,
        whole=study.plan.whole,
    )


@dataclass
class StudySearch:
    """One search in a study.

    Attributes:
        numbers: Trials to which the search is restricted, by trial number; None if the search is
            not restricted.
        reserve: Function that returns the seconds to reserve for work after the search. The
            function's argument is the largest possible reserve, a quarter of the budget.
        requests: Requests to end the run. After a request, running trials are finished, but no
            further trial is started.
    """

    study: Study
    running: DaskTrials
    stop_rule: StopRule
    pace: ServerPace
    observer: Observer
    _: KW_ONLY
    numbers: Collection[int] | None = None
    reserve: Callable[[float], float] = lambda _: 0.0
    requests: RunRequests = field(default_factory=RunRequests)
    waits: bool = field(default=False, init=False)
    n_passed_over: int = field(default=0, init=False)
    reported: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        plan = self.study.plan
        self.time_limit = TimeLimit(
            self.study.optimizer.costs,
            plan.trial_limits().seconds,
            is_adaptive=plan.options.trial_timeout is None,
        )

    def run(self) -> str:
        """Run trials until the search and its last trials end; return the reason for the end.

        If time is up or the flow is interrupted, running trials are stopped and requeued for the
        next session of the study. Raises `NoWorkers` if no usable worker is left, or if no worker
        could be started for a long time.
        """
        reason = ""
        try:
            while True:
                if self.requests.is_ended or not self.running.n_running:
                    self._obey()
                reason = reason or self._start_trials()
                if reason and not self.running.n_running:
                    break
                for ended in self.running.collect(_TICK_SECONDS):
                    self._settle(ended)
                if reason and self.study.next_waiting(self.numbers) is not None:
                    reason = ""  # a worker has died, and its trial was requeued
                self.observer.tick(self._progress())
                if self._is_spent():
                    for trial in self.running.cut():
                        self.study.set_trial(trial.waiting())
                    reason = _TIME_USED
                    break
            self._obey()
        except BaseException:
            self.running.cut()
            self.study.requeue_running()
            raise
        return reason

    def _obey(self) -> None:
        """Raise `Pause` or `Abort` if a person has suspended or ended the run in Prefect."""
        if not self.requests.may_ask:
            self.observer.note("ended in Prefect")
            self.requests.obey()

    def _start_trials(self) -> str:
        """Start trials in all free slots; return the reason to end the search, or ""."""
        begun, reason = list[Trial](), ""
        while self.requests.may_ask and self.running.has_room(len(begun)):
            is_late = begun and self._seconds_left() <= 0  # `begun` may have the first result
            if is_late or not self.pace.may_submit(self.running.n_task_runs):
                break
            trial, reason = self._next()
            if trial is None:
                break
            if self._is_passed_over(trial):
                self.n_passed_over += 1
                failure = Failure(FailureKind.TIMEOUT, _PASSED_OVER)
                self._settle(Ended(trial, TrialOutcome(failure=failure)))
                continue
            self.study.set_trial(trial.started())
            begun.append(trial)
        # Trials are submitted after all are known, because they share the threads of free slots.
        while begun:
            trial, budget = begun.pop(0), self._budget()
            limit = self.time_limit.seconds(trial, budget)
            n_folds = trial.query.folds or self.study.plan.whole.folds or 1
            self.running.submit(
                trial.started(),
                self.pace.report,
                limit,
                pilot_seconds=self.time_limit.pilot_seconds(trial, budget),
                n_following=len(begun),
                training_seconds=self.time_limit.training_seconds(trial, budget, limit) / n_folds,
            )
        return reason

    def _is_passed_over(self, trial: Trial) -> bool:
        """Return whether to skip a trial because all trials of its algorithm exceeded limits.

        A trial on fewer rows is not skipped if its predicted seconds are within the allowed time.
        """
        costs, query = self.study.optimizer.costs, trial.query
        if self._has_result or trial.attempts or self.n_passed_over == _MOST_UNENDED:
            return False
        is_short = costs.seconds(query) <= costs.allowed_seconds(query, self._budget())
        if query.subset < 1 and costs.is_known(query.configuration) and is_short:
            return False
        late = {costs.model_of(other.query.configuration) for other in self._unended()}
        is_late = costs.model_of(trial.query.configuration) in late
        return is_late and self.numbers is None and not costs.models <= costs.seen

    def _next(self) -> tuple[Trial | None, str]:
        """Return the next trial or the reason to end; return neither if the method must wait."""
        if self._is_spent():
            return None, _TIME_USED
        if self._seconds_left() <= 0 and self.running.n_running:
            return None, ""  # a running trial will be the first result
        if (waiting := self.study.next_waiting(self.numbers)) is not None:
            return waiting, ""
        if self.numbers is not None:
            return None, "all trials were rerun"
        if self.waits:
            return None, ""
        is_begun = self.stop_rule.trials is not None and self._trials_left() == 0
        if is_begun and not self.study.optimizer.resumes_configurations:
            return None, "all trials are done"
        try:
            trial = self.study.ask(self._budget())
        except NotYet:
            self.waits = True
            return None, ""
        except SpaceExhausted as end:
            return None, "all trials are done" if is_begun else str(end)
        for note in self.study.optimizer.notes:
            if note not in self.reported:
                self.reported.add(note)
                self.observer.note(note)
        return trial, ""

    def _trials_left(self) -> int | None:
        n_trials = self.stop_rule.trials
        return None if n_trials is None else max(n_trials - self.study.n_begun, 0)

    def _budget(self) -> Budget:
        totals = self.study.trials.totals
        left = self._seconds_left()
        if left <= 0:  # a study without a result, see `_is_spent`
            left = _LATE_SECONDS
        return Budget(
            trials_spent=totals.told,
            trials_left=self._trials_left(),
            seconds_spent=totals.cost_seconds,
            seconds_left=None if left == inf else left * self.running.n_slots,
            ask_seconds=self.study.asking_seconds,
            n_workers=self.running.n_slots,
            last_ask_seconds=tuple(self.study.ask_seconds[-_LAST_ASKS:]),
            trial_seconds=self.time_limit.of_user,
        )

    def _seconds_left(self) -> float:
        if (seconds := self.stop_rule.seconds) is None:
            return inf
        left, max_reserved = seconds - self.study.seconds(), _MOST_RESERVED * seconds
        if left > 2 * max_reserved:
            return left
        return left - self.reserve(max_reserved) - min(self.study.start_seconds, max_reserved)

    def _is_spent(self) -> bool:
        """Return whether time is up. A study without a result may wait longer for a result."""
        if self._seconds_left() > 0:
            return False
        if self._has_result:
            return True
        if (lifted := self.time_limit.lifted) is not None:
            return self.study.trials[lifted].failure is not None
        n_failed = self.study.trials.totals.failed
        return n_failed >= _MOST_BROKEN and not self._unended()

    def _progress(self) -> Progress:
        running, reason = self.running.running_trials, self.study.optimizer.reason
        phase = "" if reason is None else reason.phase
        return progress_of(self.study, self.stop_rule, running, phase=phase)

    def _settle(self, ended: Ended) -> None:
        """Tell the method the outcome of a trial, or requeue a trial whose worker was lost."""
        trial, outcome = ended.trial, ended.outcome
        if outcome is None:
            if trial.deaths + 1 < _MOST_DEATHS:
                self.study.set_trial(trial.died())
                self.observer.note(f"trial {trial.number} was requeued: {DIED}")
                return
            message = f"{DIED} in {_MOST_DEATHS} attempts"
            failure = Failure(FailureKind.CRASHED, message, cost_seconds=ended.seconds)
            trial = trial.died().failed(failure)
        elif outcome.lost:
            if outcome.is_lost_to_all:
                with suppress(StoreLost):  # the ledger may be on the same full disk
                    self.study.set_trial(trial.waiting())
                raise StoreLost(outcome.lost)
            self.study.set_trial(trial.waiting())
            if self.running.bench(outcome.worker) == 0:
                raise NoWorkers(outcome.lost)
            self.observer.note(
                f"trial {trial.number} was requeued, and worker {outcome.worker} is no longer "
                f"used: {outcome.lost}"
            )
            return
        elif outcome.evaluation is not None:
            trial = trial.completed(outcome.evaluation)
        elif outcome.failure is not None:
            trial = trial.failed(outcome.failure)
        if trial.failure is not None:
            output = last_lines(ended.printed)
            trial = trial.failed(replace(trial.failure, output=output))
        start_seconds = min(ended.seconds - trial.cost_seconds, _MOST_START_SECONDS)
        self.study.start_seconds = max(self.study.start_seconds, start_seconds)
        self.study.tell(trial, ended.task_run_id, ended.printed)
        self.waits = False
        self.observer.ended(trial, self._progress())
        self._run_cheapest()

    def _run_cheapest(self) -> None:
        """Rerun the cheapest trial without a limit if trials keep exceeding the time limit.

        The limit is lifted after ten timeouts, or after all models have been tried. After two
        timeouts, the limit is also lifted if no new trial may start, or if the budget would soon be
        too short for the cheapest trial.
        """
        if self.numbers is not None or self.time_limit.lifted is not None or self._has_result:
            return
        seconds, costs = dict[int, float](), self.study.optimizer.costs
        for trial in self._unended():
            seconds[trial.number] = costs.seconds(trial.query)
            if trial.failure is not None and not trial.failure.is_unstarted:
                took = _CUT_TIMES * trial.failure.cost_seconds
                seconds[trial.number] = max(seconds[trial.number], took)
        if not seconds:
            return
        cheapest = min(seconds, key=lambda number: (seconds[number], number))
        is_last = self._trials_left() == 0 or self._seconds_left() <= 0
        is_over = is_last and not self.running.n_running
        is_due = self._seconds_left() <= _DUE_TIMES * seconds[cheapest]
        is_tried = len(seconds) >= _MOST_UNENDED or costs.models <= costs.seen
        if not (is_tried or (len(seconds) > 1 and (is_over or is_due))):
            return
        self.observer.note(
            f"no trial finishes within its time limit, so the cheapest, trial {cheapest}, now runs "
            f"without a limit and should take {format_seconds(seconds[cheapest])}"
        )
        self.time_limit.lifted = cheapest
        self.study.retry(cheapest)

    @property
    def _has_result(self) -> bool:
        totals = self.study.trials.totals
        return totals.told > totals.failed

    def _unended(self) -> list[Trial]:
        """Return trials that exceeded their time limit, or were predicted to exceed the limit."""
        failed = (t for t in self.study.trials.values() if t.failure is not None and t.attempts)
        return [t for t in failed if t.failure and t.failure.kind == FailureKind.TIMEOUT]
