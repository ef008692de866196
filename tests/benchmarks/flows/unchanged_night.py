"""How long a run of a series takes that has nothing to do, on 100 MB of data.

    tests/benchmarks/run flows/unchanged_night

A series whose study is complete is run again in a new process, with a private Prefect server: on
the same file, on the file written again, and on the same rows in another file, which is read. The
seconds from the state Running to the final state are to be at most 10.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pandas as pd
from flow_studies import prepare_study
from machine import Goals, describe
from processes import environment

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.storage.ledger import Ledger

ROWS, COLUMNS = 540_000, 20
LONGEST_SECONDS = 10.0
NIGHT = """
import json, sys
from prefect_tune import local_server, tune
from prefect_api import flow_runs
with local_server():
    tune(**json.loads(sys.argv[1]))
    run = max(flow_runs(), key=lambda run: run.created)
print(json.dumps([run.state.name, (run.end_time - run.start_time).total_seconds()]))
"""


def written(path: Path) -> Path:
    """A table of 100 MB as CSV."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.normal(size=(ROWS, COLUMNS)), columns=[f"x{n}" for n in range(COLUMNS)]
    )
    frame["target"] = np.where(frame["x0"] + rng.normal(size=ROWS) > 0, "yes", "no")
    frame.to_csv(path, index=False, float_format="%.6f")
    return path


def completed(given: dict[str, Any]) -> None:
    """Enter the first study of the series as complete; it needs no trials."""
    first = prepare_study({**dict.fromkeys(OPTIONS), **given})
    Ledger(first.store.database).update_study(first.name, state="complete")
    first.release()
    first.store.close()


def night(given: dict[str, Any], home: Path) -> tuple[str, float, float]:
    """Run the series in a new process; its final state, the seconds in Running, and in all."""
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", NIGHT, json.dumps(given)],
        env=environment(home), capture_output=True, text=True, check=True,
    )  # fmt: skip
    state, seconds = json.loads(done.stdout.splitlines()[-1])
    return state, seconds, perf_counter() - started


def main() -> None:
    print(describe())
    goals = Goals()
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "table.csv")
        print(f"table of {path.stat().st_size / 1e6:.0f} MB")
        given = {
            "data": str(path), "target": "target", "store": f"{folder}/store", "series": "nightly",
            "space": "small", "method": "random", "trials": 1,
        }  # fmt: skip
        completed(given)
        again = path.read_bytes()
        for name in ("same file", "file written again", "other file"):
            if name == "file written again":
                sleep(0.1)
                path.write_bytes(again)
            if name == "other file":
                given["data"] = str(path.rename(path.with_name("later.csv")))
            state, running, total = night(given, Path(folder) / "home")
            print(f"{name}: {state} after {total:.1f} s in all")
            goals.at_least(f"{name}: skipped", state == "Skipped", 1)
            goals.at_most(f"{name}: seconds after Running", running, LONGEST_SECONDS)
    goals.end()


if __name__ == "__main__":
    main()
