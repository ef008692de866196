"""One trial of a study explained: its values, why it was proposed, its result, and its cost.

Only the ledger is read, and the space for ranges and defaults if the space can be found here. Also
flat parameter names and the times of all trials. Light to import.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.documents import Standing, TrialDocument, documents_of
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import plain_value
from prefect_tune.optimizers.space.wording import fidelity_text, range_text
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput


def params_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as flat as scikit-learn's parameters.

    >>> params_of({"fit model": {"algorithm": "svc", "hyperparameters": {"C": 2.0}}})
    {'fit model': 'svc', 'fit model__C': 2.0}
    """
    params = {}
    for step, choice in configuration.items():
        params[step] = choice["algorithm"]
        params |= {f"{step}__{name}": v for name, v in choice["hyperparameters"].items()}
    return params


@dataclass(frozen=True, slots=True)
class Moments:
    """The events of a study, as far as they are of one trial.

    Attributes:
        asked: When it was asked for, in seconds since 1970.
        queued: When it was asked for or retried last: since then it may run.
        ended: When it ended last; None while it has not.
        reason: Phase of the method and text, why it was asked for; None where that is not kept.
        task_run_id: Its task run in Prefect; empty where there is none.
        output_bytes: Bytes kept of what it printed; None while it has not ended, and where the
            version of prefect-tune that ran it kept no output.
    """

    asked: float
    queued: float
    ended: float | None = None
    reason: Mapping[str, Any] | None = None
    task_run_id: str = ""
    output_bytes: int | None = None

    def span(self, cost_seconds: float) -> tuple[float, float | None]:
        """Return when the last attempt began and ended.

        What has not ended begins when it may run; what has ended began as long before as it took,
        so that neither waiting nor an earlier attempt counts.

        Args:
            cost_seconds: What it took, where it has ended.
        """
        return (
            (self.queued, None) if self.ended is None else (self.ended - cost_seconds, self.ended)
        )


def moments_of(store: ArtifactStore, study: str) -> dict[int, Moments]:
    """Return what the events of a study say of its trials, by number."""
    found: dict[int, Moments] = {}
    for event in Ledger(store.database).each_event(study):
        number = event.body["number"]
        if event.kind == "ask":
            found[number] = Moments(event.at, event.at, reason=event.body.get("reason"))
        elif event.kind == "tell" and number in found:
            run = event.body.get("task_run_id") or ""
            found[number] = replace(
                found[number],
                ended=event.at,
                task_run_id=str(run),
                output_bytes=event.body.get("output_bytes"),
            )
        elif event.kind == "retry" and number in found:
            found[number] = replace(
                found[number], queued=event.at, ended=None, task_run_id="", output_bytes=None
            )
    return found


def space_as_run(plan: StudyPlan, study: str) -> "Space":
    """Return the space of a study as it was in the run.

    Raises:
        BadInput: If it is another one here, or a user's code cannot be loaded.
        UnknownName: If there is none of that name here.
    """
    problem = plan.problem
    space = problem.find_space()
    if space.digest != problem.space_digest:
        raise BadInput(
            f"the space {problem.space} of study {study!r} is another one here",
            remedy="use the version that made the study",
        )
    return space


