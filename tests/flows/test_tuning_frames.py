"""`tune` of a DataFrame: real studies, and what Prefect is told of them."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import QUICK, table, write_table
from prefect_api import flow_runs
from processes import environment

from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frames")


@pytest.fixture(scope="module")
def call(folder: Path) -> Callable[..., dict[str, Any]]:
    def called(data: Any, **changes: Any) -> dict[str, Any]:
        where = {"store": str(folder / "store"), "workers": 1, "study": "frame"}
        return tune(data, **{"target": "target", "trials": 2, **QUICK, **where, **changes})

    return called


@pytest.fixture(scope="module")
def summary(server: str, call: Callable[..., dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG001
    return call(table())


def run_of(name: str) -> Any:
    return max((r for r in flow_runs() if r.name.startswith(name)), key=lambda r: r.created)


def test_prefect_is_told_a_name_and_the_store_has_the_content(summary, folder) -> None:
    assert summary["state"] == "complete"
    assert summary["data"].startswith("dataframe:")
    assert run_of("frame").parameters["data"] == summary["data"]
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    stored = Ledger(store.database).study("frame")
    pd.testing.assert_series_equal(
        load_dataset(store, stored.problem["dataset"]).X["a"], table()["a"], check_index=False
    )


def test_it_is_the_search_that_a_file_has(summary, call, folder) -> None:
    of_file = call(str(write_table(folder)), study="file")
    assert of_file["incumbent"] == summary["incumbent"]
    assert of_file["test_loss"] == summary["test_loss"]


def test_it_is_continued_with_the_same_rows_and_no_others(summary, call) -> None:
    frame = table()
    split = call(frame.drop(columns="target"), target=frame["target"], trials=3)
    assert (split["n_trials"], summary["n_trials"]) == (3, 2)
    assert call(summary["data"], trials=4)["n_trials"] == 4  # as Prefect tries a flow run again
    with pytest.raises(BadInput, match="made with other data"):
        call(frame.assign(a=0.0))
    with pytest.raises(BadInput, match="give the DataFrame once more"):
        call(summary["data"], study="new")


def test_its_test_rows_may_be_a_dataframe_too(call, folder) -> None:
    test = table(60, seed=3)
    test.to_csv(folder / "test.csv", index=False)
    given = call(table(), study="tested", test=test.set_axis(range(100, 160)))
    of_file = call(str(write_table(folder)), study="of-file", test=str(folder / "test.csv"))
    assert given["test_loss"] == of_file["test_loss"]
    assert given["incumbent"] == of_file["incumbent"]
    assert run_of("tested").parameters["test"].startswith("dataframe:")


@pytest.mark.parametrize(
    ("data", "test", "message"),
    [
        ("cohort:demo", table(9), "test is a DataFrame, and data is not"),
        (table(), table(9).drop(columns="target"), "the DataFrame of test rows has no column"),
        (table(), table(9).drop(columns="a"), "the DataFrame of test rows"),
        (table(), table(9).assign(a=["x", 1] * 4 + [2]), "'a' of the DataFrame of test rows"),
    ],
)
def test_test_rows_that_cannot_be_used_are_named(call, data, test, message) -> None:
    with pytest.raises(BadInput, match=message):
        call(data, study="untested", test=test)


def test_without_test_rows_no_test_loss_is_shown(call) -> None:
    summary = call(table(), study="all", test_size=0, ensemble="2")
    assert summary["state"] == "complete"
    assert (summary["test_loss"], summary["single_best_test_loss"]) == (None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": table().rename(columns={"a": "b"})}, "two columns called 'b'"),
        ({"target": np.zeros(3)}, "3 values, and the DataFrame 150 rows"),
        ({"metric": "r3"}, "r3"),
        ({"trials": 0}, "--trials 0"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_flow_run(call, change, message) -> None:
    before = len(flow_runs())
    with pytest.raises(ValueError, match=message):
        call(**{"data": table(), "study": "refused", **change})
    assert len(flow_runs()) == before


IN_LOOP = """
import asyncio
from prefect_tune import local_server, retry, tune

async def main():
    with local_server():
        given = {"space": "small", "race": False, "study": "one"}
        tune("table.csv", target="target", trials=1, workers=1, **given)
        print(retry("one")["n_trials"])

asyncio.run(main())
"""


def test_a_server_of_its_own_is_told_all_where_an_event_loop_runs(tmp_path) -> None:
    write_table(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IN_LOOP],
        cwd=tmp_path,
        env={**environment(tmp_path / "home"), "PREFECT_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["1"], done.stderr
    assert not done.stderr


def test_it_runs_where_an_event_loop_runs(call) -> None:
    async def in_loop() -> dict[str, Any]:
        return call(table(), study="loop", trials=1)

    assert asyncio.run(in_loop())["state"] == "complete"
