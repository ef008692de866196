"""The flow `retry`: failed trials of a study once more, from the last prefix that was made."""

from typing import Any

from prefect import flow

from prefect_tune.flows.options import documented
from prefect_tune.flows.preparing import current_preparation, prepare_retry
from prefect_tune.flows.running import run_study
from prefect_tune.flows.search import Limits
from prefect_tune.flows.study import Study
from prefect_tune.optimizers.trial import TrialState

__all__ = ["retry"]


@flow(name="retry", persist_result=False)
@documented
def retry(  # noqa: PLR0917 - flat parameters make the form of a deployment
    study: str,
    trial: list[int] | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    task_runs: str | None = None,
) -> dict[str, Any]:
    """Run failed trials of a study again, in addition to its budget: those numbered, or all.

    Returns:
        What `prefect-tune show --json` prints.

    Raises:
        UnknownName, BadInput: If there is no such study, or no such failed trial.
    """
    preparation = current_preparation() or prepare_retry(
        study,
        trial,
        workers=workers,
        dask=dask,
        store=store,
        database=database,
        task_runs=task_runs,
    )
    return run_study(preparation, Limits(ask=False), lambda opened: _put_failed_back(opened, trial))


def _put_failed_back(study: Study, numbers: list[int] | None) -> None:
    """Have failed trials wait for another start: those of the numbers, or all."""
    failed = [t.number for t in study.trials.values() if t.state == TrialState.FAILED]
    for number in failed:
        if numbers is None or number in numbers:
            study.retry(number)
