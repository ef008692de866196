"""The report of a comparison as a page."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefect_tune.deployments.report.comparison_sections import (
    comparison_sections,
    pairs_of,
    probability,
)
from prefect_tune.deployments.report.page import (
    Answer,
    Bar,
    Command,
    Page,
    Part,
    Text,
)
from prefect_tune.deployments.report.wording import LossWords, made_now
from prefect_tune.flows.comparison.standings import SIGNIFICANCE, least_p_value
from prefect_tune.flows.reporting.comparison_report import ComparisonReport, DataSetCurves
from prefect_tune.flows.units import counted, format_seconds

__all__ = ["comparison_page"]

_MOST_STUDIES = 6
Row = Mapping[str, Any]


def comparison_page(report: ComparisonReport, store_options: Sequence[str] = ()) -> Page:
    """Return the page of a comparison.

    Args:
        report: What is reported of it.
        store_options: Words by which commands find the store of its studies.
    """
    document = report.standings
    name = document.get("comparison")
    return Page(
        title=name or " and ".join(document["files"][:3]),
        kind="Comparison" if name else "Standings",
        state="",
        facts=list(_facts(report)),
        alert=_alert(document),
        answers=[
            _leader(document),
            _loss(document),
            _sure(report),
            _work(report),
            _next(report, store_options),
        ],
        sections=list(comparison_sections(report)),
        made=made_now(),
    )


def _facts(report: ComparisonReport) -> Iterator[str]:
    document, first = report.standings, report.data_sets[0]
    yield counted(len(document["methods"]), "method")
    yield counted(len(report.data_sets), "data set")
    yield counted(document["n_blocks"], "repeat" if len(report.data_sets) == 1 else "block")
    if len(report.data_sets) == 1:
        yield f"data {first.data}, {_budget(first)} a replicate"
    if "space" in document:
        yield f"space {document['space']}"


def _budget(of: DataSetCurves) -> str:
    if of.budget_seconds is not None:
        return format_seconds(of.budget_seconds)
    return counted(of.budget_trials or 0, "trial")


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


def _leader(document: Row) -> Answer:
    rows = document["methods"]
    n = max((row["average_rank"] for row in rows), default=1.0)
    bars = [
        Bar(
            row["method"],
            f"{row['average_rank']:.2f}{' =' if k and row['is_tied_with_best'] else ''}",
            row["average_rank"] / n,
            is_main=k == 0,
        )
        for k, row in enumerate(rows)
    ]
    tied = [row["method"] for row in rows[1:] if row["is_tied_with_best"]]
    under = "mean rank by the test loss at the end; less is better"
    said = "the only method" if len(rows) == 1 else "all others are significantly behind"
    if tied:
        said = f"= not significantly behind: {', '.join(tied)}"
    parts = [Text([said], is_quiet=True)]
    return Answer("best", "Who leads", rows[0]["method"], under, bars, parts, more="ranks")


def _loss(document: Row) -> Answer:
    words, rows = LossWords(document["metric"]), document["methods"]
    known = [(row["method"], row["median_test_loss"]) for row in rows]
    most = max((abs(loss) for _, loss in known if loss is not None), default=1.0) or 1.0
    bars = [
        Bar(method, words.of(loss), max(0.0, (loss or 0.0) / most), is_main=k == 0)
        for k, (method, loss) in enumerate(known)
    ]
    question = f"Test {words.name} at the end"
    return Answer(
        "loss", question, words.of(known[0][1]), f"median of {known[0][0]}", bars, more="curves"
    )


def _sure(report: ComparisonReport) -> Answer:
    document = report.standings
    first = document["methods"][0]["method"]  # the one that leads
    lines = []
    for pair in pairs_of(document, first):
        better = probability(pair)
        lines.append(f"better than {pair['other']} with probability {better:.2f}")
    headline = first if lines else "Nothing to compare"
    return Answer("failed", "How sure it is", headline, parts=[Text(lines)], more="pairs")


def _work(report: ComparisonReport) -> Answer:
    n, failed = (sum(getattr(w, what) for w in report.work) for what in ("evaluations", "failed"))
    lines = [f"{failed:,} failed"] if failed else ["none failed"]
    asking = max(report.work, key=lambda work: work.asking_seconds)
    lines.append(
        f"choosing took longest in {asking.method}: {format_seconds(asking.asking_seconds)} in all"
    )
    return Answer(
        "saved", "What was run", counted(n, "evaluation"), parts=[Text(lines)], more="work"
    )


def _next(report: ComparisonReport, store_options: Sequence[str]) -> Answer:
    document, n_more = report.standings, len(report.studies) - _MOST_STUDIES
    parts: list[Part] = []
    if "comparison" in document:
        again = f"--name {document['comparison']} --repeats {2 * document['repeats']}"
        parts.append(Text([f"For more repeats, the same compare command with {again}"]))
    files = document.get("files") or [document["out"]]
    parts.append(Command(shlex.join(["prefect-tune", "standings", *files]), "see it again"))
    reports = [["prefect-tune", "report", study] for study in report.studies[:_MOST_STUDIES]]
    first, *others = (shlex.join([*words, *store_options]) for words in reports)
    parts.append(Command(first, "look at the study of a replicate"))
    parts += map(Command, others)
    if n_more > 0:
        parts.append(Text([f"and {n_more:,} more, one for each replicate"], is_quiet=True))
    return Answer("next", "How to go on", "", parts=parts)
