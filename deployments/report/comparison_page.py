"""The report of a comparison as a page: ranking, curves, pairs of methods, and the work done."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
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
from prefect_tune.deployments.report.wording import LossWords, made_now, short_number
from prefect_tune.flows.comparison.standings import SIGNIFICANCE, least_p_value
from prefect_tune.flows.text import counted, format_seconds

_MOST_DATA_SETS = 12
_MOST_STUDIES = 6
_COLOURS = 7
_DASHES = ("solid", "dash", "dot")
_HOW_RANKED = (
    "Rank: mean rank of the test loss over blocks, each a data set and a repeat. = marks a method "
    "that is not significantly behind the first (ranks reordered within blocks, "
    f"p = {SIGNIFICANCE}). Losses: median (quartiles) of the replicates' best pipelines."
)
_HOW_CURVES = "Lines are medians of the replicates, bands reach between quartiles."
Row = Mapping[str, Any]


def comparison_page(report: ComparisonReport, store_options: Sequence[str] = ()) -> ReportPage:
    """Return the page of a comparison.

    Args:
        report: What is reported of it.
        store_options: Words by which commands find the store of its studies.
    """
    document = report.standings
    name = document.get("comparison")
    curves = [_curves(of, k) for k, of in enumerate(report.data_sets[:_MOST_DATA_SETS])]
    sections = [
        Section("ranks", "Ranking", _leads(document), [_ranking(document), _quiet(_HOW_RANKED)]),
        Section("curves", "How the loss fell", _HOW_CURVES, curves),
        Section("work", "What was run", "All replicates together.", [_work(report)]),
    ]
    if document["pairs"]:
        pairs = Section("pairs", "Each two methods", _how_paired(report), [_pairs(document)])
        sections.insert(2, pairs)
    return ReportPage(
        title=name or " and ".join(document["files"][:3]),
        kind="Comparison" if name else "Standings",
        state="",
        facts=list(_facts(report)),
        alert=_alert(document),
        answers=[_leader(document), _loss(document), _next(report, store_options)],
        sections=sections,
        made=made_now(),
    )


def _facts(report: ComparisonReport) -> Iterator[str]:
    document, first = report.standings, report.data_sets[0]
    yield counted(len(document["methods"]), "method")
    yield counted(len(report.data_sets), "data set")
    yield counted(document["n_blocks"], "repeat" if len(report.data_sets) == 1 else "block")
    if len(report.data_sets) == 1:
        seconds, trials = first.budget_seconds, counted(first.budget_trials or 0, "trial")
        budget = trials if seconds is None else format_seconds(seconds)
        yield f"data {first.data}, {budget} a replicate"
    if "space" in document:
        yield f"space {document['space']}"


def _alert(document: Row) -> str:
    for reason, n_replicates in document.get("undefined_test_losses", {}).items():
        return f"The test loss of {counted(n_replicates, 'replicate')} is undefined: {reason}"
    n_blocks, n_methods = document["n_blocks"], len(document["methods"])
    if n_methods == 1 or least_p_value(n_blocks, n_methods) <= SIGNIFICANCE:
        return ""
    return (
        f"With {counted(n_blocks, 'block')} no difference between {n_methods} methods can be "
        "significant: more repeats tell more."
    )


def _leads(document: Row) -> str:
    first, *others = document["methods"]
    if not others:
        return f"{first['method']} is the only method."
    tied = [row["method"] for row in others if row["is_tied_with_best"]]
    behind = ", ".join(tied) + (" is" if len(tied) == 1 else " are") + " not significantly behind"
    return f"{first['method']} leads; {behind if tied else 'all others are significantly behind'}."


def _leader(document: Row) -> Answer:
    rows = document["methods"]
    n = max(row["average_rank"] for row in rows)
    bars = [
        Bar(row["method"], _rank(row, k), row["average_rank"] / n, is_main=k == 0)
        for k, row in enumerate(rows)
    ]
    under = "mean rank by the test loss at the end; less is better"
    parts = [_quiet(_leads(document))]
    return Answer("best", "Who leads", rows[0]["method"], under, bars, parts, more="ranks")


def _rank(row: Row, k: int) -> str:
    return f"{row['average_rank']:.2f}{' =' if k and row['is_tied_with_best'] else ''}"


def _loss(document: Row) -> Answer:
    words, rows = LossWords(document["metric"]), document["methods"]
    known = [(row["method"], row["median_test_loss"]) for row in rows]
    most = max((abs(loss) for _, loss in known if loss is not None), default=1.0) or 1.0
    bars = [
        Bar(method, words.of(loss), max(0.0, (loss or 0.0) / most), is_main=k == 0)
        for k, (method, loss) in enumerate(known)
    ]
    question, under = f"Test {words.name} at the end", f"median of {known[0][0]}"
    return Answer("loss", question, words.of(known[0][1]), under, bars, more="curves")


def _next(report: ComparisonReport, store_options: Sequence[str]) -> Answer:
    document, n_more = report.standings, len(report.studies) - _MOST_STUDIES
    parts: list[Part] = []
    if "comparison" in document:
        again = f"--name {document['comparison']} --repeats {2 * document['repeats']}"
        parts.append(Text([f"For more repeats, the same compare command with {again}"]))
    files = document.get("files") or [document["out"]]
    parts.append(Command(shlex.join(["prefect-tune", "standings", *files]), "see it again"))
    for k, study in enumerate(report.studies[:_MOST_STUDIES]):
        words = shlex.join(["prefect-tune", "report", study, *store_options])
        parts.append(Command(words, "" if k else "look at the study of a replicate"))
    if n_more > 0:
        parts.append(_quiet(f"and {n_more:,} more, one for each replicate"))
    return Answer("next", "How to go on", "", parts=parts)


def _curves(of: DataSetCurves, k: int) -> Figure:
    """Return median and quartiles of each method over the budget, on one data set."""
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


def _ranking(document: Row) -> Table:
    words = LossWords(document["metric"])
    rows = [
        [
            f"{100 * stage['fraction']:g} %",
            row["method"],
            _rank(row, k),
            f"{row['p_value']:.3g}",
            _spread(row, "test_loss", words),
            _spread(row, "loss", words),
            f"{row['trials']:g}",
            format_seconds(row["ask_seconds"]),
        ]
        for stage in document["fractions"][::-1]
        for k, row in enumerate(stage["methods"])
    ]
    columns = [
        "#of the budget", "method", "#rank", "#p", f"#test {words.name}",
        f"#cross-validated {words.name}", "#trials", "#choosing",
    ]  # fmt: skip
    return Table("Standings at fractions of the budget", columns, rows, is_open=True)


def _spread(row: Row, what: str, words: LossWords) -> str:
    low, high = row[f"quartiles_{what}"]
    median = words.of(row[f"median_{what}"])
    if low is None or high is None or low == high:
        return median
    return f"{median} ({short_number(low)} to {short_number(high)})"


def _pairs(document: Row) -> Table:
    rows = [
        [
            pair["method"], pair["other"], f"{pair['win_frequency']:.2f}",
            f"{pair['n_won']} : {pair['n_lost']}", f"{pair['sign_test_p_value']:.3g}",
            f"{_probability(pair):.3f}",
        ]
        for pair in document["pairs"]
    ]  # fmt: skip
    columns = [
        "method", "against", "#wins", "#won : lost", "#p of the sign test",
        "#probability of being better",
    ]  # fmt: skip
    return Table("Statistics of each two methods", columns, rows, is_open=len(rows) <= 12)


def _probability(pair: Row) -> float:
    """Return how likely the first of a pair is better: on the one data set, or on most."""
    is_one = len(pair["on_data_sets"]) == 1
    return float(pair["on_data_sets"][0] if is_one else pair["poisson_binomial"])


def _how_paired(report: ComparisonReport) -> str:
    is_one = len(report.data_sets) == 1
    units = "repeats" if is_one else "data sets"
    by = (
        "on this data set, by Student's t of the repeats"
        if is_one
        else "on more than half of such data sets, by the Poisson-binomial test"
    )
    return (
        "Wins: share of the repeats that the method wins, a tie being half. Sign test: one-sided, "
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
    return Table("Evaluations and their time", columns, rows, is_open=True)


def _quiet(text: str) -> Text:
    return Text([text], is_quiet=True)
