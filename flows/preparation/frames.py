"""A study of a DataFrame: taken out of the flow's parameters, and prepared as that of a file."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from prefect_tune.flows.preparation.prepare import PreparedStudy, prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.frames import (
    TEST_FRAME,
    checked_frame,
    frame_dataset,
    frame_name,
    with_target,
)
from prefect_tune.tasks.data.source import Source

__all__ = ["prepare_frame"]


def prepare_frame(
    parameters: Mapping[str, Any], validated: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, Any], PreparedStudy]:
    """Check a DataFrame, and enter a study of it in the ledger or find it there.

    Args:
        parameters: Those of the flow `tune`, with the DataFrame as `data`; `test` may be one too.
        validated: Checks parameters of plain values, and returns all of them.

    Returns:
        Plain parameters, which name the DataFrames and the study; and the study.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used.
    """
    frame = checked_frame(parameters["data"])
    frame, target = with_target(frame, parameters.get("target"))
    named = {**parameters, "data": frame_name(frame), "target": target}
    test = parameters.get("test")
    if isinstance(test, pd.DataFrame):
        test = checked_frame(test, TEST_FRAME)
        named["test"] = frame_name(test)
    given = validated(named)
    prepared = prepare(TuneSettings.parse(given), read=partial(_read, frame, test))
    return {**given, "study": prepared.name}, prepared


def _read(frame: pd.DataFrame, test: pd.DataFrame | str | None, source: Source) -> Dataset:
    return frame_dataset(source, frame, test if isinstance(test, pd.DataFrame) else None)
