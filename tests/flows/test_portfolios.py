"""Portfolios picked from recorded losses, for a table that they were not made from."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from peer_tools import portfolios
from peer_tools.portfolios import LOSSES, Losses, picked, related, start_without
from peer_tools.task import Task

from prefect_tune.optimizers import Configuration
from prefect_tune.tasks.catalogue.portfolios import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named


def rows(losses: dict[str, list[float]], seconds: dict[str, float] | None = None) -> pd.DataFrame:
    """Losses of candidates on tables t0, t1, ..., each in a second unless given."""
    return pd.DataFrame(
        [
            {"configuration": name, "table": f"t{t}", "loss": loss, "seconds": taken}
            for name, of_tables in losses.items()
            for taken in [(seconds or {}).get(name, 1.0)]
            for t, loss in enumerate(of_tables)
        ]
    )


def test_regret_is_0_for_the_best_of_a_table_and_1_for_the_median_and_what_failed() -> None:
    found = Losses.regrets(rows({"a": [1.0, 4.0], "b": [2.0, 3.0], "c": [3.0, np.nan]}))
    assert found["t0"].tolist() == [0.0, 1.0, 1.0]
    assert found["t1"].tolist() == [1.0, 0.0, 1.0]


def test_the_next_one_serves_tables_that_those_before_do_not(monkeypatch) -> None:
    monkeypatch.setattr(portfolios, "_SHARE_OF_AVERAGE", 0.0)
    losses = {
        "most": [0.0, 0.0, 0.0, 9.0], "alike": [0.1, 0.1, 0.1, 9.0], "other": [9.0, 9.0, 9.0, 0.0],
        "bad": [5.0, 5.0, 5.0, 5.0], "worse": [5.0, 5.0, 5.0, 5.0],
    }  # fmt: skip
    assert picked(rows(losses), 2) == ["most", "other"]


def test_of_what_serves_alike_the_cheap_one_comes_first() -> None:
    losses = {"dear": [0.0, 0.0], "cheap": [0.0, 0.0], "bad": [5.0, 5.0], "worse": [5.0, 6.0]}
    assert picked(rows(losses, {"dear": 8.0}), 2)[0] == "cheap"
    assert picked(rows(losses, {"cheap": 8.0}), 2)[0] == "dear"
    assert len(picked(rows(losses), 9)) == 4


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("cal_housing", "cal_housing_reg", True),
        ("wind", "wind.RPT", True),
        ("optdigits_10c", "optdigits", True),
        ("cpu_small", "cal_housing", False),
        ("wind", "wine", False),
    ],
)
def test_versions_of_a_table_are_related(one, other, expected) -> None:
    assert related(one, other) is related(other, one) is expected


def test_a_search_on_a_table_begins_with_what_others_say_of_its_space(tmp_path) -> None:
    assert LOSSES.stat().st_size < 100_000

    def begun_with(table: str) -> list[Configuration]:
        train = str(tmp_path / f"{table}-0-train.parquet")
        task = Task(train, "", "target", "classes", 1.0, 0, 0.0, str(tmp_path))
        documents = json.loads(Path(start_without(task, None)).read_text())
        return [Configuration.from_json(document, space_named("modern")) for document in documents]

    assert begun_with("unknown") == portfolio_of(space_named("modern"))
    assert begun_with("madelon") != portfolio_of(space_named("modern"))
    task = Task("", "", "target", "classes", 1.0, 0, 0.0, str(tmp_path))
    assert start_without(task, "flash") is None
