"""What a terminal shows of a study that runs: it fits, and nothing in it is markup."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pyte
import pytest
from flow_studies import study_view
from hypothesis import example, given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from worlds import mixed_space

from prefect_tune.deployments.views import (
    artifact,
    console,
    study,
)
from prefect_tune.deployments.views import (
    artifact as store,
)
from prefect_tune.deployments.views import (
    trial as trials,
)
from prefect_tune.deployments.views.console import PlainConsole, bold, line
from prefect_tune.deployments.views.live import LiveLines, observer_for
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.progress import Progress, RunningTrial, StudyTotals
from prefect_tune.flows.wording.text import Whole, printable
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))


PROGRESS = Progress(
    study="s", metric="error", trials_total=9, seconds=3.0, seconds_total=None, incumbent=None,
    totals=StudyTotals(told=5, failed=1, cache_hits=4, seconds_saved=2.0),
    whole=Whole(3, None),
)  # fmt: skip
STOPPED = replace(PROGRESS.totals, stopped=3)


@pytest.fixture
def live_line(capsys):
    def shown(query: Query, progress: Progress) -> str:
        trial = Trial(4, query).started().completed(Evaluation(0.5, cost_seconds=2.0))
        with observer_for(quiet=False, json_lines=False) as observer:
            observer.ended(trial, progress)
        return capsys.readouterr().err.strip()

    return shown


def test_a_full_trial_is_one_of_the_trials_in_all(live_line) -> None:
    said = live_line(QUERY, PROGRESS)
    assert said.startswith("trial   4  0.5 %      2.0s  unit > svm  |  5 of 9 trials")


def test_a_stretch_says_of_what_it_is_and_stopped_ones_are_counted_apart(live_line) -> None:
    said = live_line(
        replace(QUERY, folds=1),
        replace(PROGRESS, totals=STOPPED, n_begun=2, resumes_configurations=True),
    )
    assert "unit > svm (folds 1 of 3)  |  " in said
    assert re.findall(r"\d+", said.partition("|")[2])[:6] == ["2", "9", "5", "1", "3", "1"]


def test_one_configuration_is_not_counted_as_several(live_line) -> None:
    said = live_line(
        QUERY, replace(PROGRESS, n_begun=1, trials_total=None, resumes_configurations=True)
    )
    assert "| 1 configuration " in said.replace("|  ", "| ")


def test_the_best_one_says_of_what_it_is(live_line) -> None:
    best = Trial(2, replace(QUERY, subset=0.125)).started().completed(Evaluation(12.5))
    assert "|  best error 12.5 % (subset 1/8) · " in live_line(
        QUERY, replace(PROGRESS, incumbent=best)
    )
    whole = Trial(2, QUERY).started().completed(Evaluation(12.5))
    assert "|  best error 12.5 % · " in live_line(QUERY, replace(PROGRESS, incumbent=whole))


@pytest.mark.parametrize(("encoding", "is_live"), [("ascii", False), ("utf-8", True)])
def test_a_terminal_without_utf_8_gets_plain_lines(monkeypatch, encoding, is_live) -> None:
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
    assert (
        any("5 of 9 trials" in row for row in seen.display) is not is_live
    )  # nothing of it is left


PATH = ("aggregate", "keep_sparse", "none", "none", "gradient_boosting")


STEPS = ("construct features", "impute", "fit model")


def progress(n_running: int = 2) -> Progress:
    running = tuple(
        RunningTrial(20 + i, PATH, 3.0 + 7 * i, 30.0, STEPS[i % 3], i % 3) for i in range(n_running)
    )
    return Progress(
        study="s", metric="error", trials_total=40, seconds=120.0, seconds_total=600.0,
        totals=StudyTotals(told=18, failed=2, stopped=7, cache_hits=123, seconds_saved=44.0),
        whole=Whole(3, None),
        incumbent=Trial(19, QUERY).started().completed(Evaluation(8.667)), running=running,
        n_begun=20, resumes_configurations=True, phase="expected improvement per second",
    )  # fmt: skip


def drawn(of: Progress, columns: int = 140, lines: int = 30, *failures: str) -> list[str]:
    """What a terminal of a size shows of a study that runs."""
    live, screen = LiveLines(), pyte.Screen(columns, lines)
    live.progress = of
    for failure in failures:
        live.fail(failure)
    file = StringIO()
    console = PlainConsole(
        file=file, width=columns, height=lines, highlight=False, force_terminal=True
    )
    with Live(live, console=console, auto_refresh=False):
        pyte.Stream(screen).feed(file.getvalue().replace("\n", "\r\n"))
    return [row.rstrip() for row in screen.display if row.strip()]


def test_a_running_trial_has_its_step_its_seconds_its_limit_and_its_model() -> None:
    lines = drawn(progress())
    assert lines[0].startswith("best error 8.667 % · 20/40 configurations")
    assert [" ".join(row.replace("━", "").replace("╸", "").split()) for row in lines[2:]] == [
        "trial 21 impute, fold 1 10s of 30s gradient_boosting",
        "trial 20 construct features, fold 0 3.0s of 30s gradient_boosting",
    ]


def test_the_end_and_the_phase_stand_below_the_header() -> None:
    status = drawn(progress())[1]
    done, phase = status.split(" · ")
    assert ("2m27s" in done, phase) == (True, "expected improvement per second")
    assert "done in" not in drawn(replace(progress(), seconds_total=250.0))[1]  # time ends it
    assert "done in" not in drawn(replace(progress(), trials_total=None))[1]


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (60, 50), (200, 3)])
@pytest.mark.parametrize("n_running", [0, 16])
def test_any_terminal_has_room_for_them(columns, lines, n_running) -> None:
    seen = drawn(progress(n_running), columns, lines, "trial   7  failed  " + 30 * "no rows ")
    assert seen[0].startswith("best error")


def test_the_last_two_failures_stay() -> None:
    seen = drawn(progress(), 100, 30, "trial 1 failed", "trial 2 failed", "trial 3 failed")
    assert [line.split()[1] for line in seen[-2:]] == ["2", "3"]
    assert not any(line.startswith("trial 1 ") for line in seen)


def test_nothing_of_it_is_markup_or_steers_the_terminal() -> None:
    seen = drawn(progress(), 100, 30, "trial 1 failed [bold]x[/bold] \x1b[2Jgone\nand so on")
    assert seen[-1] == r"trial 1 failed [bold]x[/bold] \x1b[2Jgone and so on"


TEXTS = [
    "[/x]",
    "[nan]",
    "[bold]",
    "[link=file:///etc]a[/link]",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b2J",
]


TEXTS += [":smile:", "a\rb", "\u202egnp.exe", "postgresql://ann:secret@db/tune"]


@contextmanager
def printed(*views: Any) -> Any:
    """What views print to a terminal, colours and all."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        plain = PlainConsole(
            file=out, force_terminal=True, highlight=False, soft_wrap=True, width=2_000
        )
        for view in (console, *views):
            patched.setattr(view, "CONSOLE", plain)
        yield out


