"""Nothing that is shown is markup or steers the terminal, whoever has written it."""

import io
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from worlds import mixed_space

from prefect_tune.deployments.views import (
    artifact,
    comparison,
    console,
    live,
    study,
)
from prefect_tune.deployments.views import (
    artifact as store,
)
from prefect_tune.deployments.views import (
    trial as trials,
)
from prefect_tune.deployments.views.console import PlainConsole, bold, echo, line
from prefect_tune.deployments.views.live_lines import LiveLines
from prefect_tune.flows.progress import Progress, RunningTrial
from prefect_tune.flows.text import shown
from prefect_tune.optimizers import Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind

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
    for part in shown(text).split("\n"):
        assert part.expandtabs() in said or part in said


@pytest.mark.parametrize("text", TEXTS)
def test_studies_and_trials_named_by_others_are_shown_as_they_are(text: str) -> None:
    failure = {"step": text, "fold": 0, "message": text, "cost_seconds": 1.0}
    row = {
        "number": 1,
        "state": "failed",
        "evaluation": None,
        "failure": failure,
        "query": {"configuration": {"a": {"algorithm": text}}, "folds": None, "subset": 1.0},
    }
    with printed(trials, study, artifact, store) as out:
        trials.print_trials([row])
        study.print_studies(
            [
                {
                    "study": text, "state": text, "method": text, "metric": text,
                    "incumbent": None, "n_trials": 1, "n_failed": 0, "data": text,
                }
            ]
        )  # fmt: skip
        artifact.print_contents(
            {"name": text, "size_bytes": 1, "url": text},
            {"shape": [1, 1], "columns": {text: {}}, "rows": [[text]], "columns_not_shown": 0},
        )
        artifact.print_contents(
            {"name": text, "size_bytes": 1, "url": text},
            {"type": text, "fitted": {text: text}},
        )
    said = lines(out)
    assert said.count(shown(text)) >= 13
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "secret" not in said


@pytest.mark.parametrize("text", TEXTS)
def test_live_lines_show_failures_notes_steps_and_phases_as_they_are(text: str) -> None:
    out = io.StringIO()
    plain = PlainConsole(file=out, force_terminal=True, highlight=False, width=2_000)
    query = Query(default_configuration(mixed_space(), ("unit", "svm")))
    failed = Trial(3, query).started().failed(Failure(FailureKind.ERROR, text, step=text))
    progress = Progress(
        study=text, metric=text, unit="", n_trials=1, n_failed=1, n_running=0, trials_total=2,
        seconds=1.0, seconds_total=None, incumbent=None, cache_hits=0, seconds_saved=0.0,
    )  # fmt: skip
    running = RunningTrial(4, (text, text), 1.0, 9.0, text, 0)
    with Live(lines := LiveLines(), console=plain, transient=True, auto_refresh=False):
        terminal = live._Terminal(plain, lines)
        terminal.note(text)
        terminal.ended(failed, progress)
        terminal.tick(replace(progress, running=(running,), phase=text))
        plain.print(lines)
    assert out.getvalue().count(shown(text)) >= 6
    assert text == shown(text) or text not in out.getvalue()


@pytest.mark.parametrize("text", TEXTS)
def test_plain_lines_are_the_same(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo(text)
    live._Lines().note(text)
    captured = capsys.readouterr()
    assert captured.out == captured.err == shown(text) + "\n"
    assert not {"\x1b", "\x9b", "\r", "\u202e"} & set(captured.out)
    assert "secret" not in captured.out


def test_comparisons_name_methods_and_data_of_others() -> None:
    assert comparison.CONSOLE is console.CONSOLE
    assert isinstance(console.CONSOLE, PlainConsole)


def test_json_holds_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    from prefect_tune.deployments.commands.output import print_json

    print_json({"url": "postgresql://ann:secret@db/tune", "mail": "a@b"})
    document = json.loads(capsys.readouterr().out)
    assert document == {"url": "postgresql://ann:***@db/tune", "mail": "a@b"}
