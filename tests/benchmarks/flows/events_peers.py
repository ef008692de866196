"""The default of prefect-tune against a tuned LightGBM on patient events, by test AUROC.

    tests/benchmarks/run flows/events_peers --out FOLDER DATA:LABELS ...
        [--tools ours,tuned_lightgbm] [--seeds 5] [--budget 120]

DATA is a set of events in any supported format, LABELS a table of labels of two classes, which may
lie below DATA. A third of the patients are test patients, stratified by label; the name of the set
and the number of the seed determine the draw. All tools use the same test patients. The tool `ours`
is `prefect-tune run` with its defaults and `--metric auroc`, on all cores, within the budget. The
time of LightGBM is printed but not limited; `peer_tools/event_adapters/` describes both tools.
`ours:space=healthcare` is a tool with options; several such tools may be given.

FOLDER gets `rows/` (a file for each run, a row for each test label), and `runs/` with the logs.
An interrupted benchmark continues with the runs that have no rows. After the last run, the same
command only prints the report. Differences are means over seeds, with the standard error of 2,000
bootstrap samples of patients. The environment needs the extra `prefect-tune[peers]`.
"""

import argparse
import shutil
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from machine import describe
from peer_tools.event_report import goals, report
from peer_tools.event_sets import ID, LABEL, EventSet
from peer_tools.runs import Run, Tool, collected, install_peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+", metavar="DATA:LABELS", type=EventSet.of)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tools", default="ours,tuned_lightgbm")
    parser.add_argument("--seeds", type=int, default=5, help="how many splits of each set")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of ours")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    home: Path = chosen.out.absolute()
    tools = [Tool.of(label) for label in chosen.tools.split(",")]
    if any(tool.name == "tuned_lightgbm" for tool in tools) and find_spec("optuna") is None:
        install_peers()
    sets = {source.name: source for source in chosen.sets}

    def make(run: Run) -> list[dict[str, object]]:
        split = sets[run.table].split(run.split, home / "splits")
        folder = home / "runs" / run.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        module = import_module(f"peer_tools.event_adapters.{run.tool.name}")
        scores = module.predictions(split, folder, run.budget, run.tool.options)
        shutil.rmtree(folder / "home", ignore_errors=True)  # log and labels stay
        labels = split.labels("test")
        rows = zip(labels[ID], labels[LABEL].tolist(), scores.tolist(), strict=True)
        return [{"patient": str(p), "truth": truth, "score": score} for p, truth, score in rows]

    found = collected(
        [
            Run(tool, name, number, chosen.budget if tool.name == "ours" else 0.0)
            for number, name, tool in product(range(chosen.seeds), sets, tools)
        ],
        home,
        make,
    )
    report(found)
    goals(found, [tool.label for tool in tools if not tool.label.startswith("ours")]).end()


if __name__ == "__main__":
    main()
