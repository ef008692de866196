"""Runs of a series on growing data: a real Prefect server, real worker processes."""

from pathlib import Path
from typing import Any

import pytest
from inputs import QUICK, table
from observing import Interrupting
from prefect_api import artifacts, flow_runs

from prefect_tune.flows.series.next_study import SKIPPED
from prefect_tune.flows.series.view import read_series
from prefect_tune.flows.study.progress import observed_by
from prefect_tune.flows.tune import tune
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress

pytestmark = pytest.mark.usefixtures("server")


def newest_flow_run() -> Any:
    return max(flow_runs(), key=lambda run: run.created)


def test_series_on_growing_data_starts_resumes_and_skips_studies(
    tmp_path: Path, monkeypatch
) -> None:
    """Each run reads the first rows of one table."""
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))

    def run_on(n_rows: int, trials: int) -> dict[str, Any]:
        table(300).iloc[:n_rows].to_csv(tmp_path / "t.csv", index=False)
        return tune(
            data=str(tmp_path / "t.csv"), target="target", store=store.address.url,
            series="growing", trials=trials, workers=2, **QUICK,
        )  # fmt: skip

    with observed_by(Interrupting(2)), pytest.raises(KeyboardInterrupt):
        run_on(150, 5)
    assert read_series(store, "growing").runs[-1].state == "interrupted"
    summary = run_on(180, 5)  # the interrupted night continues on its own data
    assert (summary["study"], summary["state"], summary["n_begun"]) == ("growing-1", "complete", 5)
    run = newest_flow_run()
    assert run.name.startswith("growing-1 (")
    assert {"series:growing", "study:growing-1"} <= set(run.tags)
    [page] = [artifact for artifact in artifacts(run.id) if artifact.key == "growing-champion"]
    assert page.type == "markdown"
    assert "growing-1" in page.data

    summary = run_on(150, 3)  # nothing has changed
    run = newest_flow_run()
    assert (run.state.name, run.state.type) == (SKIPPED, "COMPLETED")
    assert "growing-1" in run.state.message
    assert "series:growing" in run.tags
    assert artifacts(run.id) == []
    assert (summary["study"], summary["n_trials"]) == ("growing-1", 5)
    with monkeypatch.context() as patched:
        patched.setattr("prefect_tune.flows.series.next_study.get_client", lambda **_: 1 // 0)
        run_on(150, 3)  # nothing has changed, and Prefect cannot be told
    assert newest_flow_run().state.name == SKIPPED

    summary = run_on(180, 7)  # new data
    assert summary["study"] == "growing-2"
    view = read_series(store, "growing")
    assert [(run.study, run.rows, run.skipped) for run in view.runs] == [
        ("growing-1", 150, 2), ("growing-2", 180, 0),
    ]  # fmt: skip
    last = view.runs[-1]
    assert (last.state, last.loss) == ("complete", summary["incumbent"]["loss"])
    assert (last.test_loss, last.changes.rows_added) == (summary["test_loss"], 30)
    assert last.reused.weight == summary["decisions"]["prior"]["weight"]
    assert summary["series"] == {"name": "growing", "run": 2, "champion": view.champion.study}
    assert not store.leases.holder("series growing")
