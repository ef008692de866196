"""The flow `tune`: one flow run a session of a study."""

from typing import Any

from prefect import flow
from prefect.runtime import deployment, flow_run

from prefect_tune.flows.preparation.options import documented
from prefect_tune.flows.preparation.prepare import HANDOVER, prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.progress import current_observer
from prefect_tune.flows.session import run_study

__all__ = ["tune"]


@flow(name="tune", persist_result=False)
@documented
def tune(  # noqa: PLR0917 - flat parameters make the form of a deployment
    data: str = "cohort:demo",
    target: str | None = None,
    labels: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    test: str | None = None,
    test_size: float | None = None,
    folds: int | None = None,
    holdout: float | None = None,
    group: str | None = None,
    drop: list[str] | None = None,
    categorical: list[str] | None = None,
    drop_missing_target: bool = False,
    space: str | None = None,
    method: str | None = None,
    metric: str | None = None,
    positive: str | None = None,
    constraint: list[str] | None = None,
    ensemble: int | str | None = None,
    epochs: int | None = None,
    race: bool = False,
    start: str | None = None,
    seed: int | None = None,
    option: dict[str, Any] | None = None,
    trials: int | None = None,
    budget: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
    study: str | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    cache_budget: str | None = None,
    eviction: str | None = None,
    no_cache: bool = False,
    task_runs: str | None = None,
) -> dict[str, Any]:
    """Tune a pipeline: search for its algorithms and their hyperparameters.

    Returns:
        The summary that `prefect-tune show --json` prints.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used, before any work starts.
        StudyFailed: If not a single trial was completed.
    """
    parameters = dict(locals())
    prepared = HANDOVER.take(parameters)
    if prepared is None:
        default_name = str(flow_run.id) if deployment.id else None
        prepared = prepare(TuneSettings.parse(parameters), default_name)
        for note in prepared.notes:
            current_observer().note(str(note))
    return run_study(prepared)
