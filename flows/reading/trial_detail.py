"""One trial, explained: its document, the reason for it, the ranges of its values, and others.

Ranges and choices need the space, and are empty where it is not available. Cheap to import.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prefect_tune.flows.reading.opened_study import Moments, OpenedStudy, open_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.flows.wording.text import Whole
from prefect_tune.optimizers.converter import to_document
from prefect_tune.optimizers.space.value_documents import value_document
from prefect_tune.optimizers.space.wording import range_text
from prefect_tune.storage.artifacts import ArtifactStore


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Default and range of a hyperparameter; the range is in words."""

    default: Any
    range: str
    log: bool


@dataclass(frozen=True, slots=True)
class ExplainedTrial:
    """A trial with everything that explains it.

    Attributes:
        moments: Its times; None before the first ask is recorded.
        incumbent: The incumbent, for comparison.
        same: All trials of the same configuration, by number.
        choices: Algorithms of each step.
        ranges: Range of each hyperparameter, by step and name.
    """

    study: OpenedStudy
    trial: TrialView
    moments: Moments | None
    incumbent: TrialView | None
    same: Sequence[TrialView]
    choices: Mapping[str, Sequence[str]]
    ranges: Mapping[str, Mapping[str, ValueRange]]

    @property
    def whole(self) -> Whole:
        """Full evaluation of a configuration."""
        return self.study.plan.whole

    @property
    def is_in_model(self) -> bool:
        """Whether the trial is part of the final model."""
        members = self.study.facts.model.members
        return any(member.trial == self.trial.number for member in members)

    def to_json(self) -> dict[str, Any]:
        """Return the document of the trial, with the explanation as JSON values."""
        best, moments = self.incumbent, self.moments
        return {
            **self.trial.to_json(),
            "study": self.study.name,
            "metric": self.study.plan.metric,
            "method": self.study.plan.method,
            "fidelity": self.whole.part(self.trial.query),
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
                step: {name: to_document(of) for name, of in ranges.items()}
                for step, ranges in self.ranges.items()
            },
        }  # fmt: skip


def explained_trial(store: ArtifactStore, study: str, number: int) -> ExplainedTrial:
    """Return a trial with everything that explains it.

    Raises `UnknownName` or `BadInput` if the study or trial does not exist, and `DatabaseDamaged`
    if stored documents were changed or damaged.
    """
    opened = open_study(store, study)
    trial, best = opened.trial(number), opened.incumbent
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
            step.name: dict(_ranges(algorithm.hyperparameters))
            for step in steps
            for algorithm in step.algorithms
            if algorithm.id == trial.configuration.get(step.name, {}).get("algorithm")
        },
    )


def _ranges(hyperparameters: Mapping[str, Any]) -> Iterator[tuple[str, ValueRange]]:
    for name, of in hyperparameters.items():
        default = value_document(of.default_value)
        yield name, ValueRange(default, range_text(of), bool(getattr(of, "log", False)))


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
