"""Which algorithms were tried at which step, how often, and how good they were."""

from collections.abc import Iterator, Sequence

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.deployments.report.plots import axis, plot, points, shortened, visible_losses
from prefect_tune.deployments.report.wording import LossWords
from prefect_tune.flows.reporting.paths import StepUse, Use
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted

_MOST_ROWS = 60


def paths_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if anything was tried."""
    paths, words = report.paths, LossWords(report.summary["metric"])
    chosen = [step for step in paths.steps if len(step.algorithms) > 1]
    if not paths.n:
        return
    tables = [*_table(paths.steps, words), *_best(report, words)]
    parts: list[Part] = [*_figure(chosen, words), *tables]
    yield Section("paths", "What was tried", _finding(report, words), parts)


def _finding(report: StudyReport, words: LossWords) -> str:
    paths = report.paths
    begun = counted(n := report.summary["n_begun"], "configuration")
    said = f"{begun} of {counted(paths.n, 'path')} {'was' if n == 1 else 'were'} begun"
    if not paths.steps:
        return f"{said}."
    model = paths.steps[-1]
    ranked = [(a, use) for a, use in model.algorithms.items() if use.best_loss is not None]
    if not ranked:
        return f"{said}; none in full."
    best, use = ranked[0]
    said += f". In {model.step}, {best} reached the least {words.name}, {words.of(use.best_loss)}"
    if len(ranked) > 1:
        other, second = ranked[1]
        said += f", followed by {other} with {words.of(second.best_loss)}"
    return f"{said}."


def _rows(steps: Sequence[StepUse]) -> list[tuple[str, str, Use]]:
    rows = [(s.step, algorithm, use) for s in steps for algorithm, use in s.algorithms.items()]
    return rows[:_MOST_ROWS]


def _figure(steps: Sequence[StepUse], words: LossWords) -> Iterator[Figure]:
    rows = [row for row in _rows(steps) if row[2].best_loss is not None]
    if not rows:
        return
    labels = [shortened([step for step, _, _ in rows]), shortened([a for _, a, _ in rows])]
    hover = [
        f"{a}: {counted(use.n, 'configuration')}, {use.n_full} in full, {use.n_failed} failed; "
        f"best {words.of(use.best_loss)} (trial {use.best_trial}), "
        f"median {words.of(use.median_loss)}"
        for _, a, use in rows
    ]
    best, medians = [u.best_loss for _, _, u in rows], [u.median_loss for _, _, u in rows]
    y = {"y": labels}
    ticks = {"color": "var(--c0)", "symbol": "line-ns-open", "size": 14, "line": {"width": 2.5}}
    traces = [
        points("best", best, [], "var(--c3)", size=11, opacity=1, labels=hover) | y,
        points("median", medians, [], "var(--c0)", labels=hover) | y | {"marker": ticks},
    ]  # fmt: skip
    low, high = visible_losses([*best, *medians])
    worst = max(loss for loss in best if loss is not None)
    high = max(high, worst + 0.04 * (worst - low))
    layout = {
        "xaxis": axis(words.axis, range=[low, high]),
        "yaxis": axis("", autorange="reversed", type="multicategory", dividercolor="var(--line)"),
    }
    height = 120 + 24 * len(rows)
    yield Figure("paths-steps", "Best and median loss by algorithm", plot(traces, **layout), height)


def _table(steps: Sequence[StepUse], words: LossWords) -> Iterator[Table]:
    rows = [[step, algorithm, *_cells(use, words)] for step, algorithm, use in _rows(steps)]
    n = sum(len(step.algorithms) for step in steps)
    note = f"The first {len(rows)} of {n}." if n > len(rows) else ""
    yield Table("Algorithms by step", ["step", "algorithm", *_columns(words)], rows, note=note)


def _best(report: StudyReport, words: LossWords) -> Iterator[Table]:
    steps = [step.step for step in report.paths.steps]
    rows = [[*path, *_cells(use, words)] for path, use in report.paths.best]
    if rows:
        yield Table("The best paths", [*steps, *_columns(words)], rows)


def _columns(words: LossWords) -> list[str]:
    best = f"#best {words.name}"
    return ["#configurations", "#full", "#failed", best, "#of trial", "#median"]


def _cells(use: Use, words: LossWords) -> list[str]:
    trial = "" if use.best_trial is None else str(use.best_trial)
    losses = words.of(use.best_loss), trial, words.of(use.median_loss)
    return [f"{use.n:,}", f"{use.n_full:,}", f"{use.n_failed:,}", *losses]
