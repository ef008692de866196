"""Progress of a study that runs: a live header on a terminal, plain lines elsewhere."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.live import Live

from prefect_tune.deployments.views.console import PlainConsole, bold, line
from prefect_tune.deployments.views.plain import echo
from prefect_tune.flows.progress import Observer, Progress
from prefect_tune.flows.units import counted, format_seconds, loss_name
from prefect_tune.optimizers.space.rendering import fidelity_text
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.privacy.masking import masked_values

__all__ = ["observer_for", "standing"]


@contextmanager
def observer_for(*, quiet: bool, json_lines: bool) -> Iterator[Observer]:
    """Yield the observer that fits the output: a terminal, a pipe, JSON, or none."""
    if json_lines:
        yield _JsonLines()
    elif quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        console = PlainConsole(stderr=True, highlight=False)
        with Live(console=console, transient=True, refresh_per_second=4) as live:
            yield _Header(live)
    else:
        yield _Lines()


class _Silent:
    """Says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Nothing."""

    def tick(self, progress: Progress) -> None:
        """Nothing."""


class _Lines(_Silent):
    """One plain line per trial, to standard error."""

    def note(self, text: str) -> None:
        """Print one line."""
        echo(text, err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """One line."""
        echo(f"{_outcome(trial)}  |  {standing(progress)}", err=True)


class _JsonLines(_Silent):
    """One line of JSON per trial, to standard output."""

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """One line."""
        click.echo(json.dumps(masked_values(trial.to_json()), separators=(",", ":")))


class _Header(_Silent):
    """One live line that stays at the bottom; failures and notes scroll above it."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def note(self, text: str) -> None:
        """Print one line above the header."""
        self._live.console.print(text, style="dim")

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Failures and new incumbents scroll by; the header changes."""
        if trial.failure is not None or progress.incumbent == trial:
            style = "yellow" if trial.failure else "green"
            self._live.console.print(_outcome(trial), style=style)
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """The header."""
        self._live.update(line(bold(standing(progress))))


def _outcome(trial: Trial) -> str:
    path = " > ".join(trial.query.configuration.path)
    if fidelity := fidelity_text(trial.query.to_json()):
        path += f"  ({fidelity})"
    if trial.failure is not None:
        where = f"{trial.failure.step}: " if trial.failure.step else ""
        return f"trial {trial.number:>3}  failed  {where}{trial.failure.message}  {path}"
    assert trial.evaluation is not None  # noqa: S101 - it has ended
    cost = format_seconds(trial.evaluation.cost_seconds)
    return f"trial {trial.number:>3}  {trial.evaluation.loss:<8.4g} {cost:>6}  {path}"


def standing(progress: Progress) -> str:
    """Return where a study stands, in one line."""
    of_trials = f"/{progress.trials_total}" if progress.trials_total else ""
    n_trials = counted(progress.n_trials, "trial")
    if progress.can_go_on:
        begun = f"{progress.n_begun}{of_trials} configurations begun"
        parts = [begun, f"{n_trials}, {progress.n_stopped} in part"]
    else:
        parts = [f"{progress.n_trials}{of_trials} trials" if of_trials else n_trials]
    if progress.n_failed:
        parts.append(f"{progress.n_failed} failed")
    if progress.incumbent is not None:
        unit = " %" if progress.unit == "percent" else ""
        metric = loss_name(progress.metric)
        fidelity = fidelity_text(progress.incumbent.query.to_json())
        of = f" ({fidelity})" if fidelity else ""
        parts.insert(0, f"best {metric} {progress.incumbent.loss:.4g}{unit}{of}")
    if progress.seconds_total is not None:
        left = max(progress.seconds_total - progress.seconds, 0)
        parts.append(f"{format_seconds(left)} left")
    saved = format_seconds(max(progress.seconds_saved, 0))
    parts.append(f"cache {progress.cache_hits} hits, {saved} saved")
    return " · ".join(parts)
