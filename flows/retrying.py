"""The flow `retry`: failed trials of a study once more, from the last prefix that was made."""

from collections.abc import Collection
from typing import Any

from prefect_tune.flows.event_loop import flow_apart
from prefect_tune.flows.preparation.form import documented
from prefect_tune.flows.preparation.prepare import HANDOVER, prepare_retry
from prefect_tune.flows.progress import current_observer
from prefect_tune.flows.session import run_study
from prefect_tune.flows.study.lookup import failed_trials
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.study.summary import summarize
from prefect_tune.optimizers.trials.outcome import TrialState

__all__ = ["retry"]


@flow_apart("retry")
@documented
def retry(  # noqa: PLR0917 - flat parameters make the form of a deployment
    study: str,
    trial: list[int] | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    task_runs: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
) -> dict[str, Any]:
    """Run failed trials of a study again, in addition to its budget: those numbered, or all.

    Returns:
        The summary that `prefect-tune show --json` prints.

    Raises:
        UnknownName, BadInput: If there is no such study, or no such failed trial.
    """
    parameters = dict(locals())
    prepared = HANDOVER.take(parameters)
    if prepared is None:
        prepared = prepare_retry(parameters.pop("study"), parameters.pop("trial"), **parameters)
    numbers = frozenset(failed_trials(prepared.store, study) if trial is None else trial)
    if not numbers:
        current_observer().note(f"no trial of study {study} has failed")
        return summarize(prepared.store, study)
    return run_study(prepared, numbers, lambda opened: _put_back(opened, numbers))


def _put_back(study: Study, numbers: Collection[int]) -> None:
    """Let the failed trials of these numbers wait for another start."""
    for trial in list(study.trials.values()):
        if trial.state == TrialState.FAILED and trial.number in numbers:
            study.retry(trial.number)
