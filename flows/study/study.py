"""A study that is open in this process: its optimizer, its trials and its lease.

Every event is in the ledger before it has consequences: a proposal before the trial starts, an
outcome before the next proposal. The next process that opens the study therefore finds the exact
state of the study. The output of trials is stored by this process, because workers on other
machines may have no access to the store.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from prefect_tune.flows.study.facts import StudyFacts, best_recheck
from prefect_tune.flows.study.lease import StudyClock, locked_study, study_lease
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import replayed, study_optimizer
from prefect_tune.flows.study.retention import PIN_SECONDS, Retention
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import to_document
from prefect_tune.optimizers.events import (
    Asked,
    Retried,
    Told,
    event_document,
)
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import algorithms_of, check_libraries
from prefect_tune.tasks.sandbox.output import NOTHING, Printed
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import session_versions

if TYPE_CHECKING:
    from prefect_tune.tasks.final.ensemble import ChoiceCosts
import json
import re

from prefect_tune.storage.keys import output_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.records import Records


def picks_single_trial(plan: StudyPlan, optimizer: Optimizer) -> bool:
    """Return whether the final model is simply the trial with the lowest loss.

    If the study has constraints, the ensemble rule `auto` means a single trial. A method that
    predicts losses chooses the trial itself.
    """
    best, declared = optimizer.history.incumbent, optimizer.method.ensemble
    if plan.options.ensemble is not None:
        return plan.options.ensemble.kind == "single" and optimizer.incumbent == best
    is_single = declared is None or (declared == "auto" and bool(plan.options.bounds))
    return is_single and best is not None and set(optimizer.weights) == {best.number}


class StudyFailed(RuntimeError):  # noqa: N818 - the name states the event
    """A study ended without a model: nothing was evaluated, or no trial could be refitted."""


class Study:
    """A study and its trials. To open a study, use `Study.opened`.

    Raises `BadInput` if the study does not exist, if this machine has another version of the space,
    or if libraries are missing.

    Attributes:
        plan: Plan of this session, by default the plan in the ledger.
        former_state: State of the study before it was opened; `interrupted` if its process was
            killed.
        facts: Result of the study so far, as stored in the ledger.
        seconds_before: Study time of earlier sessions.
        clock: Clock of the study time.
        choice_costs: Measured time of choosing an ensemble; None if not measured yet.
        start_seconds: Longest time, up to 10 s, that a trial of this session spent outside its
            evaluation, for example on the start of a process, which a stopped fit makes necessary.
    """

    def __init__(self, store: ArtifactStore, name: str, plan: StudyPlan | None = None) -> None:
        self.store, self.name = store, name
        self.ledger = Ledger(store.database, lease=study_lease(name))
        stored = self.ledger.study(name)
        if stored is None:
            raise BadInput(f"there is no study {name!r} in the store {store.address.url}")
        self.plan = plan or StudyPlan.from_stored(stored)
        self.problem = self.plan.problem
        self.former_state = "interrupted" if stored.state == "running" else stored.state
        self.former_flow_run = StudyPlan.from_stored(stored).flow_run_id
        self.facts = StudyFacts.from_stored(stored)
        space = self.plan.find_space()
        check_libraries(f"study {name!r}", algorithms_of(space))
        self.optimizer = study_optimizer(store, self.plan, space)
        self.trials, self.ask_seconds = replayed(self.ledger, name, self.optimizer)
        self.asking_seconds = sum(self.ask_seconds)
        self.choice_costs: ChoiceCosts | None = None
        self.start_seconds = 0.0
        self._retention: Retention | None = None
        self.seconds_before = stored.seconds
        self.clock = StudyClock(self.ledger, name, stored.seconds)

    @classmethod
    @contextmanager
    def opened(
        cls, store: ArtifactStore, name: str, plan: StudyPlan | None = None
    ) -> Iterator["Study"]:
        """Open a study, unless another process runs the study; requeue trials left running."""
        with locked_study(store, name):
            study = cls(store, name, plan)
            study.requeue_running()
            study.record(study.facts)
            yield study

    @property
    def n_begun(self) -> int:
        """Number of configurations started so far; a resumed configuration counts once."""
        return len(self.trials.configurations)

    @property
    def incumbent(self) -> Trial | None:
        """The trial chosen by the method or, later, by the re-evaluation of finalists."""
        best, finalists = self.optimizer.incumbent, self.facts.finalists
        is_rechecked = best is not None and finalists and finalists[0].trial == best.number
        if is_rechecked and picks_single_trial(self.plan, self.optimizer):
            return self.trials[best_recheck(finalists).trial]
        return best

    def seconds(self) -> float:
        """Return the study time so far, including the present session."""
        return self.clock.seconds()

    def seconds_left(self) -> float:
        """Return the time left in the budget; infinity if the study has no time budget."""
        seconds = self.plan.options.budget
        return inf if seconds is None else seconds - self.seconds()

    def next_waiting(self, numbers: Collection[int] | None = None) -> Trial | None:
        """Return the first waiting trial, restricted to `numbers` if given."""
        waiting = (t for t in self.trials.waiting if numbers is None or t.number in numbers)
        return next(waiting, None)

    def ask(self, budget: Budget) -> Trial:
        """Ask the method for a new trial. The method uses one thread, to leave cores to the trials.

        Raises `NotYet` if the method must first wait for outcomes, and `SpaceExhausted` if the
        method has nothing left to propose.
        """
        started = perf_counter()
        with one_thread():
            query = self.optimizer.ask(budget)
        seconds = perf_counter() - started
        self.ask_seconds.append(seconds)
        self.asking_seconds += seconds
        trial = Trial(len(self.trials), query)
        event = Asked(trial.number, query, budget)
        memo, reason = self.optimizer.memo, self.optimizer.reason
        why = {} if reason is None else {"reason": to_document(reason)}
        body = {**event_document(event), **why, "seconds": seconds}
        self.ledger.append(self.name, event.kind, body, trial.to_json(), memo=memo)
        self.trials.keep(trial)
        return trial

    def set_trial(self, trial: Trial) -> Trial:
        """Record that a trial was started or requeued, without telling the method."""
        self.ledger.set_trial(self.name, trial.to_json())
        self.trials.keep(trial)
        return trial

    def requeue_running(self) -> None:
        """Requeue all running trials. Call this method only when no worker is running a trial.

        The running trials are read from the ledger, because an interrupt may have come before this
        process noted a start in memory.
        """
        space = self.problem.find_space()
        for document in self.ledger.trials(self.name, TrialState.RUNNING):
            self.set_trial(Trial.from_json(document, space).waiting())

    def tell(self, trial: Trial, task_run_id: str = "", printed: Printed = NOTHING) -> None:
        """Record the outcome, task run and output of a trial, and tell the optimizer."""
        self.optimizer.tell(trial)  # first, so that the ledger gets no rejected outcome
        output_bytes = keep_output(self.store.records, self.name, trial, printed)
        self.trials.keep(trial)
        facts = self._with_leaders(self.facts)
        body = {
            **trial.to_json(),
            "elapsed_seconds": self.seconds(),
            "incumbent": facts.best_trial,
            "output_bytes": output_bytes,
        }
        if task_run_id:
            body["task_run_id"] = task_run_id
        result = None if facts == self.facts else to_document(facts)
        self.ledger.append(self.name, Told.kind, body, trial.to_json(), result=result)
        if facts.best_trial != self.facts.best_trial:
            self._pin_incumbent()
        self.facts = facts
        if self._retention is not None:
            self._retention.tell(trial, self.incumbent)

    def retry(self, number: int) -> None:
        """Requeue a failed trial."""
        trial, event = self.trials[number].retried(), Retried(number)
        self.optimizer.retry(number)
        self.trials.keep(trial)
        self.ledger.append(self.name, event.kind, event_document(event), trial.to_json())

    def set_plan(self, plan: StudyPlan, notes: Iterable[object] = ()) -> None:
        """Record the plan and package versions of this session, and notes of the first session."""
        self.plan = plan
        self.ledger.update_study(self.name, settings=plan.to_json())
        algorithms = algorithms_of(self.optimizer.space)
        required = (package for algorithm in algorithms for package in algorithm.requires)
        first = self.facts.notes or tuple(masked(str(note)) for note in notes)
        self.record(replace(self.facts, versions=session_versions(required), notes=first))

    def record(self, facts: StudyFacts) -> None:
        """Record the result of the study so far, with the current best trials."""
        self.facts = facts  # the best trials depend on these finalists
        self.facts = self._with_leaders(facts)
        self.ledger.update_study(self.name, result=to_document(self.facts))

    def set_state(self, state: str) -> None:
        """Record the state of the study: running, complete, interrupted or failed."""
        self.ledger.update_study(self.name, state=state)

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Pin the incumbent's step results, and resumable models, during the `with` block."""
        optimizer, rule = self.optimizer, self.plan.options.ensemble
        kind = rule.kind if rule else optimizer.method.ensemble
        self._pin_incumbent()
        self._retention = Retention(
            self.store,
            self.name,
            optimizer.history.violation,
            model_step=optimizer.space.steps[-1].name if optimizer.resumes_configurations else None,
            uses_all=kind in {"agnostic", "auto"} or optimizer.bootstraps is not None,
        )
        self._retention.begin(self.trials.values(), self.incumbent)
        try:
            yield
            self.record(self.facts)  # the last proposal may have changed the method's predictions
        finally:
            self._retention.release()
            self.store.index.pins.release(study_lease(self.name))

    def _with_leaders(self, facts: StudyFacts) -> StudyFacts:
        """Return facts with the incumbent or with the trial nearest to the constraints."""
        best = self.incumbent
        nearest = self.optimizer.history.nearest_infeasible if best is None else None
        return replace(
            facts,
            best_trial=None if best is None else best.number,
            nearest_trial=None if nearest is None else nearest.number,
        )

    def _pin_incumbent(self) -> None:
        if self.incumbent is not None and self.incumbent.evaluation is not None:
            keys = [step.key for step in self.incumbent.evaluation.steps]
            self.store.index.pins.set(keys, study_lease(self.name), PIN_SECONDS)


