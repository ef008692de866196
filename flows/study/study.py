"""A study open in this process: its optimizer, its trials, and the lease that makes it ours.

Everything that happens is in the ledger before it has consequences, so that whoever opens the study
next finds it as it was: an ask before its trial starts, an outcome before the next ask.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from time import monotonic, perf_counter
from typing import Any

from prefect_tune.flows.study.lease import held_study, study_lease
from prefect_tune.flows.units import counted
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.events import Asked, ConstraintsMeasured, Retried, Told, replay
from prefect_tune.optimizers.events import Event as OptimizerEvent
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.registry import make_optimizer
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import TEST, load_split
from prefect_tune.tasks.objective.quantity import QuantityBound
from prefect_tune.tasks.problem import Problem

__all__ = ["Study", "StudyFailed", "read_trials"]

_EVENTS: Mapping[str, type[OptimizerEvent]] = {
    event.kind: event for event in (Asked, Told, Retried, ConstraintsMeasured)
}
_PIN_SECONDS = 86_400.0
"""For so long at most the incumbent's artifacts stay when a session is killed."""
_BEAT_SECONDS = 5.0
"""At most this much of a session's time is forgotten when its process is killed."""


class StudyFailed(RuntimeError):  # noqa: N818 - it says what happened
    """A study ended without a single completed trial."""


