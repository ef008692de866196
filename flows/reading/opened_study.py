"""A study opened for reading: plan, trials and events. The module is cheap to import."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.lease import is_being_run
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.documents import UnknownName, value_of
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.series import SeriesTable
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:  # for types only: showing trials needs no space
    from prefect_tune.optimizers.space.space import Space
from collections.abc import Sequence
from datetime import UTC, datetime

from prefect_tune.optimizers.documents import range_text, to_document, value_document


@dataclass(frozen=True, slots=True)
class Moments:
    """Times of a trial, and the size of its output, from the events of the study.

    Attributes:
        queued: Time at which the trial was proposed or last requeued.
        ended: Time at which the latest attempt ended; None if the trial has not ended.
        output_bytes: Size of the stored output; None if the trial has not ended.
    """

    asked: float
    queued: float
    ended: float | None = None
    reason: Mapping[str, Any] | None = None
    task_run_id: str | None = None
    output_bytes: int | None = None

    def span(self, cost_seconds: float) -> tuple[float, float | None]:
        """Return the start and end of the trial's latest attempt.

        If the trial has ended, the start is `cost_seconds` before the end, so waiting and earlier
        attempts are excluded. If the trial has not ended, the start is `queued`.
        """
        if self.ended is None:
            return self.queued, None
        return self.ended - cost_seconds, self.ended


class OpenedStudy:
    """A study in a store, opened for reading.

    Attributes:
        row: Row of the study in the ledger.
    """

    def __init__(self, store: ArtifactStore, row: StoredStudy) -> None:
        self.store, self.row, self.name = store, row, row.name
        self.ledger = Ledger(store.database)

    @cached_property
    def plan(self) -> StudyPlan:
        """Plan of the study. Raises `DatabaseDamaged` if the stored plan is damaged."""
        return StudyPlan.from_stored(self.row)

    @cached_property
    def facts(self) -> StudyFacts:
        """Result of the study so far. Raises `DatabaseDamaged` if the stored result is damaged."""
        return StudyFacts.from_stored(self.row)

    @property
    def state(self) -> str:
        """State of the study; interrupted if the process of a running study is dead."""
        is_cut = self.row.state == "running" and not is_being_run(self.store, self.name)
        return "interrupted" if is_cut else self.row.state

    def trials(self) -> Iterator[TrialView]:
        """Yield all trials by number, in bounded memory; needs `with documents_of(...)`."""
        return map(TrialView, self.ledger.each_trial(self.name))

    def trial(self, number: int) -> TrialView:
        """Return a trial; raise `BadInput` if missing, and `DatabaseDamaged` if damaged."""
        with documents_of(self.name):
            if (document := self.ledger.trial(self.name, number)) is not None:
                return TrialView(document).checked()
            last = max((trial.number for trial in self.trials()), default=None)
        has = "has no trials yet" if last is None else f"has trials 0 to {last}"
        raise BadInput(f"study {self.name} {has}", option="trial", value=number)

    def failed(self) -> list[int]:
        """Return the trial numbers of all failed trials."""
        return [trial["number"] for trial in self.ledger.trials(self.name, TrialState.FAILED)]

    def moments(self, number: int | None = None) -> dict[int, Moments]:
        """Return the `Moments` of all trials by number, or only of the trial `number`."""
        found: dict[int, Moments] = {}
        for event in self.ledger.each_event(self.name, number):
            n, body = event.body.get("number", -1), event.body  # the event of a prior has no trial
            if event.kind == "ask":
                found[n] = Moments(event.at, event.at, reason=body.get("reason"))
            elif event.kind == "tell" and n in found:
                run, size = body.get("task_run_id") or None, body.get("output_bytes")
                found[n] = replace(found[n], ended=event.at, task_run_id=run, output_bytes=size)
            elif event.kind == "retry" and n in found:
                found[n] = Moments(found[n].asked, event.at, reason=found[n].reason)
        return found

    def space_if_known(self) -> "Space | None":
        """Return the space of the study; None if the space is not available on this machine."""
        try:
            return self.plan.find_space()
        except Exception:  # any class: an error in the user's file, or a missing package
            return None


def study_or_newest(store: ArtifactStore, name: str) -> OpenedStudy:
    """Open a study, or the newest study of a series. May raise `UnknownName`."""
    if Ledger(store.database).study(name) is None:
        series = SeriesTable(store.database).find(name)
        if series is not None:
            return open_study(store, series.runs[-1].study)
    return open_study(store, name)


def open_study(store: ArtifactStore, name: str) -> OpenedStudy:
    """Open a study by name; raise `UnknownName` if the study does not exist."""
    ledger = Ledger(store.database)
    row = ledger.study(name)
    if row is None:
        raise UnknownName(f"study in the store {store.address.url}:", name, ledger.study_names())
    return OpenedStudy(store, row)


def params_of(configuration: Mapping[str, Any], space: "Space | None" = None) -> dict[str, Any]:
    """Return a configuration as flat parameters in scikit-learn's style.

    If `space` is given, values have the types of the space. Without a space, values that JSON
    cannot represent are returned as code.

    >>> params_of({"fit model": {"algorithm": "svc", "hyperparameters": {"C": 2.0}}})
    {'fit model': 'svc', 'fit model__C': 2.0}
    """
    params = {}
    for step, choice in configuration.items():
        params[step] = choice["algorithm"]
        params |= {f"{step}__{name}": v for name, v in choice["hyperparameters"].items()}
        if space is not None:
            known = space.step(step).algorithm(choice["algorithm"]).hyperparameters
            for name, value in choice["hyperparameters"].items():
                params[f"{step}__{name}"] = value_of(known[name], value)
    return params


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Default value and range of a hyperparameter. The range is given as text."""

    default: Any
    range: str
    log: bool


