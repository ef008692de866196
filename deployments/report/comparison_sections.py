"""The sections of the report of a comparison."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prefect_tune.deployments.report.comparison_figures import (
    curves_figure,
    ranks_figure,
    test_losses_figure,
)
from prefect_tune.deployments.report.page import Section, Table, Text
from prefect_tune.deployments.report.wording import LossWords, short_number
from prefect_tune.flows.comparison.standings import FRACTIONS, SIGNIFICANCE
from prefect_tune.flows.reporting.comparison_report import ComparisonReport, DataSetCurves
from prefect_tune.flows.units import counted, format_seconds

__all__ = ["comparison_sections", "pairs_of", "probability"]

_MOST_DATA_SETS = 12
Row = Mapping[str, Any]


def comparison_sections(report: ComparisonReport) -> Iterator[Section]:
    """Yield the sections, in the order of interest."""
    document = report.standings
    shown = report.data_sets[:_MOST_DATA_SETS]
    yield Section("curves", "How the loss fell", _curves_finding(report), [
        part for k, of in enumerate(shown) for part in (curves_figure(of, k), _curve_table(of))
    ])  # fmt: skip
    yield Section("ranks", "Ranks over the budget", _ranks_finding(document), [
        ranks_figure(document), _fractions_table(document), _how_ranked(),
    ])  # fmt: skip
    tables = [_test_table(of) for of in shown]
    parts = [part for k, of in enumerate(shown) for part in (test_losses_figure(of, k), tables[k])]
    yield Section("tests", "Test losses by data set", _tests_finding(report), parts)
    if len(document["methods"]) > 1:
        yield Section("pairs", "Each two methods", _pairs_finding(document), [
            _pairs_table(report), _how_paired(report),
        ])  # fmt: skip
    yield Section("work", "What was run", _work_finding(report), [_work_table(report)])


def _curve_table(of: DataSetCurves) -> Table:
    words, last = LossWords(of.metric), len(of.shares) - 1
    at = [round(share * last) for share in FRACTIONS]
    rows = [
        [curve.method, *(_range(curve.low[i], curve.median[i], curve.high[i], words) for i in at)]
        for curve in of.curves
    ]
    columns = ["method", *(f"#at {100 * share:g} %" for share in FRACTIONS)]
    return Table(f"Median and quartiles on {of.data}", columns, rows)


def _range(low: float | None, median: float | None, high: float | None, words: LossWords) -> str:
    if low is None or high is None or low == high:
        return words.of(median)
    return f"{words.of(median)} ({short_number(low)} to {short_number(high)})"


def _curves_finding(report: ComparisonReport) -> str:
    of = report.data_sets[0]
    ends = [(curve.median[-1], curve.method) for curve in of.curves if curve.median[-1] is not None]
    if not ends:
        return "No method has a full evaluation yet."
    loss, method = min(ends)
    words = LossWords(of.metric)
    more = (
        f", of {counted(len(report.data_sets), 'data set')} the first"
        if len(report.data_sets) > 1
        else ""
    )
    return (
        f"On {of.data}{more}, {method} ends with the least median cross-validated {words.name}, "
        f"{words.of(loss)}. Lines are medians of the replicates, bands reach between quartiles."
    )


def _ranks_finding(document: Row) -> str:
    rows = document["methods"]
    tied = [row["method"] for row in rows[1:] if row["is_tied_with_best"]]
    said = f"At the end {rows[0]['method']} has the least mean rank, {rows[0]['average_rank']:.2f}"
    if len(rows) == 1:
        return f"{said}; it is the only method."
    if not tied:
        return f"{said}, and all others are significantly behind."
    return (
        f"{said}; {', '.join(tied)} {'is' if len(tied) == 1 else 'are'} not significantly behind."
    )


def _fractions_table(document: Row) -> Table:
    words = LossWords(document["metric"])
    rows = [
        [
            f"{100 * stage['fraction']:g} %",
            row["method"],
            f"{row['average_rank']:.2f}",
            "=" if row["is_tied_with_best"] else "",
            f"{row['p_value']:.3g}",
            _spread(row, "test_loss", words),
            _spread(row, "loss", words),
            f"{row['trials']:g}",
            format_seconds(row["ask_seconds"]),
        ]
        for stage in document["fractions"]
        for row in stage["methods"]
    ]
    columns = [
        "#of the budget", "method", "#rank", "tied", "#p", f"#test {words.name}",
        f"#cross-validated {words.name}", "#trials", "#choosing",
    ]  # fmt: skip
    return Table("Standings at fractions of the budget", columns, rows)


def _spread(row: Row, what: str, words: LossWords) -> str:
    low, high = row[f"quartiles_{what}"]
    return _range(low, row[f"median_{what}"], high, words)


def _how_ranked() -> Text:
    said = (
        "Rank: mean rank of the test loss over blocks, each a data set and a repeat. = marks a "
        "method that is not significantly behind the first (ranks reordered within blocks, "
        f"p = {SIGNIFICANCE}). Median (quartiles) of the replicates' best pipelines."
    )
    return Text([said], is_quiet=True)


def _tests_finding(report: ComparisonReport) -> str:
    document = report.standings
    firsts = Counter[str]()
    for of in document.get("data_sets") or [document]:
        medians = [(row["median_test_loss"], row["method"]) for row in of["methods"]]
        known = [(loss, method) for loss, method in medians if loss is not None]
        firsts.update([min(known)[1]] if known else [])
    if not firsts:
        return "Nothing was tested yet."
    said = ", ".join(f"{method} on {counted(n, 'data set')}" for method, n in firsts.most_common())
    return f"Least median test loss: {said}. Each point is a repeat."


def _test_table(of: DataSetCurves) -> Table:
    words = LossWords(of.metric)
    n = max((len(curve.test_losses) for curve in of.curves), default=0)
    rows = [[curve.method, *(words.of(loss) for loss in curve.test_losses)] for curve in of.curves]
    columns = ["method", *(f"#repeat {k}" for k in range(n))]
    return Table(f"Test losses on {of.data}", columns, rows)


def _pairs_finding(document: Row) -> str:
    first = document["methods"][0]["method"]
    pairs = pairs_of(document, first)
    clear = [pair["other"] for pair in pairs if probability(pair) > 0.9]
    if not clear:
        return f"{first} leads, but is better than none with a probability above 0.9."
    return f"{first} is better than {', '.join(clear)} with a probability above 0.9."


def _pairs_table(report: ComparisonReport) -> Table:
    rows = [
        [
            pair["method"], pair["other"], f"{pair['win_frequency']:.2f}",
            f"{pair['n_won']} : {pair['n_lost']}", f"{pair['sign_test_p_value']:.3g}",
            f"{probability(pair):.3f}",
        ]
        for pair in report.standings["pairs"]
    ]  # fmt: skip
    columns = [
        "method",
        "against",
        "#wins",
        "#won : lost",
        "#p of the sign test",
        "#probability of being better",
    ]
    return Table("Statistics of each two methods", columns, rows, is_open=len(rows) <= 12)


def _how_paired(report: ComparisonReport) -> Text:
    is_one = len(report.data_sets) == 1
    units = "repeats" if is_one else "data sets"
    by = (
        "on this data set, by Student's t of the repeats"
        if is_one
        else "on more than half of such data sets, by the Poisson-binomial test"
    )
    said = (
        "Wins: share of the repeats that the method wins, a tie being half. Sign test: one-sided, "
        f"over {units}. Probability of being better {by} (Lacoste et al. 2014). They speak of two "
        "methods at a time."
    )
    return Text([said], is_quiet=True)


def _work_finding(report: ComparisonReport) -> str:
    most = max(report.work, key=lambda work: work.evaluations)
    failed = max(report.work, key=lambda work: work.failed)
    said = f"{most.method} ran the most evaluations, {most.evaluations:,}"
    if failed.failed:
        said += f"; most failures are those of {failed.method}, {failed.failed:,}"
    return f"{said}."


def _work_table(report: ComparisonReport) -> Table:
    rows = [
        [
            work.method, f"{work.evaluations:,}", f"{work.failed:,}",
            format_seconds(work.evaluating_seconds), format_seconds(work.asking_seconds),
        ]
        for work in report.work
    ]  # fmt: skip
    columns = ["method", "#evaluations", "#failed", "#evaluating", "#choosing"]
    return Table("All replicates together", columns, rows, is_open=True)


def pairs_of(document: Row, method: str) -> list[Row]:
    """Return the statistics of a method against each other one."""
    return [pair for pair in document["pairs"] if pair["method"] == method]


def probability(pair: Row) -> float:
    """Return how likely the first of a pair is better: on the one data set, or on most."""
    is_one = len(pair["on_data_sets"]) == 1
    return float(pair["on_data_sets"][0] if is_one else pair["poisson_binomial"])