_MOST_LINES, _MOST_CHARACTERS = 8, 1_500
"""Maximum numbers of lines and characters that a failure quotes from the end of an output."""
_MOST_BYTES = 2_000_000
"""Maximum size of a stored output in bytes. In a record, each byte that is not text takes six
bytes."""


def keep_output(records: Records, study: str, trial: Trial, printed: Printed) -> int:
    """Store the output of a trial's latest attempt; return its size in bytes."""
    record, text = output_record(study, trial.number), _text(printed)
    if text:
        size = len(json.dumps(text))
        is_long = size > _MOST_BYTES
        text = text[-len(text) * _MOST_BYTES // size :] if is_long else text
        parts = {"output": {"text": text, "is_cut": printed.is_cut or is_long}}
        records.put(record, parts, study, private=True)
    elif trial.attempts > 1:
        records.release(study, [record])
    return len(text.encode())


def last_lines(printed: Printed) -> str:
    """Return the last non-empty lines of printed output, cut at the start if they are too long."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", _text(printed)[-100_000:])]
    end = "\n".join([line for line in lines if line][-_MOST_LINES:])
    return f"…{end[-_MOST_CHARACTERS:]}" if len(end) > _MOST_CHARACTERS else end


def _text(printed: Printed) -> str:
    return masked(printed.data.decode(errors="replace"))
