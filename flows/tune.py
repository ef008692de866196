"""The flow `tune`, which runs a session of a study, and the flow `retry`, for failed trials.

If `data` is a DataFrame, Prefect stores only a name for the DataFrame as the parameter.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Annotated, Any, Literal, ParamSpec, overload

import pandas as pd
from prefect import State
from prefect.runtime import deployment, flow_run
from pydantic import Field, StrictInt

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.options.form import documented
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.running.event_loop import LoopSafeFlow, apart_from_loop, loop_safe_flow
from prefect_tune.flows.series.next_study import SeriesStudy, end_at_once, prepare_run, send_changes
from prefect_tune.flows.session import run_study
from prefect_tune.flows.starting.prepare import (
    HANDOVER,
    PreparedStudy,
    name_of_flow_run,
    prepare_retry,
)
from prefect_tune.flows.starting.study_input import StudyRequest
from prefect_tune.flows.study.progress import current_observer
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.tasks.bad_input import BadInput, errors_for_caller, for_caller
from prefect_tune.tasks.data.row_reader import as_pandas
from prefect_tune.tasks.data.tables import (
    TEST_FRAME,
    checked_frame,
    frame_dataset,
    frame_name,
    with_target,
)

P = ParamSpec("P")
_OF_PREFECT = ("return_state", "wait_for")


class TuneFlow(LoopSafeFlow[P, dict[str, Any]]):
    """A flow that accepts DataFrames of pandas and of every library that narwhals supports."""

    @overload  # type: ignore[override] # Prefect's overloads differ in order
    def __call__(
        self, *args: Any, return_state: Literal[True], **kwargs: Any
    ) -> State[dict[str, Any]]: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    @errors_for_caller()
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the flow; raise `BadInput` if `test` is a DataFrame but `data` is not."""
        of_prefect = {name: kwargs.pop(name) for name in _OF_PREFECT if name in kwargs}
        bound = signature(self.fn).bind(*args, **kwargs)
        call = partial(super().__call__, **of_prefect)
        for name in {"data", "test"} & bound.arguments.keys():
            bound.arguments[name] = as_pandas(bound.arguments[name])
        if isinstance(bound.arguments.get("data"), pd.DataFrame):

            def with_frame() -> Any:
                with self.frame_taken(bound.arguments) as (given, _):
                    return call(**given)

            return apart_from_loop(with_frame)
        if isinstance(bound.arguments.get("test"), pd.DataFrame):
            raise BadInput("test is a DataFrame but data is not; pass both as DataFrames or files")
        return call(*args, **kwargs)

    @contextmanager
    def frame_taken(
        self, parameters: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, Any], PreparedStudy]]:
        """Prepare a study of a DataFrame, and hand it to the flow called in the `with` block.

        Because Prefect stores and shows parameters, the flow gets only the name of the DataFrame.
        The rows are in the store. Yields the parameters for calling the flow, and the study.

        Raises:
            BadInput, UnknownName, StoreRefused: If an option is invalid.
        """
        frame, target = with_target(checked_frame(parameters["data"]), parameters.get("target"))
        named = {**parameters, "data": frame_name(frame), "target": target}
        if parameters.get("positive") is not None:  # the value of a class, not a string
            named["positive"] = str(parameters["positive"])
        test = None
        if isinstance(parameters.get("test"), pd.DataFrame):
            test = checked_frame(parameters["test"], TEST_FRAME)
            named["test"] = frame_name(test)
        bound = signature(self.fn).bind(**named)
        bound.apply_defaults()
        given = self.validate_parameters(dict(bound.arguments))
        request = StudyRequest.parse(given)
        prepared = prepare_run(
            request,
            request.open_store(),
            reader=lambda source: frame_dataset(source, frame, test),
        )
        given = prepared.named(given)
        try:
            with HANDOVER.offered(given, prepared):
                yield given, prepared
        finally:
            prepared.release()


@partial(TuneFlow, name="tune", persist_result=False, retries=0)
@documented
def tune(  # noqa: PLR0917 - flat parameters make the form of a deployment
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
    space: str | None = None,
    method: str | None = None,
    metric: str | None = None,
    positive: str | None = None,
    constraint: list[str] | None = None,
    ensemble: int | str | None = None,
    epochs: int | None = None,
    race: bool | None = None,
    start: str | None = None,
    seed: int | None = None,
    option: dict[str, Any] | None = None,
    trials: int | None = None,
    budget: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
    series: str | None = None,
    if_unchanged: str | None = None,
    key: list[str] | None = None,
    promotion: str | None = None,
    margin: float | None = None,
    study: str | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    cache_budget: str | None = None,
    no_cache: bool = False,
    task_runs: str | None = None,
) -> dict[str, Any]:
    """Tune a pipeline: search for the best algorithms and hyperparameters.

    If you call the flow from Python, `data` can also be a DataFrame of pandas, polars, pyarrow or
    another library. If `data` is a DataFrame, `target` can also be the target values, and `test`
    can also be a DataFrame.

    Returns:
        The summary that `prefect-tune show --json` prints.

    Raises:
        BadInput, UnknownName, StoreRefused: If an option is invalid; raised before any work starts.
        StudyFailed: If nothing was evaluated, or no trial can become the final model.
    """
    parameters = dict(locals())
    prepared = HANDOVER.take(parameters)
    if prepared is None:
        request, run_id = StudyRequest.parse(parameters), str(flow_run.id)
        opened, is_deployed = request.open_store(), bool(deployment.id)
        name = name_of_flow_run(opened, flow_run.name, run_id) if is_deployed else None
        prepared = prepare_run(request, opened, name, flow_run_id=run_id)
    for note in () if prepared.has_shown_notes else prepared.notes:
        current_observer().note(for_caller(str(note)))
    try:
        if isinstance(prepared, SeriesStudy):
            if prepared.nothing_to_do:
                return end_at_once(prepared)  # type: ignore[return-value] # flows may return states
            send_changes(prepared)
        return run_study(prepared)
    finally:
        prepared.release()


_STUDY_OR_SERIES = "Name of a study, or of a series: its newest study is used."
_RETRIED = replace(OPTIONS["study"], text=_STUDY_OR_SERIES, default_text="")
_TRIALS = Field(json_schema_extra={"description": "Numbers of failed trials, by default all."})


@loop_safe_flow("retry")
@partial(documented, options={**OPTIONS, "study": _RETRIED})
def retry(  # noqa: PLR0917 - flat parameters make the form of a deployment
    study: str,
    trial: Annotated[list[StrictInt] | None, _TRIALS] = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    task_runs: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
) -> dict[str, Any]:
    """Rerun failed trials of a study, by default all failed trials.

    Reruns do not count against the study's budget.

    Returns:
        The summary that `prefect-tune show --json` prints.

    Raises:
        UnknownName, BadInput: If the study or a failed trial does not exist.
    """
    parameters = dict(locals())
    prepared = HANDOVER.take(parameters)
    if prepared is None:
        prepared = prepare_retry(study, trial, {**parameters, "study": None})
        for note in prepared.notes:
            current_observer().note(for_caller(str(note)))
    failed = open_study(prepared.store, prepared.name).failed()
    numbers = frozenset(failed if trial is None else trial)
    if not numbers:
        current_observer().note(f"study {prepared.name} has no failed trials")
        return read_study(prepared.store, prepared.name).to_json()

    def requeue(opened: Study) -> None:
        for number in sorted(numbers):
            if opened.trials[number].state == TrialState.FAILED:
                opened.retry(number)

    return run_study(prepared, numbers, requeue)