def explained_trial(store: ArtifactStore, study: str, number: int) -> dict[str, Any]:
    """Return all that is known of a trial, as JSON values.

    Raises:
        UnknownName: If there is no such study.
        BadInput: If there is no such trial in it.
    """
    stored = find_study(store, study)
    plan = StudyPlan.from_stored(stored)
    trial = trial_numbered(store, study, number)
    others = _Others.of(store, stored, plan, trial)
    show = ["prefect-tune", "show", study, "--trial", str(number)]
    with documents_of(study):
        evaluation = trial.document["evaluation"] or {}
        return {
            "study": study,
            "trial": number,
            "state": str(trial.state),
            "metric": plan.metric,
            "loss": evaluation.get("loss"),
            "fold_losses": list(evaluation.get("fold_losses", ())),
            "incumbent": others.incumbent,
            "chance_loss": plan.chance_loss,
            "fidelity": _fidelity(trial, plan),
            "stretches": list(others.stretches),
            **_when(trial, plan, moments_of(store, study).get(number)),
            "pipeline": list(_pipeline(store, study, trial, plan)),
            "cost_seconds": trial.cost_seconds if trial.state.is_told else None,
            "cost_uncached_seconds": evaluation.get("cost_uncached_seconds"),
            "load_seconds": trial.load_seconds if trial.state.is_told else None,
            "steps": list(_steps(trial)),
            "constraints": list(_constraints(trial, plan)),
            "curve": _curve(evaluation),
            "failure": _failure(store, study, trial),
            "in_model": any(m["trial"] == number for m in stored.result.get("members") or ()),
            "code": shlex.join([*show, "--code", *store_options(store.address)]),
            "show_output": shlex.join([*show, "--output", *store_options(store.address)]),
        }


def trial_numbered(store: ArtifactStore, study: str, number: int) -> TrialDocument:
    """Return the trial of that number.

    Raises:
        BadInput: If there is none.
        DatabaseDamaged: If it is not as it was written.
    """
    last: int | None = None
    with documents_of(study):
        for document in Ledger(store.database).each_trial(study):
            trial = TrialDocument(document)
            last = trial.number
            if last == number:
                trial.checked()
                return trial
    has = "has no trials yet" if last is None else f"has the trials 0 to {last}"
    raise BadInput(f"study {study} {has}", option="trial", value=number)


@dataclass(frozen=True, slots=True)
class _Others:
    """The other trials of a study, as far as one of them is held against them.

    Attributes:
        incumbent: Number and losses of the trial that is chosen now; None if there is none.
        stretches: The other trials of the same configuration.
    """

    incumbent: dict[str, Any] | None
    stretches: tuple[dict[str, Any], ...]

    @classmethod
    def of(
        cls, store: ArtifactStore, stored: StoredStudy, plan: StudyPlan, trial: TrialDocument
    ) -> Self:
        """Look at them one by one."""
        standing = Standing([bounded.constraint for bounded in plan.options.bounds])
        said, chosen = stored.result.get("incumbent"), None
        text, stretches = trial.configuration_text, []
        with documents_of(stored.name):
            for other in map(TrialDocument, Ledger(store.database).each_trial(stored.name)):
                standing.add(other)
                chosen = other if other.number == said else chosen
                if other.number != trial.number and other.configuration_text == text:
                    stretches.append(_in_brief(other, plan))
            if (best := chosen or standing.incumbent) is None:
                return cls(None, tuple(stretches))
            losses = list(best.document["evaluation"].get("fold_losses", ()))
            leader = {"trial": best.number, "loss": best.loss, "fold_losses": losses}
            return cls(leader, tuple(stretches))


def _in_brief(trial: TrialDocument, plan: StudyPlan) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": str(trial.state),
        "fidelity": _fidelity(trial, plan),
        "loss": None if trial.document["evaluation"] is None else trial.loss,
    }


def _fidelity(trial: TrialDocument, plan: StudyPlan) -> str:
    return fidelity_text(trial.document["query"], plan.options.folds, plan.options.epochs)


