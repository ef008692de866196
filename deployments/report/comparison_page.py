"""The report of a comparison as a page: ranking, curves, pairs of methods, and work."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from prefect_tune.deployments.report.comparison_data import (
    ComparisonReport,
    DataSetCurves,
    MethodCurve,
)
from prefect_tune.deployments.report.page import (
    Answer,
    Bar,
    Command,
    Figure,
    Part,
    ReportPage,
    Section,
    Table,
    Text,
)
from prefect_tune.deployments.report.plots import (
    axis,
    colour,
    numbers,
    plain,
    plot,
    visible_losses,
)
from prefect_tune.deployments.report.wording import made_now
from prefect_tune.flows.comparison.standings import (
    SIGNIFICANCE,
    ComparisonOutcome,
    MethodStanding,
    SingleComparison,
    replicate_budget,
)
from prefect_tune.flows.text import LossWords, counted, format_seconds, number_text

_MOST_DATA_SETS = 12
_MOST_STUDIES = 6
_COLOURS = 7
_DASHES = ("solid", "dash", "dot")
_HOW_RANKED = (
    "Rank: mean rank of the test loss over blocks (a data set and a repeat). = marks a method that "
    "is not significantly behind the first (ranks reordered within blocks, "
    f"p = {SIGNIFICANCE}). Losses: median (quartiles) of the replicates' best pipelines."
)
_HOW_CURVES = "Lines are medians over replicates; bands show the quartiles."


def comparison_page(
    outcome: ComparisonOutcome, report: ComparisonReport, store_options: Sequence[str] = ()
) -> ReportPage:
    """Return the page of a comparison; `store_options` make commands find its store."""
    subject, words = outcome.subject, LossWords(outcome.subject.metric)
    curves = [_curves(of, k) for k, of in enumerate(report.data_sets[:_MOST_DATA_SETS])]
    sections = [
        Section("ranks", "Ranking", _HOW_RANKED, [_ranking(outcome, words)]),
        Section("curves", "Loss over the budget", _HOW_CURVES, curves),
        Section("work", "Work", "All replicates together.", [_work(report)]),
    ]
    if outcome.standings.pairs:
        pairs = Section("pairs", "Pairs of methods", _how_paired(report), [_pairs(outcome)])
        sections.insert(2, pairs)
    if isinstance(subject, SingleComparison):
        title, kind = subject.comparison, "Comparison"
    else:
        title, kind = " and ".join(subject.files[:3]), "Standings"
    return ReportPage(
        title=title,
        kind=kind,
        state="",
        facts=list(_facts(outcome, report)),
        alert=next(iter(outcome.warnings), ""),
        answers=[
            _leader(outcome.standings.methods),
            _loss(outcome.standings.methods, words),
            _next(outcome, report, store_options),
        ],
        sections=sections,
        made=made_now(),
    )


def _facts(outcome: ComparisonOutcome, report: ComparisonReport) -> Iterator[str]:
    first, is_one = report.data_sets[0], len(report.data_sets) == 1
    yield counted(len(outcome.standings.methods), "method")
    yield counted(len(report.data_sets), "data set")
    yield counted(outcome.standings.n_blocks, "repeat" if is_one else "block")
    if is_one:
        budget = replicate_budget(first.budget_seconds, first.budget_trials)
        yield f"data {first.data}, {budget} a replicate"
    if isinstance(outcome.subject, SingleComparison):
        yield f"space {outcome.subject.space}"


def _leader(methods: Sequence[MethodStanding]) -> Answer:
    most = max(one.average_rank for one in methods)
    bars = [
        Bar(one.method, _rank(one, k), one.average_rank / most, is_main=k == 0)
        for k, one in enumerate(methods)
    ]
    subtitle = "mean rank by the test loss at the end; lower is better, = not significantly behind"
    return Answer("best", "Who leads", methods[0].method, subtitle, bars, section_id="ranks")


def _rank(one: MethodStanding, k: int) -> str:
    return f"{one.average_rank:.2f}{' =' if k and one.is_tied_with_best else ''}"


def _loss(methods: Sequence[MethodStanding], words: LossWords) -> Answer:
    losses = [one.median_test_loss for one in methods]
    most = max((abs(loss) for loss in losses if loss is not None), default=1.0) or 1.0
    bars = [
        Bar(one.method, words.of(loss), max(0.0, (loss or 0.0) / most), is_main=k == 0)
        for k, (one, loss) in enumerate(zip(methods, losses, strict=True))
    ]
    question, subtitle = f"Test {words.name} at the end", f"median of {methods[0].method}"
    return Answer("loss", question, words.of(losses[0]), subtitle, bars, section_id="curves")


def _next(
    outcome: ComparisonOutcome, report: ComparisonReport, store_options: Sequence[str]
) -> Answer:
    subject, n_more = outcome.subject, len(report.studies) - _MOST_STUDIES
    parts: list[Part] = []
    if isinstance(subject, SingleComparison):
        again = f"--name {subject.comparison} --repeats {2 * subject.repeats}"
        parts.append(Text([f"For more repeats, the same compare command with {again}"]))
        files: Sequence[str] = [subject.out]
    else:
        files = subject.files
    parts.append(Command(shlex.join(["prefect-tune", "standings", *files]), "show the standings"))
    for k, study in enumerate(report.studies[:_MOST_STUDIES]):
        command = shlex.join(["prefect-tune", "report", study, *store_options])
        parts.append(Command(command, "" if k else "show the study of a replicate"))
    if n_more > 0:
        parts.append(Text([f"and {n_more:,} more, one for each replicate"], is_quiet=True))
    return Answer("next", "What next", "", parts=parts)


def _curves(of: DataSetCurves, k: int) -> Figure:
    words = LossWords(of.metric)
    budget = of.budget_seconds or float(of.budget_trials or 1)
    x = [share * budget for share in of.shares]
    traces = [t for i, curve in enumerate(of.curves) for t in _bands(curve, x, i, words)]
    known = [v for curve in of.curves for v in curve.median if v is not None]
    layout = {
        "xaxis": axis("seconds" if of.budget_seconds is not None else "trials", rangemode="tozero"),
        "yaxis": axis(f"cross-validated {words.axis}"),
    }
    if known:
        layout["yaxis"]["range"] = visible_losses(known)
    return Figure(f"curves-{k}", f"Best loss on {of.data}", plot(traces, **layout), 420)


def _bands(
    curve: MethodCurve, x: list[float], i: int, words: LossWords
) -> Iterator[dict[str, Any]]:
    paint, name = colour(i), plain(curve.method)
    common = {
        "type": "scatter",
        "x": numbers(x),
        "mode": "lines",
        "legendgroup": name,
        "name": name,
    }
    edge = {"color": paint, "width": 0, "shape": "hv"}
    band = {"line": edge, "showlegend": False, "hoverinfo": "skip", "fillcolor": colour(i, "b")}
    yield {**common, **band, "y": numbers(curve.high)}
    yield {**common, **band, "y": numbers(curve.low), "fill": "tonexty"}
    dash = _DASHES[i // _COLOURS % len(_DASHES)]
    yield {
        **common,
        "y": numbers(curve.median),
        "line": {"color": paint, "width": 2.5, "shape": "hv", "dash": dash},
        "hovertext": [plain(f"{curve.method}: median {words.of(loss)}") for loss in curve.median],
        "hoverinfo": "text",
    }


def _ranking(outcome: ComparisonOutcome, words: LossWords) -> Table:
    rows = [
        [
            f"{100 * stage.fraction:g} %",
            one.method,
            _rank(one, k),
            f"{one.p_value:.3g}",
            _spread(one.median_test_loss, one.quartiles_test_loss, words),
            _spread(one.median_loss, one.quartiles_loss, words),
            f"{one.trials:g}",
            format_seconds(one.ask_seconds),
        ]
        for stage in outcome.standings.fractions[::-1]
        for k, one in enumerate(stage.methods)
    ]
    columns = [
        "#of the budget", "method", "#rank", "#p", f"#test {words.name}",
        f"#cross-validated {words.name}", "#trials", "#choosing",
    ]  # fmt: skip
    return Table("Standings at fractions of the budget", columns, rows, is_open=True)


def _spread(median: float | None, quartiles: Sequence[float | None], words: LossWords) -> str:
    low, high = map(number_text, quartiles)
    is_known = None not in quartiles and quartiles[0] != quartiles[1]
    return f"{words.of(median)} ({low} to {high})" if is_known else words.of(median)


def _pairs(outcome: ComparisonOutcome) -> Table:
    rows = [
        [
            pair.method, pair.other, f"{pair.win_frequency:.2f}", f"{pair.n_won} : {pair.n_lost}",
            f"{pair.sign_test_p_value:.3g}", f"{pair.better:.3f}",
        ]
        for pair in outcome.standings.pairs
    ]  # fmt: skip
    columns = [
        "method", "against", "#wins", "#won : lost", "#p of the sign test",
        "#probability of being better",
    ]  # fmt: skip
    return Table("Statistics by pair of methods", columns, rows, is_open=len(rows) <= 12)


def _how_paired(report: ComparisonReport) -> str:
    is_one = len(report.data_sets) == 1
    units = "repeats" if is_one else "data sets"
    by = (
        "on this data set, by Student's t of the repeats"
        if is_one
        else "on more than half of such data sets, by the Poisson-binomial test"
    )
    return (
        "Wins: share of repeats won (a tie counts half). Sign test: one-sided, "
        f"over {units}. Probability of being better {by} (Lacoste et al. 2014)."
    )


def _work(report: ComparisonReport) -> Table:
    rows = [
        [
            work.method, f"{work.evaluations:,}", f"{work.failed:,}",
            format_seconds(work.evaluating_seconds), format_seconds(work.asking_seconds),
        ]
        for work in report.work
    ]  # fmt: skip
    columns = ["method", "#evaluations", "#failed", "#evaluating", "#choosing"]
    return Table("Evaluations and time", columns, rows, is_open=True)
