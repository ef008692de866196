"""How the loss fell, over time and over trials."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import axis, numbers, plot, points, staircase
from prefect_tune.deployments.report.thinning import MOST_POINTS, thinned
from prefect_tune.deployments.report.wording import LossWords
from prefect_tune.flows.reporting.progress import Progress
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.units import counted, format_seconds
from prefect_tune.optimizers.trials.state import TrialState

__all__ = ["progress_section", "visible_losses"]


def progress_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if any trial has a loss."""
    progress = report.progress
    if not any(loss is not None for loss in progress.loss):
        return
    words = LossWords(report.summary["metric"])
    seconds = "trials" if progress.is_order_only else "seconds"
    over_time = _figure(
        report, words, progress.seconds, "progress-time", f"Over {seconds}", seconds
    )
    counts = list(range(1, len(progress.number) + 1))
    over_trials = _figure(
        report, words, counts, "progress-trials", "Over evaluations", "evaluations told"
    )
    figures = [over_trials] if progress.is_order_only else [over_time, over_trials]
    yield Section(
        "progress", "How the loss fell", _finding(report, words), [*figures, _table(report)]
    )


def visible_losses(losses: Sequence[float | None]) -> list[float]:
    """Return the range of an axis that shows the good half of some losses, the best far apart."""
    known = sorted(loss for loss in losses if loss is not None)
    low, high = known[0], known[min(len(known) - 1, int(0.85 * len(known)))]
    margin = 0.08 * (high - low) or abs(low) * 0.1 or 1.0
    return [low - margin, high + margin]


def _finding(report: StudyReport, words: LossWords) -> str:
    leads = report.progress.leads
    if not leads:
        return "No trial has led: none ran in full and met what it had to."
    last, first = leads[-1], leads[0]
    at = _when(report.progress, last.seconds, last.told)
    if len(leads) == 1:
        return f"Trial {last.trial} has led since {at}: {words.of(last.loss)}."
    return (
        f"Trial {last.trial} has led since {at}: {words.of(last.loss)}, from "
        f"{words.of(first.loss)} of the first, by {counted(len(leads) - 1, 'change')} of the lead."
    )


def _when(progress: Progress, seconds: float, told: int) -> str:
    return f"evaluation {told:,}" if progress.is_order_only else format_seconds(seconds)


def _figure(
    report: StudyReport,
    words: LossWords,
    x: Sequence[float],
    id: str,  # noqa: A002 - the field's name
    title: str,
    x_title: str,
) -> Figure:
    progress, chance = report.progress, report.summary["chance_loss"]
    leads = progress.leads
    is_time = x is progress.seconds
    lead_x = [lead.seconds if is_time else lead.told for lead in leads]
    end = x[-1]
    led = [f"trial {lead.trial}: {words.of(lead.loss)}, led from here" for lead in leads]
    traces = []
    n_shown = n_all = 0
    clouds = list(_clouds(progress))
    for name, paint, symbol, positions in clouds:
        shown = _thin(progress, positions, {lead.trial for lead in leads}, MOST_POINTS // len(clouds))
        n = len(positions)
        n_shown, n_all = n_shown + len(shown), n_all + n
        labels = [_label(progress, i, words) for i in shown]
        losses = [progress.loss[i] for i in shown]
        xs = [x[i] for i in shown]
        traces.append(points(name, xs, losses, paint, symbol=symbol, labels=labels))
    if leads:
        ys = [lead.loss for lead in leads]
        labels = [*led, f"trial {leads[-1].trial} at the end"]
        traces.append(
            staircase("best so far", [*lead_x, end], [*ys, ys[-1]], "var(--c3)", labels=labels)
        )
    traces += _tested(report, words, end)
    y_range = _range(report)
    shapes = [_guessing(chance)] if chance is not None and chance <= y_range[1] else []
    note = f"{n_shown:,} of {n_all:,} evaluations are shown." if n_shown < n_all else ""
    layout = {
        "xaxis": axis(x_title, rangemode="tozero"),
        "yaxis": axis(words.axis, range=numbers(y_range)),
        "shapes": shapes,
    }
    return Figure(id, title, plot(traces, **layout), note=note, is_half=True)


def _range(report: StudyReport) -> list[float]:
    low, high = visible_losses(report.progress.loss)
    tested = [loss for loss in _test_losses(report) if loss is not None]
    margin = 0.04 * (high - low)
    return [min([low, *(t - margin for t in tested)]), max([high, *(t + margin for t in tested)])]


def _test_losses(report: StudyReport) -> tuple[float | None, float | None]:
    return report.summary["test_loss"], report.summary["single_best_test_loss"]


def _tested(report: StudyReport, words: LossWords, end: float) -> Iterator[dict[str, object]]:
    loss, alone = _test_losses(report)
    if loss is not None:
        label = f"final model on the test rows: {words.of(loss)}"
        yield points(
            "test rows",
            [end],
            [loss],
            "var(--c5)",
            symbol="star",
            size=15,
            opacity=1,
            labels=[label],
        )


def _guessing(chance: float) -> dict[str, object]:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": chance, "y1": chance,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1.5},
        "label": {"text": "guessing", "textposition": "end", "yanchor": "bottom",
                  "font": {"color": "var(--muted)", "size": 12}},
    }  # fmt: skip


def _clouds(progress: Progress) -> Iterator[tuple[str, str, str, list[int]]]:
    """Yield name, colour, symbol and positions of the full evaluations, and of those in part."""
    full = [i for i, state in enumerate(progress.state) if state == TrialState.COMPLETE]
    part = [i for i, state in enumerate(progress.state) if state == TrialState.STOPPED]
    if part:
        yield "in part", "var(--c4)", "circle-open", part
    if full:
        yield "in full", "var(--c0)", "circle", full


def _thin(progress: Progress, positions: Sequence[int], leads: set[int], most: int) -> list[int]:
    keep = {k for k, i in enumerate(positions) if progress.number[i] in leads}
    return [positions[k] for k in thinned([progress.loss[i] for i in positions], keep, most)]


def _label(progress: Progress, i: int, words: LossWords) -> str:
    fidelity = f" ({progress.fidelity[i]})" if progress.fidelity[i] else ""
    phase = f"; {progress.phase[i]}" if progress.phase[i] else ""
    cost = format_seconds(progress.cost_seconds[i])
    return f"trial {progress.number[i]}{fidelity}: {words.of(progress.loss[i])} in {cost}{phase}"


def _table(report: StudyReport) -> Table:
    progress, words = report.progress, LossWords(report.summary["metric"])
    leads = progress.leads
    gains = [None, *((b.loss or 0) - (a.loss or 0) for a, b in pairwise(leads))]
    rows = [
        [
            str(lead.trial),
            "-" if progress.is_order_only else format_seconds(lead.seconds),
            f"{lead.told:,}",
            words.of(lead.loss),
            "" if gain is None else f"{gain:+.3g}",
        ]
        for lead, gain in zip(leads, gains, strict=False)
    ]
    columns = ["#trial", "#led from", "#evaluations told", f"#{words.name}", "#change"]
    return Table("Who led, and from when", columns, rows)
