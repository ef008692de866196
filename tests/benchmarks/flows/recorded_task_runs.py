"""Whether the server keeps every task run of a long study.

    tests/benchmarks/run flows/recorded_task_runs [--trials 500]

Runs a study of that many trials on a tiny table with `--task-runs steps` (7 task runs a trial; 1430
trials make 10,000), then counts what the server has recorded, and in which states.
"""

import argparse
import os
import tempfile
from pathlib import Path
from time import monotonic

from inputs import table
from machine import Goals, describe
from prefect_api import flow_runs, states, task_runs

from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    options = parser.parse_args()
    set_defaults(QUIET_CONSOLE)
    print(describe())
    with tempfile.TemporaryDirectory() as home:
        os.environ["PREFECT_TUNE_HOME"] = home
        path = Path(home, "tiny.csv")
        table(60)[["a", "b", "c", "count", "target"]].to_csv(path, index=False)
        with local_server():
            from prefect_tune.flows.tuning import tune

            started = monotonic()
            summary = tune(
                data=str(path),
                target="target",
                method="random",
                space="small",
                trials=options.trials,
                task_runs="steps",
            )
            seconds = monotonic() - started
            runs = task_runs(flow_runs()[0].id)
    n_trials = sum(run.name.startswith("trial ") for run in runs)
    ended = [run.state is not None and run.state.is_final() for run in runs]
    expected = (options.trials + 1) * 7  # and the refit
    print(
        f"{summary['n_trials']} trials in {seconds:.0f} s "
        f"({expected / seconds:.0f} task runs/s): {len(runs)} task runs recorded of {expected}, "
        f"{n_trials} of them trials; states {dict(states(runs))}"
    )
    goals = Goals()
    goals.at_least("task runs recorded and ended", sum(ended), expected)
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
