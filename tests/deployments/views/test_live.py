"""A line for each trial of a study that runs."""

import sys
from dataclasses import replace
from io import BytesIO, TextIOWrapper

import pytest
from worlds import mixed_space

from prefect_tune.deployments.views.live import observer_for
from prefect_tune.flows.progress import Progress
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))
PROGRESS = Progress(
    study="s", metric="error", unit="percent", n_trials=5, n_failed=1, n_running=2, trials_total=9,
    seconds=3.0, seconds_total=None, incumbent=None, cache_hits=4, seconds_saved=2.0,
)  # fmt: skip


@pytest.fixture
def line(capsys):
    def shown(query: Query, progress: Progress) -> str:
        trial = Trial(4, query).started().ended(Evaluation(0.5, cost_seconds=2.0))
        with observer_for(quiet=False, json_lines=False) as observer:
            observer.ended(trial, progress)
        return capsys.readouterr().err.strip()

    return shown


def test_a_full_trial_is_one_of_the_trials_in_all(line) -> None:
    said = line(QUERY, PROGRESS)
    assert said.startswith("trial   4  0.5        2.0s  unit > svm  |  5/9 trials · 1 failed")


def test_a_stretch_says_of_what_it_is_and_stopped_ones_are_counted_apart(line) -> None:
    said = line(replace(QUERY, folds=1), replace(PROGRESS, n_stopped=3, n_begun=2, can_go_on=True))
    assert "unit > svm  (folds 1)  |  " in said
    assert "2/9 configurations begun · 5 trials, 3 in part · 1 failed" in said


def test_the_best_one_says_of_what_it_is(line) -> None:
    best = Trial(2, replace(QUERY, subset=0.125)).started().ended(Evaluation(12.5))
    assert "|  best error 12.5 % (subset 1/8) · " in line(QUERY, replace(PROGRESS, incumbent=best))
    whole = Trial(2, QUERY).started().ended(Evaluation(12.5))
    assert "|  best error 12.5 % · " in line(QUERY, replace(PROGRESS, incumbent=whole))


@pytest.mark.parametrize(("encoding", "is_live"), [("ascii", False), ("utf-8", True)])
def test_a_terminal_without_utf_8_gets_plain_lines(monkeypatch, encoding, is_live) -> None:
    screen = BytesIO()
    terminal = TextIOWrapper(screen, encoding, "strict", write_through=True)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    trial = Trial(4, QUERY).started().ended(Evaluation(0.5, cost_seconds=2.0))
    with observer_for(quiet=False, json_lines=False) as observer:
        observer.ended(trial, PROGRESS)
    written = screen.getvalue()
    assert (b"trial   4" in written) is not is_live  # a live view scrolls only incumbents by
    assert (b"\x1b[" in written) is is_live
