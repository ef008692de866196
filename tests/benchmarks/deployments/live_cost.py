"""What the live lines on a terminal cost a study, by the CPU of a refresh (two a second).

tests/benchmarks/run deployments/live_cost
"""

from io import StringIO
from time import process_time

from machine import Goals, describe, seconds_of

from prefect_tune.deployments.views.console import PlainConsole
from prefect_tune.deployments.views.live_lines import LiveLines
from prefect_tune.flows.progress import CurvePoint, Progress, RunningTrial

REFRESHES = 200


def refresh_seconds(n_running: int) -> float:
    """Return the CPU of drawing the lines of so many trials under way."""
    path = ("aggregate", "keep_sparse", "none", "none", "none", "gradient_boosting")
    running = tuple(
        RunningTrial(n, path, 3.0 + n, 60.0, "construct features", n % 3) for n in range(n_running)
    )
    curve = tuple(CurvePoint(float(at), 50.0 - at) for at in range(40))
    progress = Progress(
        study="s", metric="error", n_trials=900, n_failed=3, n_running=n_running,
        trials_total=1_000, seconds=60.0, seconds_total=600.0, incumbent=None, cache_hits=900,
        seconds_saved=9.0, running=running, phase="expected improvement per second",
        seconds_left=30.0, curve=curve,
    )  # fmt: skip
    lines = LiveLines()
    lines.show(progress)
    lines.fail("trial 7  failed  fit model: took more than 60 s " * 2)
    console = PlainConsole(file=StringIO(), force_terminal=True, width=100, height=30)
    console.print(lines)
    drawn = (seconds_of(console.print, lines, clock=process_time) for _ in range(REFRESHES))
    return sum(drawn) / REFRESHES


def main() -> None:
    print(describe())
    goals = Goals()
    for n_running in (2, 16, 64):
        share = 100 * 2 * refresh_seconds(n_running)
        goals.at_most(f"two refreshes a second, {n_running} trials, % of a core", share, 1)
    goals.end()


if __name__ == "__main__":
    main()
