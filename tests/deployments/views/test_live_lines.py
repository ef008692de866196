"""The lines at the bottom of a terminal fit it, and say most where it has room for little."""

from dataclasses import replace
from io import StringIO

import pytest
from worlds import mixed_space

from prefect_tune.deployments.views.console import PlainConsole
from prefect_tune.deployments.views.live_lines import LiveLines
from prefect_tune.flows.progress import CurvePoint, Progress, RunningTrial
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration

PATH = ("aggregate", "keep_sparse", "none", "none", "gradient_boosting")
SHOWN = "aggregate > keep_sparse > gradient_boosting"
QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))
STEPS = ("construct features", "impute", "fit model")


def progress(n_running: int = 2) -> Progress:
    running = tuple(
        RunningTrial(20 + i, PATH, 3.0 + 7 * i, 30.0, STEPS[i % 3], i % 3) for i in range(n_running)
    )
    losses = ((2, 48.0), (20, 12.0), (60, 9.2), (100, 8.667))
    return Progress(
        study="s", metric="error", unit="percent", n_trials=18, n_failed=2, n_running=n_running,
        trials_total=40, seconds=120.0, seconds_total=600.0, cache_hits=123, seconds_saved=44.0,
        incumbent=Trial(19, QUERY).started().ended(Evaluation(8.667)), running=running,
        n_stopped=7, n_begun=20, can_go_on=True, phase="expected improvement per second",
        seconds_left=95.0, curve=tuple(CurvePoint(*point) for point in losses),
    )  # fmt: skip


def drawn(
    of: Progress, columns: int = 140, lines: int = 30, *failures: str, later: float = 0.0
) -> list[str]:
    now = [0.0]
    live = LiveLines(clock=lambda: now[0])
    live.show(of)
    for failure in failures:
        live.fail(failure)
    now[0] = later
    file = StringIO()
    PlainConsole(file=file, width=columns, height=lines, highlight=False).print(live)
    return file.getvalue().splitlines()


def test_a_running_trial_has_its_step_its_seconds_its_share_of_the_limit_and_its_path() -> None:
    lines = drawn(progress())
    assert lines[0].startswith("best error 8.667 % · 20/40 configurations begun")
    assert lines[2:] == [
        "trial  21  impute, fold 1                 10s  ███░░░░░ of 30s  " + SHOWN,
        "trial  20  construct features, fold 0    3.0s  █░░░░░░░ of 30s  " + SHOWN,
    ]


def test_the_curve_the_end_and_the_phase_stand_below_the_header() -> None:
    status = drawn(progress())[1]
    assert status.startswith("48 █")
    assert status.endswith("▁▁ 8.67 · done in about 1m35s · expected improvement per second")
    assert "done in" not in drawn(replace(progress(), seconds_left=480.0))[1]  # time ends it
    assert "done in" not in drawn(replace(progress(), seconds_left=None))[1]


def test_seconds_go_on_between_two_reports() -> None:
    (line,) = drawn(progress(1), later=25.0)[2:]
    assert "28s  ███████░ of 30s" in line


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("lines", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("n_running", [0, 1, 16])
def test_any_terminal_has_room_for_them(columns, lines, n_running) -> None:
    seen = drawn(progress(n_running), columns, lines, "trial   7  failed  " + 30 * "no rows ")
    assert 1 <= len(seen) < max(lines, 2)
    assert all(len(line) <= columns for line in seen)


def test_of_many_trials_the_longest_running_are_shown_and_the_others_counted() -> None:
    seen = drawn(progress(16), 60, 10, "trial   7  failed  no rows")
    assert [line[:9] for line in seen if line.startswith("trial")] == [
        f"trial  {number}" for number in (35, 34, 33, 32)
    ] + ["trial   7"]
    assert seen[-2] == "and 12 more"


def test_the_last_two_failures_stay() -> None:
    seen = drawn(progress(), 100, 30, "trial 1 failed", "trial 2 failed", "trial 3 failed")
    assert seen[-2:] == ["trial 2 failed", "trial 3 failed"]


def test_nothing_of_it_is_markup_or_steers_the_terminal() -> None:
    seen = drawn(progress(), 100, 30, "trial 1 failed [bold]x[/bold] \x1b[2Jgone\nand so on")
    assert seen[-1] == r"trial 1 failed [bold]x[/bold] \x1b[2Jgone and so on"


def test_before_anything_is_known_nothing_is_shown() -> None:
    file = StringIO()
    PlainConsole(file=file, width=80, height=20).print(LiveLines())
    assert not file.getvalue().strip()
