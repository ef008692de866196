"""A study whose store is unreachable for a while, and the warnings that the user gets."""

import json
from pathlib import Path

import pytest
from inputs import write_table
from pools import GATED, Gate
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect_api import client_of, flow_runs
from processes import run_json, started
from studies import trials_in


def warnings_logged(server: str, study: str) -> list[str]:
    """Return warnings in Prefect's log of the last flow run of a study."""
    name = f"{study} (random)"
    runs = [r for r in flow_runs(server) if r.name == name and r.start_time]
    last = max(runs, key=lambda run: str(run.start_time))
    only = LogFilterFlowRunId(any_=[last.id])
    with client_of(server) as client:
        logs = client.read_logs(LogFilter(flow_run_id=only), limit=200)
    return [log.message for log in logs if log.level >= 30]


def warnings_in(printed: str) -> list[str]:
    """Return warnings among lines of `--json-lines` or among plain lines."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{"):
            found += [json.loads(line).get("warning", "")]
        elif line.startswith("Warning: "):
            found += [line.removeprefix("Warning: ")]
    return found


@pytest.mark.parametrize("options", [(), pytest.param(("--json-lines",), marks=pytest.mark.full)])
def test_temporarily_missing_store_costs_no_trial_and_gives_a_warning(
    server: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "gated.py").write_text(GATED.format(folder=str(tmp_path / "gate")))
    gate = Gate(tmp_path / "gate")
    home, store, hidden = tmp_path, tmp_path / "store", tmp_path / "hidden"
    command = (
        "run", write_table(tmp_path), "--target", "target", "--space", f"{tmp_path}/gated.py:space",
        "--method", "random", "--workers", 1, "--study", "s", "--trials", 6, "--no-cache", *options,
    )  # fmt: skip

    with started(*command, home=home, server=server) as process:
        gate.arrived()
        store.rename(hidden)
        gate.open()
        printed, stream = "", process.stdout if options else process.stderr
        while "waiting at most" not in printed:
            printed += (line := stream.readline())  # type: ignore[union-attr]
            assert line, printed
        assert not store.exists()
        hidden.rename(store)
        printed += stream.read()  # type: ignore[union-attr]
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert [(t["state"], t["attempts"]) for t in trials_in(store, "s")] == [("complete", 1)] * 6
    noted, shown, logged = (
        sorted(text for text in texts if "waiting at most" in text)
        for texts in (
            run_json("show", "s", home=home, server=server)["notes"],
            warnings_in(printed),
            warnings_logged(server, "s"),
        )
    )
    assert noted == shown == logged
    assert len(set(noted)) == len(noted) > 0
