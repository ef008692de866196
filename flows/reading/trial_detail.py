"""One trial in detail: its values, why it was proposed, its result and its cost.

The detail is read from the ledger and, if available, from the space (ranges and defaults) and the
cache (arguments of estimators). Cheap to import.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prefect_tune.flows.reading.opened_study import OpenedStudy, open_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.text import LossWords
from prefect_tune.optimizers.converter import from_document, json_values, to_document
from prefect_tune.optimizers.space.value_documents import value_document
from prefect_tune.optimizers.space.wording import range_text
from prefect_tune.optimizers.trials.outcome import Evaluation, StepCost
from prefect_tune.storage.store import ArtifactStore

if TYPE_CHECKING:  # for types only: trials are shown even where their space is missing
    from prefect_tune.optimizers.space.algorithm import Algorithm


@dataclass(frozen=True, slots=True)
class Leader:
    """The incumbent, for comparison."""

    trial: int
    loss: float
    fold_losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SameConfiguration:
    """Another trial of the same configuration; `loss` is None if it has none."""

    trial: int
    state: str
    fidelity: str
    loss: float | None


@dataclass(frozen=True, slots=True)
class ChosenValue:
    """Value of a hyperparameter.

    Attributes:
        is_default: Whether the value is the default; None if the space is not available.
        range: Range of values, in words; None if the space is not available.
        effective: Value the estimator received in the first fold.
    """

    name: str
    value: Any
    default: Any
    is_default: bool | None
    range: str | None
    is_log: bool
    effective: Any


@dataclass(frozen=True, slots=True)
class ChosenStep:
    """A step of the pipeline; `choices` is None if the space is not available."""

    step: str
    algorithm: str
    choices: tuple[str, ...] | None
    hyperparameters: tuple[ChosenValue, ...]


@dataclass(frozen=True, slots=True)
class FoldCost:
    """Cost of a step in one fold; see `StepCost`."""

    fold: int
    hit: bool
    seconds: float
    load_seconds: float
    key: str


@dataclass(frozen=True, slots=True)
class StepFolds:
    """Cost of a step in each fold."""

    step: str
    folds: tuple[FoldCost, ...]


@dataclass(frozen=True, slots=True)
class MeasuredBound:
    """A constraint and its measurement; `value` is None if not measured."""

    quantity: str
    value: float | None
    bound: float
    is_met: bool


@dataclass(frozen=True, slots=True)
class Learning:
    """Learning curve of an iterative model; see `Evaluation`."""

    losses: tuple[float, ...]
    best_epoch: int | None
    resumed_from: int
    trouble: str


@dataclass(frozen=True, slots=True)
class FailureDetail:
    """Failure of a trial, and the command that reruns it; see `Failure`."""

    kind: str
    message: str
    step: str | None
    fold: int | None
    traceback: str
    output: str
    retry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetail:
    """All details of a trial; the fields are the JSON fields of `show --trial --json`.

    Attributes:
        loss: Loss; None without an evaluation.
        fidelity: Fidelity of the evaluation; empty if it was full.
        stretches: Other trials of the same configuration.
        reason: Reason for the proposal, as the method recorded it.
        asked_at: Time of asking, ISO 8601 in UTC.
        ended_at: Time of the end, in the same format.
        attempts: Number of starts.
        output_bytes: Size of the stored output; None if no output was stored.
        cost_seconds: Wall time; None before the end.
        cost_uncached_seconds: Time it would take without the cache; None without an evaluation.
        load_seconds: Time of loading data and libraries before the trial; None before the end.
        constraints: Measured quantities and their bounds.
        curve: Learning curve; None if the model was fitted at once.
        in_model: Whether the trial is part of the final model.
        code: Command that prints the code of the trial.
        show_output: Command that prints the output of the trial.
    """

    study: str
    trial: int
    state: str
    metric: str
    loss: float | None
    fold_losses: tuple[float, ...]
    incumbent: Leader | None
    chance_loss: float | None
    fidelity: str
    stretches: tuple[SameConfiguration, ...]
    method: str
    reason: Mapping[str, Any] | None
    asked_at: str | None
    ended_at: str | None
    attempts: int
    flow_run_id: str | None
    task_run_id: str | None
    output_bytes: int | None
    pipeline: tuple[ChosenStep, ...]
    cost_seconds: float | None
    cost_uncached_seconds: float | None
    load_seconds: float | None
    steps: tuple[StepFolds, ...]
    constraints: tuple[MeasuredBound, ...]
    curve: Learning | None
    failure: FailureDetail | None
    in_model: bool
    code: str
    show_output: str

    @property
    def losses(self) -> LossWords:
        """Formatting of losses in the study's metric."""
        return LossWords(self.metric)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return json_values(to_document(self))