def lines(out: io.StringIO) -> str:
    """Without the styles that are our own."""
    return out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[1;", "")


@given(st.text())
@example("[/x]")
def test_what_is_shown_can_be_seen_and_nothing_else(text: str) -> None:
    with printed() as out:
        console.CONSOLE.print(text)
        console.CONSOLE.print(line("  ", text, bold(text)))
        table = Table(text or "-")
        table.add_row(text)
        console.CONSOLE.print(table)
    said = lines(out)
    assert "\x1b" not in said
    assert "\r" not in said
    for part in printable(text).split("\n"):
        assert part.expandtabs() in said or part in said


@pytest.mark.parametrize("text", TEXTS)
def test_studies_and_trials_named_by_others_are_shown_as_they_are(text: str) -> None:
    failure = {"step": text, "fold": 0, "message": text, "cost_seconds": 1.0}
    row = {
        "number": 1,
        "state": "failed",
        "evaluation": None,
        "failure": failure | {"kind": "error"},
        "query": {"configuration": {"a": {"algorithm": text}}, "folds": None, "subset": 1.0},
    }
    with printed(trials, study, artifact, store) as out:
        trials.print_trials([TrialView(row)], Whole(None, None), {})
        names = dict.fromkeys(("study", "state", "method", "metric", "data"), text)
        study.print_studies([study_view(**names, incumbent=None)])
        file = {"name": text, "size_bytes": 1, "url": text}
        artifact.print_contents(
            file,
            {"shape": [1, 1], "columns": {text: {}}, "rows": [[text]], "columns_not_shown": 0},
        )
        artifact.print_contents(file, {"type": text, "fitted": {text: text}})
    said = lines(out)
    assert said.count(printable(text)) >= 13
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "secret" not in said


def test_json_holds_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    from prefect_tune.deployments.cli.output import print_json

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
@pytest.mark.parametrize(
    ("encoding", "line"), [("ascii", b"caf? ??"), ("utf-8", "café ▁█".encode())]
)
def test_characters_that_the_encoding_lacks_become_question_marks(encoding, line) -> None:
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [line, line]), done.stderr
