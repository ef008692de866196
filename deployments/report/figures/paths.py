"""Algorithms tried at each step: how often, and with which losses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.deployments.report.plots import (
    axis,
    figure,
    points,
    scatter,
    shortened,
    visible_losses,
)
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.optimizers.trials.outcome import TrialState

K = TypeVar("K")
_BEST_PATHS = 15
_MOST_ROWS = 60


@dataclass(frozen=True, slots=True)
class Use:
    """Configurations with an algorithm or path, and their full losses (None without one)."""

    n: int
    n_full: int
    n_failed: int
    median_loss: float | None
    best_loss: float | None
    best_trial: int | None


@dataclass(frozen=True, slots=True)
class StepUse:
    """The algorithms of one step, the one with the best loss first."""

    step: str
    algorithms: Mapping[str, Use]


@dataclass(frozen=True, slots=True)
class PathsTried:
    """Distinct paths, the use of each algorithm by step, and the paths with the lowest losses."""

    n: int
    steps: Sequence[StepUse]
    best: Sequence[tuple[Sequence[str], Use]]


@dataclass(slots=True)
class _Outcome:
    path: tuple[str, ...]
    is_failed: bool = False
    best: tuple[float, int] | None = None


class PathsPass:
    """Collector that joins the partial evaluations of each configuration."""

    def __init__(self) -> None:
        self._outcomes: dict[bytes, _Outcome] = {}
        self._steps: Sequence[str] = ()

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        self._steps = self._steps or list(trial.configuration)
        outcome = self._outcomes.setdefault(trial.configuration_text, _Outcome(trial.path))
        if trial.is_full:
            found = trial.loss, trial.number
            outcome.best = min(outcome.best or found, found)
        if trial.state.is_told:
            outcome.is_failed = trial.state == TrialState.FAILED

    def found(self) -> PathsTried:
        """Return the use of each algorithm and of the best paths."""
        tried = [outcome.path for outcome in self._outcomes.values()]
        steps = [
            StepUse(step, self._uses([path[k] for path in tried]))
            for k, step in enumerate(self._steps)
        ]
        paths = self._uses(tried)
        best = [(path, use) for path, use in paths.items() if use.best_loss is not None]
        return PathsTried(len(paths), steps, best[:_BEST_PATHS])

    def _uses(self, keys: Sequence[K]) -> dict[K, Use]:
        groups: dict[K, list[_Outcome]] = {}
        for key, outcome in zip(keys, self._outcomes.values(), strict=True):
            groups.setdefault(key, []).append(outcome)
        uses = [(of, _use(group)) for of, group in groups.items()]
        return dict(sorted(uses, key=lambda pair: _rank(pair[1])))


def _rank(use: Use) -> tuple[bool, float, int]:
    return use.best_loss is None, use.best_loss or 0.0, -use.n


def _use(group: Sequence[_Outcome]) -> Use:
    full = [outcome.best for outcome in group if outcome.best is not None]
    n_failed = sum(outcome.is_failed for outcome in group)
    middle = median(loss for loss, _ in full) if full else None
    return Use(len(group), len(full), n_failed, middle, *min(full, default=(None, None)))


def paths_section(paths: PathsTried, summary: StudyView) -> Iterator[Section]:
    """Yield the section, if trials have run."""
    if paths.n:
        words = LossWords(summary.metric)
        parts: list[Part] = [*_figure(paths, words), *_tables(paths, words)]
        yield Section("paths", "Paths tried", _finding(paths, summary.n_begun, words), parts)


def _finding(paths: PathsTried, n: int, words: LossWords) -> str:
    begun = counted(n, "configuration")
    text = f"{begun} of {counted(paths.n, 'path')} {'was' if n == 1 else 'were'} begun"
    if not paths.steps:
        return f"{text}."
    model = paths.steps[-1]
    ranked = [(a, use) for a, use in model.algorithms.items() if use.best_loss is not None]
    if not ranked:
        return f"{text}; none in full."
    best, use = ranked[0]
    text += f". In {model.step}, {best} reached the lowest {words.name}, {words.of(use.best_loss)}"
    if len(ranked) > 1:
        other, second = ranked[1]
        text += f", followed by {other} with {words.of(second.best_loss)}"
    return f"{text}."


def _rows(steps: Sequence[StepUse]) -> list[tuple[str, str, Use]]:
    rows = [(s.step, algorithm, use) for s in steps for algorithm, use in s.algorithms.items()]
    return rows[:_MOST_ROWS]


def _figure(paths: PathsTried, words: LossWords) -> Iterator[Figure]:
    chosen = [step for step in paths.steps if len(step.algorithms) > 1]
    rows = [row for row in _rows(chosen) if row[2].best_loss is not None]
    if not rows:
        return
    hover = [
        f"{a}: {counted(use.n, 'configuration')}, {use.n_full} in full, {use.n_failed} failed; "
        f"best {words.of(use.best_loss)} (trial {use.best_trial}), "
        f"median {words.of(use.median_loss)}"
        for _, a, use in rows
    ]
    best, medians = [u.best_loss for _, _, u in rows], [u.median_loss for _, _, u in rows]
    ticks = {"color": "var(--c0)", "symbol": "line-ns-open", "size": 14, "line": {"width": 2.5}}
    traces = [
        points("best", best, [], "var(--c3)", size=11, opacity=1, labels=hover),
        scatter("median", medians, [], {"marker": ticks}, hover),
    ]
    y = {"y": [shortened([step for step, _, _ in rows]), shortened([a for _, a, _ in rows])]}
    low, high = visible_losses([*best, *medians])
    worst = max(loss for loss in best if loss is not None)
    x = axis(words.axis, range=[low, max(high, worst + 0.04 * (worst - low))])
    labels = axis("", autorange="reversed", type="multicategory", dividercolor="var(--line)")
    title, height = "Best and median loss by algorithm", 120 + 24 * len(rows)
    yield figure("paths-steps", title, [of | y for of in traces], x, labels, height=height)


def _tables(paths: PathsTried, words: LossWords) -> Iterator[Table]:
    columns = ["#configurations", "#full", "#failed", f"#best {words.name}", "#of trial", "#median"]
    rows = [[step, algorithm, *_cells(use, words)] for step, algorithm, use in _rows(paths.steps)]
    n = sum(len(step.algorithms) for step in paths.steps)
    note = f"The first {len(rows)} of {n}." if n > len(rows) else ""
    yield Table("Algorithms by step", ["step", "algorithm", *columns], rows, note=note)
    if paths.best:
        best = [[*path, *_cells(use, words)] for path, use in paths.best]
        yield Table("Best paths", [*(step.step for step in paths.steps), *columns], best)


def _cells(use: Use, words: LossWords) -> list[str]:
    trial = "" if use.best_trial is None else str(use.best_trial)
    losses = words.of(use.best_loss), trial, words.of(use.median_loss)
    return [f"{use.n:,}", f"{use.n_full:,}", f"{use.n_failed:,}", *losses]