@dataclass(frozen=True, slots=True)
class ExplainedTrial:
    """A trial with the facts that explain it.

    Attributes:
        moments: Times of the trial; None if no times are recorded yet.
        incumbent: Incumbent of the study, for comparison.
        same: All trials of the same configuration, by number.
        choices: Algorithms that each step could use.
        ranges: Default and range of each hyperparameter, by step and name.
    """

    study: OpenedStudy
    trial: TrialView
    moments: Moments | None
    incumbent: TrialView | None
    same: Sequence[TrialView]
    choices: Mapping[str, Sequence[str]]
    ranges: Mapping[str, Mapping[str, ValueRange]]

    @property
    def is_in_model(self) -> bool:
        """Whether the trial is part of the final model."""
        members = self.study.facts.model.members
        return any(member.trial == self.trial.number for member in members)

    def to_json(self) -> dict[str, Any]:
        """Return the trial and its explanation as JSON values."""
        best, moments = self.incumbent, self.moments
        return {
            **self.trial.to_json(),
            "study": self.study.name,
            "metric": self.study.plan.metric,
            "method": self.study.plan.method,
            "fidelity": self.study.plan.whole.part(self.trial.query),
            "in_model": self.is_in_model,
            "reason": moments.reason if moments else None,
            "asked_at": _time(moments.asked if moments else None),
            "ended_at": _time(moments.ended if moments else None),
            "flow_run_id": self.study.plan.flow_run_id,
            "task_run_id": moments.task_run_id if moments else None,
            "output_bytes": moments.output_bytes if moments else None,
            "incumbent": best and {
                "trial": best.number, "loss": best.loss, "fold_losses": best.fold_losses
            },
            "chance_loss": self.study.plan.chance_loss,
            "same_configuration": [t.number for t in self.same if t.number != self.trial.number],
            "constraints": {b.constraint.name: b.bound for b in self.study.plan.options.bounds},
            "choices": self.choices,
            "ranges": {
                step: {name: to_document(one) for name, one in ranges.items()}
                for step, ranges in self.ranges.items()
            },
        }  # fmt: skip


def explained_trial(store: ArtifactStore, study: str, number: int) -> ExplainedTrial:
    """Return a trial with the facts that explain it.

    Raises `UnknownName` or `BadInput` if the study or trial does not exist, and `DatabaseDamaged`
    if stored documents were changed or damaged.
    """
    opened = open_study(store, study)
    trial, best = opened.trial(number), opened.facts.best_trial
    with documents_of(study):
        same = [t for t in opened.trials() if t.configuration == trial.configuration]
    space = opened.space_if_known()
    steps = () if space is None else space.steps
    return ExplainedTrial(
        opened,
        trial,
        opened.moments(number).get(number),
        None if best is None else opened.trial(best),
        same,
        {step.name: [algorithm.id for algorithm in step.algorithms] for step in steps},
        {
            step.name: {
                name: ValueRange(
                    value_document(parameter.default_value),
                    range_text(parameter),
                    bool(getattr(parameter, "log", False)),
                )
                for name, parameter in algorithm.hyperparameters.items()
            }
            for step in steps
            for algorithm in step.algorithms
            if algorithm.id == trial.configuration.get(step.name, {}).get("algorithm")
        },
    )


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