def trial_detail(store: ArtifactStore, study: str, number: int) -> TrialDetail:
    """Return all details of a trial.

    Raises `UnknownName` or `BadInput` if the study or trial does not exist, and `DatabaseDamaged`
    if stored documents were changed or damaged.
    """
    opened = open_study(store, study)
    plan, trial = opened.plan, opened.trial(number)
    leader, stretches = _others(opened, trial)
    moments = opened.moments(number).get(number)
    is_told = trial.state.is_told
    options = store_options(store.address)
    show = ["prefect-tune", "show", study, "--trial", str(number)]
    with documents_of(study):
        evaluation = trial.evaluation
        return TrialDetail(
            study=study,
            trial=number,
            state=str(trial.state),
            metric=plan.metric,
            loss=evaluation.loss if evaluation else None,
            fold_losses=evaluation.fold_losses if evaluation else (),
            incumbent=leader,
            chance_loss=plan.chance_loss,
            fidelity=trial.fidelity(plan),
            stretches=stretches,
            method=plan.method,
            reason=dict(moments.reason) if moments and moments.reason else None,
            asked_at=_time(moments.asked if moments else None),
            ended_at=_time(moments.ended if moments and is_told else None),
            attempts=trial.attempts,
            flow_run_id=plan.flow_run_id,
            task_run_id=moments.task_run_id if moments else None,
            output_bytes=moments.output_bytes if moments else None,
            pipeline=tuple(_pipeline(opened, trial)),
            cost_seconds=trial.cost_seconds if is_told else None,
            cost_uncached_seconds=evaluation.cost_uncached_seconds if evaluation else None,
            load_seconds=trial.load_seconds if is_told else None,
            steps=_steps(from_document(tuple[StepCost, ...], trial.all_steps)),
            constraints=tuple(_measured(trial, plan)),
            curve=_learning(evaluation),
            failure=_failure(trial, ["prefect-tune", "retry", study], options),
            in_model=any(member.trial == number for member in opened.facts.model.members),
            code=shlex.join([*show, "--code", *options]),
            show_output=shlex.join([*show, "--output", *options]),
        )


def _others(
    study: OpenedStudy, trial: TrialView
) -> tuple[Leader | None, tuple[SameConfiguration, ...]]:
    leader, stretches, text = None, [], trial.configuration_text
    with documents_of(study.name):
        for other in study.trials():
            if other.number == study.incumbent and other.has_loss:
                leader = Leader(other.number, other.loss, tuple(other.fold_losses))
            if other.number != trial.number and other.configuration_text == text:
                loss = other.loss if other.has_loss else None
                fidelity = other.fidelity(study.plan)
                stretches.append(SameConfiguration(other.number, str(other.state), fidelity, loss))
    return leader, tuple(stretches)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _pipeline(study: OpenedStudy, trial: TrialView) -> Iterator[ChosenStep]:
    """Yield the choice of each step; without the space, only values are known."""
    space, arguments = study.space_if_known(), _arguments(study.store, trial)
    for name, choice in trial.configuration.items():
        steps = space.steps if space else ()
        step = next((step for step in steps if step.name == name), None)
        algorithms = step.algorithms if step else ()
        algorithm = next((a for a in algorithms if a.id == choice["algorithm"]), None)
        given = arguments.get(name, {})
        yield ChosenStep(
            name,
            choice["algorithm"],
            tuple(a.id for a in step.algorithms) if step else None,
            tuple(
                _value(algorithm, hyperparameter, value, given)
                for hyperparameter, value in choice["hyperparameters"].items()
            ),
        )


def _value(
    algorithm: "Algorithm | None", name: str, value: Any, given: Mapping[str, Any]
) -> ChosenValue:
    effective = given.get(name.rsplit(".", 1)[-1], value)
    if algorithm is None or name not in algorithm.hyperparameters:
        return ChosenValue(name, value, None, None, None, is_log=False, effective=effective)
    hyperparameter = algorithm.hyperparameters[name]
    default = value_document(hyperparameter.default_value)
    return ChosenValue(
        name,
        value,
        default,
        value == default,
        range_text(hyperparameter),
        bool(getattr(hyperparameter, "log", False)),
        effective,
    )


def _arguments(store: ArtifactStore, trial: TrialView) -> dict[str, dict[str, Any]]:
    """Return the arguments of estimators in the first fold by step, if still cached."""
    keys = [step["key"] for step in trial.steps if step["fold"] == 0]
    entry = store.index.entries(keys[-1:]).get(keys[-1]) if keys else None
    if entry is None or not entry.is_present:
        return {}
    lineage = store.provenance(entry) or {}
    return {step["step"]: dict(step["arguments"]) for step in lineage.get("steps", ())}


def _steps(costs: tuple[StepCost, ...]) -> tuple[StepFolds, ...]:
    folds: dict[str, list[FoldCost]] = {}
    for cost in costs:
        of_fold = FoldCost(cost.fold, cost.hit, cost.seconds, cost.load_seconds, cost.key)
        folds.setdefault(cost.step, []).append(of_fold)
    return tuple(StepFolds(step, tuple(of_step)) for step, of_step in folds.items())


def _measured(trial: TrialView, plan: StudyPlan) -> Iterator[MeasuredBound]:
    for constraint in (bound.constraint for bound in plan.options.bounds):
        measured, name = trial.quantities, constraint.name
        is_met = constraint.excess(measured) <= 0
        yield MeasuredBound(name, measured.get(name), constraint.bound, is_met)


def _learning(found: Evaluation | None) -> Learning | None:
    if found is None or not found.curve:
        return None
    return Learning(found.curve, found.best_epoch, found.resumed_from, found.trouble)


def _failure(trial: TrialView, retry: list[str], options: list[str]) -> FailureDetail | None:
    failure = trial.failure
    if failure is None:
        return None
    return FailureDetail(
        failure.kind,
        failure.message,
        failure.step,
        failure.fold,
        failure.traceback,
        failure.output,
        shlex.join([*retry, "--trial", str(trial.number), *options]),
    )