def _when(trial: TrialDocument, plan: StudyPlan, moments: Moments | None) -> dict[str, Any]:
    """Return why and when it was asked for, when it ended, and what Prefect has of it."""
    ended = None if moments is None or not trial.state.is_told else moments.ended
    return {
        "method": plan.method,
        "reason": dict(moments.reason) if moments and moments.reason else None,
        "asked_at": _time(None if moments is None else moments.asked),
        "ended_at": _time(ended),
        "attempts": trial.document["attempts"],
        "flow_run_id": plan.flow_run_id,
        "task_run_id": (moments.task_run_id or None) if moments else None,
        "output_bytes": moments.output_bytes if moments else None,
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _pipeline(
    store: ArtifactStore, study: str, trial: TrialDocument, plan: StudyPlan
) -> Iterator[dict[str, Any]]:
    """Yield the choice of each step: values beside defaults, ranges, and what the data made of it.

    Where the space is not to be had here, only the values are known.
    """
    space, arguments = _space(plan, study), _arguments(store, trial)
    for name, choice in trial.configuration.items():
        steps = space.steps if space else ()
        step = next((step for step in steps if step.name == name), None)
        algorithms = step.algorithms if step else ()
        algorithm = next((a for a in algorithms if a.id == choice["algorithm"]), None)
        given = arguments.get(name, {})
        yield {
            "step": name,
            "algorithm": choice["algorithm"],
            "choices": [a.id for a in step.algorithms] if step else None,
            "hyperparameters": [
                _value(algorithm, hyperparameter, value, given)
                for hyperparameter, value in choice["hyperparameters"].items()
            ],
        }


def _value(
    algorithm: Algorithm | None, name: str, value: Any, given: Mapping[str, Any]
) -> dict[str, Any]:
    argument = name.rsplit(".", 1)[-1]
    known = algorithm is not None and name in algorithm.hyperparameters
    hyperparameter = algorithm.hyperparameters[name] if algorithm is not None and known else None
    default = None if hyperparameter is None else plain_value(hyperparameter.default_value)
    return {
        "name": name,
        "value": value,
        "default": default,
        "is_default": None if hyperparameter is None else value == default,
        "range": None if hyperparameter is None else range_text(hyperparameter),
        "is_log": bool(getattr(hyperparameter, "log", False)),
        "effective": given.get(argument, value),
    }


def _space(plan: StudyPlan, study: str) -> Space | None:
    """Return the space of a study as it was in the run; None if it is not to be had here."""
    try:
        return space_as_run(plan, study)
    except Exception:  # whatever a user's file, or a package that is not there, raises
        return None


def _arguments(store: ArtifactStore, trial: TrialDocument) -> dict[str, dict[str, Any]]:
    """Return the arguments that estimators got in the first fold, by step, if still kept."""
    keys = [step["key"] for step in trial.steps if step["fold"] == 0]
    entry = store.index.entries(keys[-1:]).get(keys[-1]) if keys else None
    if entry is None or not entry.is_present:
        return {}
    lineage = store.provenance(entry) or {}
    return {step["step"]: dict(step["arguments"]) for step in lineage.get("steps", ())}


def _steps(trial: TrialDocument) -> Iterator[dict[str, Any]]:
    """Yield each step that ran: of each fold whether it was served, and what it took."""
    outcome = trial.document["evaluation"] or trial.document["failure"] or {}
    folds: dict[str, list[dict[str, Any]]] = {}
    for cost in outcome.get("steps", ()):
        folds.setdefault(cost["step"], []).append(
            {name: cost[name] for name in ("fold", "hit", "seconds", "load_seconds", "key")}
        )
    yield from ({"step": step, "folds": of_folds} for step, of_folds in folds.items())


def _constraints(trial: TrialDocument, plan: StudyPlan) -> Iterator[dict[str, Any]]:
    for bounded in plan.options.bounds:
        constraint = bounded.constraint
        yield {
            "quantity": constraint.name,
            "value": trial.quantities.get(constraint.name),
            "bound": constraint.bound,
            "is_met": constraint.excess(trial.quantities) <= 0,
        }


def _curve(evaluation: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how its model learned; None if it was fitted at once."""
    losses = evaluation.get("curve") or ()
    if not losses:
        return None
    return {
        "losses": list(losses),
        "best_epoch": evaluation.get("best_epoch"),
        "resumed_from": evaluation.get("resumed_from", 0),
        "trouble": evaluation.get("trouble", ""),
    }


def _failure(store: ArtifactStore, study: str, trial: TrialDocument) -> dict[str, Any] | None:
    failure = trial.document["failure"]
    if failure is None:
        return None
    retry = ["prefect-tune", "retry", study, "--trial", str(trial.number)]
    told = ("kind", "message", "step", "fold", "traceback")
    return {
        **{name: failure[name] for name in told},
        "output": failure.get("output", ""),
        "retry": shlex.join([*retry, *store_options(store.address)]),
    }
