"""The flow `tune`: one flow run per session of a study."""

from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run

from prefect_tune.flows.options import help_of
from prefect_tune.flows.preparing import current_preparation, prepare
from prefect_tune.flows.progress import current_observer
from prefect_tune.flows.running import run_study
from prefect_tune.flows.search import Limits
from prefect_tune.flows.settings import TuneSettings

__all__ = ["tune"]


def _flow_run_name() -> str:
    parameters = flow_run.parameters
    preparation = current_preparation()
    study = preparation.study if preparation else parameters.get("study") or flow_run.id
    return f"{study} ({parameters.get('method') or 'random'})"


@flow(name="tune", flow_run_name=_flow_run_name, persist_result=False, validate_parameters=True)
def tune(  # noqa: PLR0917 - flat parameters make the form of a deployment
    data: Annotated[str, help_of("data")] = "cohort:demo",
    target: Annotated[str | None, help_of("target")] = None,
    labels: Annotated[str | None, help_of("labels")] = None,
    format: Annotated[str | None, help_of("format")] = None,  # noqa: A002 - the option's name
    test_size: Annotated[float | None, help_of("test_size")] = None,
    folds: Annotated[int | None, help_of("folds")] = None,
    drop: Annotated[list[str] | None, help_of("drop")] = None,
    categorical: Annotated[list[str] | None, help_of("categorical")] = None,
    drop_missing_target: Annotated[bool, help_of("drop_missing_target")] = False,
    space: Annotated[str | None, help_of("space")] = None,
    method: Annotated[str | None, help_of("method")] = None,
    metric: Annotated[str | None, help_of("metric")] = None,
    seed: Annotated[int | None, help_of("seed")] = None,
    option: Annotated[dict[str, Any] | None, help_of("option")] = None,
    trials: Annotated[int | None, help_of("trials")] = None,
    budget: Annotated[str | None, help_of("budget")] = None,
    study: Annotated[str | None, help_of("study")] = None,
    workers: Annotated[int | None, help_of("workers")] = None,
    dask: Annotated[str | None, help_of("dask")] = None,
    store: Annotated[str | None, help_of("store")] = None,
    database: Annotated[str | None, help_of("database")] = None,
    cache_budget: Annotated[str | None, help_of("cache_budget")] = None,
    no_cache: Annotated[bool, help_of("no_cache")] = False,
    task_runs: Annotated[str | None, help_of("task_runs")] = None,
) -> dict[str, Any]:
    """Tune a pipeline: search for its algorithms and their hyperparameters.

    Returns:
        What `prefect-tune show --json` prints.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used, before any work starts.
        StudyFailed: If not a single trial was completed.
    """
    preparation = current_preparation()
    if preparation is None:
        settings = TuneSettings.parse(locals())
        default_name = str(flow_run.id) if flow_run.deployment_id else None
        preparation = prepare(settings, default_name)
        for note in preparation.notes:
            current_observer().note(note)
    limits = Limits(preparation.trials, preparation.budget_seconds)
    return run_study(preparation, limits)