class Study:
    """A study and its trials. Open one with `Study.opened`.

    Args:
        store: Where its ledger, artifacts and records are.
        name: Its name; it must be in the ledger.
        settings: What it has from now on; what the ledger has if left out.

    Attributes:
        problem: What it is about.
        optimizer: The method, with all that it was told.
        trials: All trials by number, with where they stand.
        ask_seconds: Seconds that all asks have taken.
        settings: What it has now.
        bounds: Constraints, each with the quantity that it bounds.
        result: What came of it so far.
    """

    def __init__(
        self, store: ArtifactStore, name: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.store, self.name = store, name
        self.ledger = Ledger(store.database, lease=study_lease(name))
        stored = self.ledger.study(name)
        if stored is None:
            raise BadInput(f"there is no study {name!r} in the store {store.address.url}")
        self.stored = stored
        self.result = dict(stored.result)
        self.problem = Problem.from_json(stored.problem)
        self.space = self.problem.find_space()
        if self.space.digest != self.problem.space_digest:
            raise BadInput(
                f"study {name!r} searches a space {self.space.name!r} that this version of "
                "prefect-tune knows otherwise; continue it with the version that made it"
            )
        self.settings = dict(stored.settings if settings is None else settings)
        self.bounds = tuple(
            QuantityBound.from_json(document) for document in self.settings.get("constraint") or ()
        )
        self.optimizer = self._replayed()
        self.trials = {trial.number: trial for trial in read_trials(self.ledger, name, self.space)}
        self._session: int | None = None
        self._session_started = 0.0

    @classmethod
    @contextmanager
    def opened(
        cls, store: ArtifactStore, name: str, settings: Mapping[str, Any] | None = None
    ) -> Iterator["Study"]:
        """Hold a study for this process alone; trials that another one left running wait again.

        Raises:
            BadInput: If there is no such study, or another process holds it.
        """
        with held_study(store, name):
            study = cls(store, name, settings)
            study.put_back_running()
            yield study

    @property
    def seconds(self) -> float:
        """Time spent on it, that of this session included."""
        spent = self.stored.seconds
        return spent + (monotonic() - self._session_started if self._session is not None else 0.0)

    @property
    def n_asked(self) -> int:
        """Trials asked for so far."""
        return len(self.trials)

    @property
    def incumbent(self) -> Trial | None:
        """The best trial so far."""
        return self.optimizer.history.incumbent

    def next_waiting(self, only: Collection[int] | None = None) -> Trial | None:
        """The first trial that waits to be started, of some numbers or of all."""
        waiting = (
            t
            for t in self.trials.values()
            if t.state == TrialState.WAITING and (only is None or t.number in only)
        )
        return min(waiting, key=lambda t: t.number, default=None)

    def ask(self, budget: Budget) -> Trial:
        """A new trial, waiting.

        Raises:
            SpaceExhausted: If nothing is left to ask for.
        """
        started = perf_counter()
        query = self.optimizer.ask(budget)
        seconds = perf_counter() - started
        self.ask_seconds += seconds
        trial = Trial(self.n_asked, query)
        event = Asked(trial.number, query, budget, self.optimizer.memo)
        body = {**event.to_json(), "seconds": seconds}
        self.ledger.append(self.name, event.kind, body, trial.to_json())
        self.trials[trial.number] = trial
        return trial

    def start(self, trial: Trial) -> Trial:
        """Note that a trial is started, once more."""
        return self._set(trial.started())

    def put_back(self, trial: Trial) -> Trial:
        """Note that a trial was cut and waits for another start; nothing is told."""
        return self._set(trial.waiting())

    def put_back_running(self) -> None:
        """Put back all that the ledger has as running; for when none is."""
        for trial in read_trials(self.ledger, self.name, self.space):
            if trial.state == TrialState.RUNNING:
                self.put_back(trial)

    def tell(self, trial: Trial) -> None:
        """Note what came of a trial, and tell the optimizer."""
        self.optimizer.tell(trial)  # first: what it refuses must not be in the ledger
        body = {**trial.to_json(), "elapsed_seconds": self.seconds}
        self.ledger.append(self.name, Told.kind, body, trial.to_json())
        self.trials[trial.number] = trial
        if self.incumbent == trial:
            self._pin_incumbent()

    def retry(self, number: int) -> None:
        """Have a failed trial wait for another start."""
        trial = self.trials[number].waiting()
        self.ledger.append(self.name, Retried.kind, Retried(number).to_json(), trial.to_json())
        self.optimizer.retry(number)
        self.trials[number] = trial

    def measure(self, number: int, constraints: Mapping[str, float]) -> None:
        """Note quantities of a complete trial that were measured after it was told."""
        self.optimizer.measure(number, constraints)
        trial = self.trials[number].measured(constraints)
        event = ConstraintsMeasured(number, constraints)
        self.ledger.append(self.name, event.kind, event.to_json(), trial.to_json())
        self.trials[number] = trial

    def without_quantities(self) -> list[Trial]:
        """Complete trials of which not all that is limited was measured."""
        texts = {b.quantity.text for b in self.bounds}
        return [
            t
            for t in self.trials.values()
            if t.state == TrialState.COMPLETE
            and t.evaluation is not None
            and not texts <= set(t.evaluation.constraints)
        ]

    def set_result(self, **values: Any) -> None:
        """Note what came of the study, besides what was noted before."""
        self.result |= values
        self.ledger.update_study(self.name, result=self.result)

    def set_state(self, state: str) -> None:
        """Note where the study stands: running, complete, interrupted or failed."""
        self.ledger.update_study(self.name, state=state)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Count the time of the body as the study's."""
        self._session = self.ledger.start_session(self.name)
        self._session_started = monotonic()
        self._pin_incumbent()
        stop = Event()
        beat = Thread(target=self._beat, args=(self._session, stop), daemon=True, name="session")
        beat.start()
        try:
            yield
        finally:
            stop.set()
            beat.join()
            self.ledger.beat(self._session, monotonic() - self._session_started)
            self.store.index.pins.release(study_lease(self.name))

    def most_frequent_failure(self) -> str:
        """One line on why trials failed."""
        reasons: dict[str, list[str]] = {}
        for trial in self.trials.values():
            if (failure := trial.failure) is not None:
                said = f"{failure.step}: {failure.message}" if failure.step else failure.message
                # The same failure with other values is the same reason.
                reasons.setdefault(re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", said), []).append(said)
        if not reasons:
            return "no trial was finished"
        alike = max(reasons.values(), key=len)
        n_failed = sum(map(len, reasons.values()))
        return (
            f"{counted(n_failed, 'trial')} failed, {len(alike)} of them with: {alike[0]}; retry "
            "runs them again"
        )

    def nearest_miss(self) -> str:
        """One line on the limits that no trial keeps; empty where one does, or none completed."""
        history = self.optimizer.history
        nearest = history.nearest_infeasible
        if history.incumbent is not None or nearest is None or nearest.evaluation is None:
            return ""
        measured = nearest.evaluation.constraints
        above = [
            f"{c.name} {measured[c.name]:.4g} where {c.bound:g} is allowed"
            if c.name in measured
            else f"{c.name} not measured"
            for c in history.constraints
            if c.excess(measured) > 0
        ]
        return (
            f"none of {counted(len(history.complete), 'completed trial')} keeps within all limits; "
            f"trial {nearest.number} is nearest, with {'; '.join(above)}"
        )

    def _pin_incumbent(self) -> None:
        """Have what the incumbent was made of stay in the cache."""
        if self.incumbent is not None and self.incumbent.evaluation is not None:
            keys = [step.key for step in self.incumbent.evaluation.steps]
            self.store.index.pins.set(keys, study_lease(self.name), _PIN_SECONDS)

    def _set(self, trial: Trial) -> Trial:
        self.ledger.set_trial(self.name, trial.to_json())
        self.trials[trial.number] = trial
        return trial

    def _beat(self, session: int, stop: Event) -> None:
        while not stop.wait(_BEAT_SECONDS):
            self.ledger.beat(session, monotonic() - self._session_started)

    def _replayed(self) -> Optimizer:
        settings = self.stored.settings
        metric = self.problem.find_metric()
        dataset = load_dataset(self.store, self.problem.dataset)
        training = load_split(self.store, self.problem.split).fold != TEST
        optimizer = make_optimizer(
            settings["method"],
            self.space,
            self.problem.seed,
            replace(
                metric.objective(dataset.y[training], len(dataset.classes)),
                constraints=tuple(b.constraint for b in self.bounds),
            ),
            settings["option"],
        )
        events = self.ledger.events(self.name)
        self.ask_seconds = sum(e.body["seconds"] for e in events if e.kind == Asked.kind)
        replay(optimizer, (self._event(e.kind, e.body) for e in events))
        return optimizer

    def _event(self, kind: str, body: Mapping[str, Any]) -> OptimizerEvent:
        return _EVENTS[kind].from_json(body, self.space)


def read_trials(ledger: Ledger, study: str, space: Any) -> list[Trial]:
    """All trials of a study, by number, as the ledger has them."""
    return [Trial.from_json(document, space) for document in ledger.trials(study)]
