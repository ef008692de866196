"""The flow `compare`: one study per method and repeat, on one worker and with an empty cache."""

from functools import partial
from typing import Any

from prefect.runtime import deployment, flow_run

from prefect_tune.flows.comparison.comparison import HANDOVER, prepare_comparison
from prefect_tune.flows.comparison.session import run_replicates
from prefect_tune.flows.options.declared import COMPARE_OPTIONS
from prefect_tune.flows.options.form import documented
from prefect_tune.flows.running.event_loop import loop_safe_flow
from prefect_tune.flows.study.progress import current_observer
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.tasks.bad_input import for_caller


@loop_safe_flow("compare")
@partial(documented, options=COMPARE_OPTIONS)
def compare(  # noqa: PLR0917 - flat parameters make the form of a deployment
    data: str = "cohort:demo",
    target: str | None = None,
    labels: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    test: str | None = None,
    splits: str | None = None,
    test_size: float | None = None,
    folds: int | None = None,
    holdout: float | None = None,
    group: str | None = None,
    time: str | None = None,
    gap: str | None = None,
    drop: list[str] | None = None,
    categorical: list[str] | None = None,
    drop_missing_target: bool = False,
    na_values: list[str] | None = None,
    decimal: str | None = None,
    input: str | None = None,  # noqa: A002 - the option's name
    methods: str | None = None,
    repeats: int | None = None,
    space: str | None = None,
    metric: str | None = None,
    positive: str | None = None,
    epochs: int | None = None,
    race: bool | None = None,
    seed: int | None = None,
    trials: int | None = None,
    budget: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    cache_budget: str | None = None,
    no_cache: bool = False,
    task_runs: str | None = None,
    out: str | None = None,
) -> dict[str, Any]:
    """Compare search methods on the same data, folds and seeds, with the same stop rule.

    Returns:
        The standings that `prefect-tune compare --json` prints.

    Raises:
        BadInput, UnknownName, StoreRefused: If an option is invalid; raised before any work starts.
        StudyFailed: If no trial was completed.
    """
    parameters = dict(locals())
    comparison = HANDOVER.take(parameters)
    if comparison is None:
        name, run_id = str(flow_run.id) if deployment.id else None, str(flow_run.id)
        comparison = prepare_comparison(parameters, name, flow_run_id=run_id)
        for note in comparison.notes:
            current_observer().note(for_caller(str(note)))
    if to_do := comparison.to_do():
        run_replicates(comparison, to_do)
    if left := [replicate.prepared.name for replicate in comparison.to_do()]:
        raise StudyFailed(
            f"{len(left)} studies are unfinished ({', '.join(left[:3])}); rerun the command with "
            f"{comparison.again} to resume them"
        )
    return comparison.outcome()
