"""Studies run only in this process: no Prefect server, no Dask, one trial at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flow_studies import prepare_study

from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.tune import tune
from prefect_tune.flows.workers.dask_trials import Job
from prefect_tune.optimizers import Budget
from prefect_tune.optimizers.trials.outcome import Evaluation
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.tasks.final.promotion import compared
from prefect_tune.tasks.final.refit import Member, make_member, make_model, scored_on_test
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import evaluate_query, run_trial


@dataclass(frozen=True)
class Searched:
    """A finished study, and its store."""

    store: ArtifactStore
    name: str


_PLAIN: Mapping[str, Callable[..., Any]] = {
    "evaluate": lambda context, query, pilot_seconds=None, **_: run_trial(
        context, query, pilot_seconds
    ),
    "refit member": lambda number, query, context, **_: make_member(context, Member(number, query)),
    "refit": lambda members, context, **_: make_model(context, members),
    "compare": lambda what, **given: compared(**given),  # noqa: ARG005
    "score": lambda context, alone=None, **_: scored_on_test(context, alone),
}
"""What tasks call in a sandbox, by their names."""


def run_here(task: Any, parameters: Mapping[str, Any]) -> Any:
    """Return the value of a task run in this process, without a sandbox."""
    return _PLAIN[task.name](**parameters)


@dataclass
class Here:
    """Workers in this process.

    Attributes:
        begun: Names of the tasks that were run.
    """

    begun: list[str] = field(default_factory=list)
    n_slots: int = 1

    def run(self, task: Any, parameters: dict[str, Any], **options: Any) -> Any:
        if "check" in options:
            options["check"]()
        self.begun.append(task.name)
        return run_here(task, parameters)

    def run_all(self, jobs: Sequence[Job], **options: Any) -> list[Any]:
        return [self.run(job.task, dict(job.parameters), **options) for job in jobs]


def searched(folder: Path, *, trials: int, fit: bool = True, **parameters: Any) -> Searched:
    """Run a study with parameters of `tune`, in a new or an existing store.

    Args:
        folder: Folder of the store.
        trials: Total number of trials at the end.
        fit: Whether a final model is fitted.
        parameters: Parameters of `tune`.
    """
    defaults = {name: p.default for name, p in signature(tune.fn).parameters.items()}
    given = {"method": "random", "study": "s", "store": str(folder / "store"), **parameters}
    prepared = prepare_study({**defaults, **given, "trials": trials})
    plan, store = prepared.plan, prepared.store
    with Study.opened(store, prepared.name, plan) as study:
        context = StudyContext(
            study.name,
            plan.problem,
            store.address,
            use_cache=plan.options.use_cache,
            memory_limit_bytes=4 * 10**9,
            quantities=tuple(bounded.quantity for bounded in plan.options.bounds),
            epochs=plan.options.epochs,
            bootstraps=study.optimizer.bootstraps,
        )
        study.set_state("running")
        for _ in range(trials - len(study.trials)):
            trial = study.set_trial(
                study.ask(Budget(trials_left=trials - len(study.trials))).started()
            )
            came = evaluate_query(context, trial.query)
            is_good = isinstance(came, Evaluation)
            study.tell(trial.completed(came) if is_good else trial.failed(came))  # type: ignore[arg-type]
        study.record(replace(study.facts, decisions=study.optimizer.decisions))
        if fit:
            observer: Any = SimpleNamespace(note=lambda _: None)
            fit_final_model(study, Here(), context, observer)  # type: ignore[arg-type]
        study.set_state("complete")
    store.index.usage.flush()
    return Searched(store, prepared.name)
