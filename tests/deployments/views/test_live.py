"""Terminal output of a running study fits the terminal, and shows user texts literally."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper

import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from worlds import mixed_space

from prefect_tune.deployments.cli.output import print_json
from prefect_tune.deployments.views.console import PlainConsole, bold, line
from prefect_tune.deployments.views.live import LiveLines, observer_for
from prefect_tune.flows.study.progress import Progress, RunningTrial, StudyTotals
from prefect_tune.flows.wording.text import Whole, printable
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))
PART = replace(QUERY, folds=1)
PROGRESS = Progress(
    study="s", metric="error", trials_total=9, seconds=3.0, seconds_total=None, incumbent=None,
    totals=StudyTotals(told=5, failed=1, cache_hits=4, seconds_saved=2.0),
    whole=Whole(3, None),
)  # fmt: skip
RESUMED = replace(PROGRESS, n_begun=2)
PATH = ("aggregate", "keep_sparse", "none", "none", "gradient_boosting")
STEPS = ("construct features", "impute", "fit model")


def led_by(query: Query, loss: float) -> Trial:
    return Trial(2, query).started().completed(Evaluation(loss))


def running(n: int = 2) -> Progress:
    """Return a study with `n` running trials."""
    of_trials = tuple(
        RunningTrial(20 + i, PATH, 3.0 + 7 * i, 30.0, STEPS[i % 3], i % 3) for i in range(n)
    )
    return replace(
        RESUMED, trials_total=40, seconds=120.0, seconds_total=600.0, n_begun=20,
        totals=StudyTotals(told=18, failed=2, partial=7, cache_hits=123, seconds_saved=44.0),
        incumbent=led_by(QUERY, 8.667), running=of_trials, phase="expected improvement per second",
    )  # fmt: skip


def drawn(
    of: Progress, *failures: str, columns: int = 140, lines: int = 30, waited: float = 0.0
) -> list[str]:
    """Return the screen of a terminal of that size, `waited` seconds after the last progress."""
    live, screen = LiveLines(), pyte.Screen(columns, lines)
    live.show(of)
    live.since -= waited
    live.failures.extend(failures)
    file = StringIO()
    terminal = PlainConsole(
        file=file, width=columns, height=lines, highlight=False, force_terminal=True
    )
    with Live(live, console=terminal, auto_refresh=False):
        pyte.Stream(screen).feed(file.getvalue().replace("\n", "\r\n"))
    return [row.rstrip() for row in screen.display if row.strip()]


def test_lines_and_screens_of_a_study_equal_the_golden_file(capsys, file_regression) -> None:
    partial = replace(RESUMED.totals, partial=3)
    for query, progress in (
        (QUERY, PROGRESS),
        (PART, replace(RESUMED, totals=partial)),
        (QUERY, replace(RESUMED, n_begun=1, trials_total=None)),
        (QUERY, replace(PROGRESS, incumbent=led_by(replace(QUERY, subset=0.125), 12.5))),
        (QUERY, replace(PROGRESS, incumbent=led_by(QUERY, 12.5))),
    ):
        trial = Trial(4, query).started().completed(Evaluation(0.5, cost_seconds=2.0))
        with observer_for(quiet=False, json_lines=False) as observer:
            observer.ended(trial, progress)
    shown = [capsys.readouterr().err]
    failures = "trial 1 failed", "trial 2 failed", "trial 3 [b]x[/b] \x1b[2Jgone\nand so on"
    for progress in (
        running(),
        replace(running(0), seconds_total=250.0),  # time ends it
        replace(running(0), trials_total=None),
    ):
        rows = drawn(progress, *failures)
        shown.append("\n".join(" ".join(row.strip("━╸").split()) for row in rows))
    file_regression.check("\n\n".join(shown).replace("━", "").replace("╸", ""), extension=".txt")


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (60, 50), (200, 3)])
@pytest.mark.parametrize("n_running", [0, 16])
def test_display_of_a_study_fits_into_any_terminal(columns, lines, n_running) -> None:
    failure = "trial   7  failed  " + 30 * "no rows "
    seen = drawn(running(n_running), failure, columns=columns, lines=lines)
    assert seen[0].startswith("best error")


def test_seconds_without_progress_are_counted() -> None:
    ending = replace(running(0), phase="final model", seconds_total=None, trials_total=None)
    assert drawn(ending)[1] == "final model"
    assert drawn(ending, waited=12.0)[1] == "final model · 12s so far"


@pytest.mark.parametrize(("encoding", "is_live"), [("ascii", False), ("utf-8", True)])
def test_terminal_without_utf_8_gets_plain_lines(monkeypatch, encoding, is_live) -> None:
    screen = BytesIO()
    terminal = TextIOWrapper(screen, encoding, "strict", write_through=True)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    trial = Trial(4, QUERY).started().completed(Evaluation(0.5, cost_seconds=2.0))
    with observer_for(quiet=False, json_lines=False) as observer:
        observer.ended(trial, PROGRESS)
    written = screen.getvalue()
    assert (b"trial   4" in written) is not is_live  # a live view scrolls only incumbents by
    assert (b"\x1b[" in written) is is_live
    seen = pyte.Screen(80, 24)
    pyte.ByteStream(seen).feed(written.replace(b"\n", b"\r\n"))
    is_left = any("no trial meets" in row for row in seen.display)
    assert is_left is not is_live


@given(st.text())
@example("[/x]")
@example("[link=file:///etc]a[/link]")
@example("\x1b[2J\x1b]0;owned\x07")
@example("\u202egnp.exe")
@example("\x9b2J")
@example("postgresql://ann:secret@db/tune")
def test_displayed_text_is_complete_and_free_of_control_characters(text: str) -> None:
    out, table = StringIO(), Table(text or "-")
    plain = PlainConsole(
        file=out, force_terminal=True, highlight=False, soft_wrap=True, width=2_000
    )
    table.add_row(text)
    for shown in (text, line("  ", text, bold(text)), table):
        plain.print(shown)
    said = out.getvalue()
    for own in ("\x1b[1m", "\x1b[0m", "\x1b[1;"):
        said = said.replace(own, "")
    assert not [part for part in ("\x1b", "\x9b", "\r", "secret") if part in said]
    for part in printable(text).split("\n"):
        assert part.expandtabs() in said or part in said


def test_json_contains_no_password(capsys) -> None:
    print_json({"url": "postgresql://ann:secret@db/tune", "mail": "a@b"})
    document = json.loads(capsys.readouterr().out)
    assert document == {"url": "postgresql://ann:***@db/tune", "mail": "a@b"}


PROGRAM = """
from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.deployments.views.console import echo
from prefect_tune.deployments.views.result_stream import result_apart

with result_apart():
    echo("café ▁█")
    CONSOLE.print("café ▁█")
"""


@pytest.mark.slow
def test_unencodable_characters_become_question_marks() -> None:
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [b"caf? ??"] * 2), done.stderr
