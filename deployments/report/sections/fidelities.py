"""Evaluations of less than everything: levels, and the curves of trainings."""

from collections.abc import Iterator

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import (
    axis,
    bar,
    colour,
    numbers,
    plain,
    plot,
    texts,
    thinned,
    visible_losses,
)
from prefect_tune.deployments.report.wording import LossWords, listed_trials
from prefect_tune.flows.reporting.fidelities import Fidelities, TrainingCurve
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted, format_seconds

_MOST_EPOCHS = 100
"""Points of a curve that are shown, its stops besides."""


def fidelities_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if anything was evaluated in part, or trained in epochs."""
    found, words = report.fidelities, LossWords(report.summary["metric"])
    is_partial = any(level.text for level in found.levels)
    if not is_partial and not found.curves:
        return
    parts: list[Figure | Table] = []
    if is_partial:
        parts += [_levels(found), _levels_table(report), _over_time(report)]
    if found.curves:
        parts += [_curves(found, words), _curves_table(found, words)]
    yield Section("fidelities", "Partial evaluations", _finding(found), parts)


def _whole(text: str) -> str:
    return text or "full"


def _finding(found: Fidelities) -> str:
    n_part = sum(level.ended + level.failed for level in found.levels if level.text)
    n_all = sum(level.ended + level.failed for level in found.levels)
    seconds = sum(level.seconds for level in found.levels)
    in_part = sum(level.seconds for level in found.levels if level.text)
    of, share = counted(n_all, "evaluation"), 100 * in_part / seconds if seconds else 0
    said = [f"{n_part:,} of {of} were partial and took {share:.0f} % of the evaluation time"]
    if found.n_curves:
        thawed = sum(len(curve.trials) > 1 for curve in found.curves)
        trained = counted(found.n_curves, "configuration")
        said.append(f"{trained} trained in epochs")
        if thawed:
            among = "" if found.n_curves == len(found.curves) else " of those shown"
            said[-1] += f", {thawed:,}{among} resumed after a stop"
    return "; ".join(said) + "."


def _levels(found: Fidelities) -> Figure:
    labels = [_whole(level.text) for level in found.levels]
    hover = [
        f"{_whole(level.text)}: {counted(level.ended, 'evaluation')}, {level.failed} failed, "
        f"{format_seconds(level.seconds)}"
        for level in found.levels
    ]
    traces = [
        bar(
            "with a loss", labels, [level.ended for level in found.levels], "var(--c0)", hover=hover
        ),
        bar("failed", labels, [level.failed for level in found.levels], "var(--c3)", hover=hover),
    ]
    layout = {
        "xaxis": axis("evaluations"),
        "yaxis": axis("", autorange="reversed", type="category"),
        "barmode": "stack",
    }
    height = 120 + 28 * len(labels)
    most = max(found.levels, key=lambda level: level.ended + level.failed)
    n = counted(most.ended + most.failed, "evaluation")
    seen = f"The most frequent fidelity: {_whole(most.text)}, {n}."
    title = "Evaluations by fidelity"
    return Figure("levels", title, plot(traces, **layout), height, finding=seen)


def _levels_table(report: StudyReport) -> Table:
    progress = report.progress
    ends: dict[str, list[float]] = {}
    for fidelity, seconds in zip(progress.fidelity, progress.seconds, strict=True):
        ends.setdefault(fidelity, []).append(seconds)
    rows = [
        [
            _whole(level.text),
            f"{level.ended:,}",
            f"{level.failed:,}",
            format_seconds(level.seconds),
            *(format_seconds(at) for at in (ends[level.text][0], ends[level.text][-1])),
        ]
        for level in report.fidelities.levels
    ]
    columns = ["fidelity", "#with a loss", "#failed", "#took", "#first after", "#last after"]
    return Table("Fidelities", columns, rows)


def _over_time(report: StudyReport) -> Figure:
    progress, levels = report.progress, [level.text for level in report.fidelities.levels]
    place = {text: k for k, text in enumerate(levels)}
    shown = thinned([float(place[text]) for text in progress.fidelity])
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "evaluations",
        "x": numbers(progress.seconds[i] for i in shown),
        "y": texts(_whole(progress.fidelity[i]) for i in shown),
        "marker": {"color": "var(--c0)", "size": 7, "symbol": "line-ns-open"},
        "hovertext": [f"trial {progress.number[i]}" for i in shown],
        "hoverinfo": "text",
    }
    categories = texts(map(_whole, levels))
    layout = {
        "xaxis": axis("seconds", rangemode="tozero"),
        "yaxis": axis("", type="category", categoryorder="array", categoryarray=categories),
    }
    height, title, seen = 130 + 28 * len(levels), "Fidelity over time", _first_whole(report)
    return Figure("levels-time", title, plot([trace], **layout), height, finding=seen)


def _first_whole(report: StudyReport) -> str:
    """Return when the first full evaluation ended."""
    progress = report.progress
    ends = zip(progress.seconds, progress.fidelity, strict=True)
    first = next((seconds for seconds, fidelity in ends if not fidelity), None)
    if first is None:
        return "No full evaluation has ended yet."
    return f"The first full evaluation ended after {format_seconds(first)}."


def _curves(found: Fidelities, words: LossWords) -> Figure:
    models = list(dict.fromkeys(curve.model for curve in found.curves))
    traces, named = [], set[str]()
    for curve in found.curves:
        paint = colour(models.index(curve.model))
        shown = thinned(curve.losses, [stop - 1 for stop in curve.stops], _MOST_EPOCHS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(curve.model),
                "legendgroup": plain(curve.model),
                "showlegend": curve.model not in named,
                "x": [i + 1 for i in shown],
                "y": numbers(curve.losses[i] for i in shown),
                "line": {"color": paint, "width": 1.4},
                "opacity": 0.8,
                "marker": {
                    "color": paint,
                    "symbol": "circle-open",
                    "size": [8 if i + 1 in curve.stops else 0 for i in shown],
                },
                "hovertext": plain(_label(curve, words)),
                "hoverinfo": "text",
            }
        )
        named.add(curve.model)
    layout = {
        "xaxis": axis("epochs", rangemode="tozero"),
        "yaxis": axis(
            words.axis, range=visible_losses([x for c in found.curves for x in c.losses])
        ),
    }
    n = len(found.curves)
    of = f"{n:,} of {found.n_curves:,} are shown. " if n < found.n_curves else ""
    note = f"{of}A circle marks where a training was stopped; some were resumed."
    best = min(found.curves, key=lambda curve: min(curve.losses))
    title, seen = "Loss after each epoch, by model", f"The least: {_label(best, words)}."
    return Figure("curves", title, plot(traces, **layout), 420, note, finding=seen)


def _label(curve: TrainingCurve, words: LossWords) -> str:
    least = min(curve.losses)
    ran = "to the end" if curve.is_complete else f"stopped at epoch {len(curve.losses)}"
    return (
        f"{curve.model}, {listed_trials(curve.trials, 4)}: {ran}, least {words.of(least)} at epoch "
        f"{list(curve.losses).index(least) + 1}"
    )


def _curves_table(found: Fidelities, words: LossWords) -> Table:
    best = sorted(found.curves, key=lambda curve: min(curve.losses))[:40]
    rows = [
        [
            listed_trials(curve.trials, 6),
            curve.model,
            f"{len(curve.losses)}",
            "to the end" if curve.is_complete else "stopped",
            words.of(min(curve.losses)),
            str(list(curve.losses).index(min(curve.losses)) + 1),
        ]
        for curve in best
    ]
    columns = ["of", "model", "#epochs", "", f"#least {words.name}", "#at epoch"]
    note = f"The best {len(best)} of {found.n_curves:,}." if found.n_curves > len(best) else ""
    return Table("Trainings", columns, rows, note=note)
