"""Benchmarks run only on demand; here they are imported, and their recorded figures are read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from claims import CLAIMS, RECORDS, figures
from curve_tables import ON_DATA, ON_DIGITS, load_table
from peer_tools.report import RECORDED, at_stages, mean_ranks, ratio

TESTS = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.full]
PAGE = (TESTS.parent / "deployments/docs/pages/benchmarks.md").read_text()
BENCHMARKS = [TESTS / "benchmarks" / "claims.py", *sorted((TESTS / "benchmarks").glob("*/*.py"))]


def test_every_benchmark_can_be_imported() -> None:
    load = (
        "import runpy, sys\n"
        "for path in sys.argv[1:]:\n"
        "    sys.path[0] = path.rpartition('/')[0]\n"
        "    runpy.run_path(path, run_name='benchmark')"
    )
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'benchmarks'}"}
    subprocess.run([sys.executable, "-c", load, *map(str, BENCHMARKS)], env=environment, check=True)
    assert len(BENCHMARKS) > 10


def test_benchmark_command_finds_a_benchmark_by_room_and_name() -> None:
    command = [TESTS / "benchmarks" / "run", "flows/large_tables", "--help"]
    assert "--only" in subprocess.check_output(command, text=True)


@pytest.mark.parametrize("name", [*ON_DATA, *ON_DIGITS])
def test_recorded_curves_are_part_of_the_repository(name: str, tmp_path: Path) -> None:
    table = load_table(name, tmp_path)
    assert len(set(table.configurations)) == 400
    assert table.losses.shape == table.tests.shape == table.seconds.shape == (400, table.epochs)
    assert np.all((table.losses >= 0) & (table.losses <= 100))
    is_trained = table.seconds > 0
    assert is_trained.any(axis=1).mean() > 0.9
    assert np.all(table.losses[~is_trained] == 100)


def test_figures_of_the_methods_claims_match_the_stored_runs() -> None:
    stored = pd.read_parquet(RECORDS)
    assert set(stored["claim"]) <= set(CLAIMS)
    assert stored[["command", "revision", "machine"]].notna().all(axis=None)
    for name, runs in stored.groupby("claim"):
        assert "\n".join(figures(str(name), runs)) in PAGE


def test_figures_on_the_benchmark_page_match_the_recorded_runs() -> None:
    frame = pd.read_parquet(RECORDED)
    tables = PAGE.split("## Other tools")[1].split("\n\n")
    rows = next(part for part in tables if part.startswith("|")).splitlines()[2:]
    shown = [line.strip("|").split("|") for line in rows]
    ranks = [mean_ranks(losses) for losses in at_stages(frame, "test_loss").values()]
    final = frame[(frame["model"] == "answer") & (frame["stage"] == frame["budget"])]
    by_tool = dict(list(final.groupby("tool")))
    assert len(shown) == len(by_tool) == 5
    for name, *of_ranks, of_ratio in shown:
        word = name.split()[0].lower()
        tool = {"prefect-tune": "ours", "smac3": "smac"}.get(word, word)
        found = [f"{rank[tool]:.2f}" if tool in rank else "" for rank in ranks]
        assert [cell.strip() for cell in of_ranks] == found
        if tool != "ours":
            mean, error, _ = ratio(by_tool["ours"], by_tool[tool])
            assert re.findall(r"\d\.\d+", of_ratio) == [f"{mean:.3f}", f"{error:.3f}"]
            assert name.split()[1] == by_tool[tool]["version"].iloc[0]
