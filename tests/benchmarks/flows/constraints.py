"""Limits inside of ADMM beside a search without them whose trials are filtered afterwards.

    tests/benchmarks/run flows/constraints --home FOLDER ada_prior.csv.gz

After figures 2 and 3 of Liu, Ram et al. 2020: 1 - AUROC of the table's class `target`, groups by
bands of age, one limit moved while the other stays. A run has 60 s on one worker, a trial 10 s,
and a fifth of the training rows is held out. The search without limits measures both quantities
too. As many runs go on side by side as there are cores. The home keeps what is done, so that an
interrupted benchmark goes on where it was.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from machine import Goals, describe
from processes import COMMAND, environment, run_json

FREE = (1e9, 1.0)
"""Limits that nothing exceeds: both quantities are measured and neither is limited."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--groups", default="age, bins=20:30:40:50:60:70")
    parser.add_argument("--latencies", default="60,65,75,100,150", help="microseconds a row")
    parser.add_argument("--gaps", default="0.05,0.075,0.1,0.125,0.15")
    parser.add_argument("--gap", default=0.07, type=float, help="while the latency moves")
    parser.add_argument("--latency", default=75.0, type=float, help="while the gap moves")
    parser.add_argument("--repeats", default=3, type=int)
    parser.add_argument("--budget", default="60s")
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    limits = [(float(t), chosen.gap) for t in chosen.latencies.split(",")]
    limits += [(chosen.latency, float(gap)) for gap in chosen.gaps.split(",")]
    print(describe(), flush=True)
    wanted = [(pair, r) for r in range(chosen.repeats) for pair in dict.fromkeys([FREE, *limits])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = dict(zip(wanted, pool.map(lambda one: run(chosen, *one), wanted), strict=True))
    goals = Goals()
    for pair in limits:
        repeats = range(chosen.repeats)
        inside = [compared(runs[pair, r], pair) for r in repeats]
        filtered = [compared(runs[FREE, r], pair) for r in repeats]
        share, without = (np.mean([c[0] for c in each]) for each in (inside, filtered))
        best = [" / ".join(f"{loss:.4f}" for _, loss in each) for each in (inside, filtered)]
        name = f"latency {pair[0]:g} us, gap {pair[1]:g}"
        print(f"{name}: {share:.0%} feasible ({best[0]}); filtered {without:.0%} ({best[1]})")
        if without <= 0.5:
            goals.at_least(f"{name}: times as many feasible", share / max(without, 1e-9), 2)
    goals.end()


def run(chosen: argparse.Namespace, pair: tuple[float, float], repeat: int) -> list[dict[str, Any]]:
    """The trials of a study within these limits."""
    latency, gap = pair
    study = f"limits-{latency:.0f}us-{gap:g}-{repeat}"
    home = chosen.home / study
    limited = (
        "--constraint", f"batch_latency_us<={latency:g}",
        "--constraint", f"disparate_impact({chosen.groups})<={gap:g}",
    )  # fmt: skip
    ours = (
        "--target", "target", "--space", "admm", "--metric", "auroc", "--method", "admm",
        "--holdout", "0.2", "--seed", str(repeat), "--budget", chosen.budget, "--workers", "1",
        "--trial-timeout", "10s", "--study", study, *limited, "--quiet",
    )  # fmt: skip
    shown = home / "trials.json"
    if not shown.exists():
        # It fails when nothing keeps to the limits, which is a result.
        call = [*COMMAND, "run", chosen.table, *ours]
        done = subprocess.run(
            call, env=environment(home), check=False, capture_output=True, text=True
        )
        if done.returncode not in {0, 1}:
            raise RuntimeError(done.stderr)
        shown.write_text(json.dumps(run_json("trials", study, home=home)))
    return list(told(json.loads(shown.read_text())))


def told(document: Any) -> Iterator[dict[str, Any]]:
    """The complete and failed trials."""
    rows = document if isinstance(document, list) else document["trials"]
    yield from (trial for trial in rows if trial["state"] in {"complete", "failed"})


def compared(trials: list[dict[str, Any]], pair: tuple[float, float]) -> tuple[float, float]:
    """The share of the trials within the limits, and the least loss of those."""
    evaluations = [t["evaluation"] for t in trials if t["evaluation"]]
    losses = [e["loss"] for e in evaluations if keeps(e["constraints"], pair)]
    return len(losses) / max(len(trials), 1), min(losses, default=float("nan"))


def keeps(measured: dict[str, float], pair: tuple[float, float]) -> bool:
    latency, gap = (
        next((v for name, v in measured.items() if name.startswith(kind)), float("inf"))
        for kind in ("batch_latency_us", "disparate_impact")
    )
    return latency <= pair[0] and gap <= pair[1]


if __name__ == "__main__":
    main()
