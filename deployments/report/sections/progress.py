"""How the loss fell, over time and over trials."""

from collections.abc import Iterator, Sequence
from typing import Any

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import (
    MOST_POINTS,
    axis,
    numbers,
    plot,
    points,
    staircase,
    thinned,
    visible_losses,
)
from prefect_tune.deployments.report.wording import LossWords
from prefect_tune.flows.reporting.progress import Lead, SearchProgress
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import format_seconds
from prefect_tune.optimizers.trials.outcome import TrialState

_MOST_LEADS = 300
_PARTIAL = "Partial losses (first folds, fewer rows or epochs) are not comparable with full ones."


def progress_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if any trial has a loss."""
    progress = report.progress
    if not any(loss is not None for loss in progress.loss):
        return
    words = LossWords(report.summary["metric"])
    figures = [_figure(report, words, is_time=is_time) for is_time in (True, False)]
    finding = _finding(report, words)
    yield Section("progress", "How the loss fell", finding, [*figures, _table(report)])


def _finding(report: StudyReport, words: LossWords) -> str:
    leads = report.progress.leads
    if not leads:
        return "No trial has led yet: none both ran in full and met all constraints."
    last = leads[-1]
    said = f"Trial {last.trial} has led since {format_seconds(last.seconds)}"
    said = f"{said} with {words.of(last.loss)}{_bracketed(last.fidelity)}"
    if len(leads) == 1:
        return f"{said}."
    times = "once" if len(leads) == 2 else f"{len(leads) - 1} times"
    said = f"{said}; the lead changed {times}"
    alike = [lead for lead in leads if lead.fidelity == last.fidelity]
    if len(alike) == len(leads):
        return f"{said}, from {words.of(leads[0].loss)}."
    of = last.fidelity or "full evaluations"
    if len(alike) == 1:
        return f"{said}, until then among other fidelities."
    return f"{said}, among {of} from {words.of(alike[0].loss)}."


def _figure(report: StudyReport, words: LossWords, *, is_time: bool) -> Figure:
    progress, chance = report.progress, report.summary["chance_loss"]
    x = progress.seconds if is_time else list(range(1, len(progress.number) + 1))
    clouds, n_shown, n_all = _clouds(progress, x, words)
    traces = [*clouds, *_led(progress, x[-1], words, is_time=is_time)]
    traces += _tested(report, words, x[-1])
    y_range = _range(report)
    shapes = [_guessing(chance)] if chance is not None and chance <= y_range[1] else []
    layout = {
        "xaxis": axis("seconds" if is_time else "evaluations", rangemode="tozero"),
        "yaxis": axis(words.axis, range=numbers(y_range)),
        "shapes": shapes,
    }
    name, title = ("time", "Over time") if is_time else ("trials", "Over evaluations")
    notes = [f"{n_shown:,} of {n_all:,} evaluations are shown."] if n_shown < n_all else []
    if TrialState.STOPPED in progress.state:
        notes.append(_PARTIAL)
    note = " ".join(notes)
    return Figure(f"progress-{name}", title, plot(traces, **layout), note=note, is_half=True)


def _clouds(
    progress: SearchProgress, x: Sequence[float], words: LossWords
) -> tuple[list[dict[str, Any]], int, int]:
    """Return full evaluations and those in part, how many of them are shown, and of how many."""
    part, full = (
        [i for i, state in enumerate(progress.state) if state == which]
        for which in (TrialState.STOPPED, TrialState.COMPLETE)
    )
    leads = {lead.trial for lead in _shown_leads(progress)}
    most = MOST_POINTS // (2 if part and full else 1)
    traces, n_shown = [], 0
    for name, paint, symbol, cloud in (
        ("partial", "var(--c4)", "circle-open", part),
        ("full", "var(--c0)", "circle", full),
    ):
        keep = {k for k, i in enumerate(cloud) if progress.number[i] in leads}
        shown = [cloud[k] for k in thinned([progress.loss[i] for i in cloud], keep, most)]
        n_shown += len(shown)
        if shown:
            xs, ys = [x[i] for i in shown], [progress.loss[i] for i in shown]
            labels = [_label(progress, i, words) for i in shown]
            traces.append(points(name, xs, ys, paint, symbol=symbol, labels=labels))
    return traces, n_shown, len(part) + len(full)


def _shown_leads(progress: SearchProgress) -> Sequence[Lead]:
    """Return the incumbents that a figure shows: all, or evenly chosen ones and the last."""
    leads = progress.leads
    return [*leads[: -1 : -(-len(leads) // _MOST_LEADS)], leads[-1]] if leads else []


def _led(
    progress: SearchProgress, end: float, words: LossWords, *, is_time: bool
) -> Iterator[dict[str, Any]]:
    """Yield the line of who led, with a gap where the losses before cannot be compared."""
    leads = _shown_leads(progress)
    if not leads:
        return
    xs: list[float] = []
    ys: list[float | None] = []
    labels: list[str] = []
    for former, lead in zip((None, *leads), leads, strict=False):
        x, of = (lead.seconds if is_time else lead.told), _bracketed(lead.fidelity)
        if former is not None and former.fidelity != lead.fidelity:
            xs += [x, x]
            ys += [former.loss, None]
            labels += [f"trial {former.trial} until here", ""]
        xs.append(x)
        ys.append(lead.loss)
        labels.append(f"trial {lead.trial}{of}: {words.of(lead.loss)}, leads from here")
    labels.append(f"trial {leads[-1].trial} at the end")
    yield staircase("best so far", [*xs, end], [*ys, ys[-1]], "var(--c3)", labels=labels)


def _bracketed(fidelity: str) -> str:
    return f" ({fidelity})" if fidelity else ""


def _range(report: StudyReport) -> list[float]:
    low, high = visible_losses(report.progress.loss)
    tested = [loss for loss in _test_losses(report) if loss is not None]
    margin = 0.04 * (high - low)
    return [min([low, *(t - margin for t in tested)]), max([high, *(t + margin for t in tested)])]


def _test_losses(report: StudyReport) -> tuple[float | None, float | None]:
    return report.summary["test_loss"], report.summary["single_best_test_loss"]


def _tested(report: StudyReport, words: LossWords, end: float) -> Iterator[dict[str, Any]]:
    loss, alone = _test_losses(report)
    if loss is not None and alone not in {None, loss}:
        label = f"the best trial on the test rows: {words.of(alone)}"
        star = points("test, best trial", [end], [alone], "var(--c5)", labels=[label])
        yield star | {"marker": {"color": "var(--c5)", "symbol": "star-open", "size": 14}}
    if loss is not None:
        label = f"final model on the test rows: {words.of(loss)}"
        yield points(
            "test, final model",
            [end],
            [loss],
            "var(--c5)",
            symbol="star",
            size=15,
            opacity=1,
            labels=[label],
        )


def _guessing(chance: float) -> dict[str, Any]:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": chance, "y1": chance,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1.5},
        "label": {"text": "guessing", "textposition": "end", "yanchor": "bottom",
                  "font": {"color": "var(--muted)", "size": 12}},
    }  # fmt: skip


def _label(progress: SearchProgress, i: int, words: LossWords) -> str:
    of = _bracketed(progress.fidelity[i])
    phase = f"; {progress.phase[i]}" if progress.phase[i] else ""
    cost = format_seconds(progress.cost_seconds[i])
    return f"trial {progress.number[i]}{of}: {words.of(progress.loss[i])} in {cost}{phase}"


def _table(report: StudyReport) -> Table:
    progress, words = report.progress, LossWords(report.summary["metric"])
    leads = progress.leads
    is_partial = any(lead.fidelity for lead in leads)
    rows = [
        [
            str(lead.trial),
            format_seconds(lead.seconds),
            f"{lead.told:,}",
            *([lead.fidelity or "full"] if is_partial else []),
            words.of(lead.loss),
            _gain(former, lead),
        ]
        for former, lead in zip((None, *leads), leads, strict=False)
    ]
    of = ["fidelity"] if is_partial else []
    columns = ["#trial", "#since", "#evaluations", *of, f"#{words.name}", "#change"]
    return Table("Incumbents", columns, rows)


def _gain(former: Lead | None, lead: Lead) -> str:
    """Return by how much the loss changed; empty where the two cannot be compared."""
    if former is None or former.fidelity != lead.fidelity or former.loss is None:
        return ""
    return "" if lead.loss is None else f"{lead.loss - former.loss:+.3g}"
