"""Our default beside a tuned LightGBM and MEDS-Tab on patient events, by AUROC of test patients.

    tests/benchmarks/run flows/events_peers --out FOLDER DATA:LABELS ...
        [--tools ours,tuned_lightgbm,meds_tab] [--seeds 5] [--budget 120]

DATA is a set of events in any format of ours, LABELS a table of labels of two classes, which may
lie below DATA. A third of the patients, stratified by label and drawn by the set's name and the
seed's number, test; all tools have the same. Ours is `prefect-tune run` with its defaults and
`--metric auroc`, on all cores, within the budget; the others take the seconds that their trials
need, which are printed; `peer_tools/event_adapters/` says what each does. `ours:space=healthcare`
is a tool with options, which may be there several times, and `meds_tab:extremes=mended` too.

FOLDER gets `scores.parquet`, a row for each test label of each run, and `runs/` with the logs. What
is there is not run again, so that an interrupted benchmark goes on where it was, and with all of it
there the same command prints the report alone. Differences are means over seeds, with the standard
error of 2,000 draws of patients. What `prefect-tune[peers]` has is installed beside what is there,
MEDS-Tab in an environment of its own.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import monotonic
from types import ModuleType

import pandas as pd
from machine import describe
from peer_tools.event_report import goals, report
from peer_tools.event_sets import ID, LABEL, EventSet, EventSplit
from peer_tools.rows import Rows
from peer_tools.runs import Tool
from sklearn.metrics import roc_auc_score

ROOT = Path(__file__).parents[3]
TOOLS = "ours,tuned_lightgbm,meds_tab"
PEERS = ("tuned_lightgbm", "meds_tab")
"""Those of the goals."""
say = partial(print, flush=True)


def adapter(tool: Tool) -> ModuleType:
    """The module of a tool."""
    return import_module(f"peer_tools.event_adapters.{tool.name}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+", metavar="DATA:LABELS", type=EventSet.of)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tools", default=TOOLS)
    parser.add_argument("--seeds", type=int, default=5, help="how many splits of each set")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of ours")
    chosen = parser.parse_args(arguments)
    home = chosen.out.absolute()
    home.mkdir(parents=True, exist_ok=True)
    rows = Rows(home / "scores.parquet")
    tools = [Tool.of(label) for label in chosen.tools.split(",")]
    say(describe())
    for tool in tools:
        prepare(tool, home)
    keys, failed = [], []
    for number, source, tool in product(range(chosen.seeds), chosen.sets, tools):
        budget = chosen.budget if tool.name == "ours" else 0.0
        key = {"tool": tool.label, "table": source.name, "split": number, "budget": budget}
        if not rows.has(key):
            try:
                rows.add(run(tool, source.split(number, home / "splits"), key, home))
            except subprocess.CalledProcessError as error:
                say(f"{tool.label} on {source.name} {number} FAILED: {error}")
                failed.append(f"{tool.label} on {source.name} {number}")
                continue
        keys.append(key)
    if not keys:
        sys.exit("no run has scores")
    found = rows.of(keys)
    report(found)
    reached = goals(found, [tool.label for tool in tools if tool.label in PEERS])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the same command tries again")
    reached.end()


def prepare(tool: Tool, home: Path) -> None:
    """Install what a tool needs, if it is not there."""
    if tool.name == "tuned_lightgbm" and find_spec("optuna") is None:
        install = [ROOT / "deployments" / "install", "--inexact", "--extra", "peers"]
        subprocess.run(install, check=True)
    if install_for := getattr(adapter(tool), "prepare", None):
        install_for(home, shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv"))


def run(
    tool: Tool, split: EventSplit, key: dict[str, object], home: Path
) -> list[dict[str, object]]:
    """Run a tool on a split, and return a row for each test label.

    Raises:
        CalledProcessError: If it fails; its log is in its folder.
    """
    folder = home / "runs" / f"{tool.label}-{key['table']}-{split.number}".replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    load, started = os.getloadavg()[0], monotonic()
    scores = adapter(tool).predictions(split, folder, float(str(key["budget"])), tool.options)
    seconds, load = monotonic() - started, max(load, os.getloadavg()[0])
    labels = split.labels("test")
    assert not pd.isna(scores).any(), f"{tool.label} has no score for some labels"
    area = roc_auc_score(labels[LABEL], scores)
    say(
        f"{tool.label} on {key['table']} {split.number}: AUROC {area:.4f}, {seconds:.0f} s; "
        f"{describe()}"
    )
    for big in ("home", "prefect", "models", "tabularize"):  # logs and labels stay
        shutil.rmtree(folder / big, ignore_errors=True)
    return [
        {**key, "patient": str(patient), "truth": truth, "score": score, "seconds": seconds,
         "load": load}
        for patient, truth, score in zip(
            labels[ID], labels[LABEL].tolist(), scores.tolist(), strict=True
        )
    ]  # fmt: skip


if __name__ == "__main__":
    main()
