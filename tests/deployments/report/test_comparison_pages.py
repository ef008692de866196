"""Pages of comparisons: what they say agrees with itself."""

from dataclasses import replace

import pytest
from reports.compared import replicate, report_of

from prefect_tune.deployments.report.comparison_page import comparison_page
from prefect_tune.deployments.report.html import page_html
from prefect_tune.flows.reporting.comparison_report import ComparisonReport


@pytest.fixture
def report() -> ComparisonReport:
    tests = {"a": [3.0, 1.0], "b": [2.5, 2.5], "c": [9.0, 8.0]}
    return report_of(
        replicate(method, repeat, [9.0, loss], loss)
        for method, losses in tests.items()
        for repeat, loss in enumerate(losses)
    )


def section(report: ComparisonReport, name: str) -> str:
    return next(s.finding for s in comparison_page(report).sections if s.id == name)


def test_the_median_of_two_repeats_is_between_them(report) -> None:
    assert section(report, "tests").startswith("Least median test loss: a on 1 data set.")


def test_the_best_on_each_of_several_data_sets_is_counted() -> None:
    rows = [
        replicate(method, repeat, [9.0, loss], loss, data=data, dataset=data)
        for data, losses in {"d": {"a": 1.0, "b": 2.0}, "e": {"a": 4.0, "b": 3.0},
                             "f": {"a": 4.0, "b": 3.0}}.items()
        for method, loss in losses.items()
        for repeat in range(2)
    ]  # fmt: skip
    said = section(report_of(rows), "tests")
    assert said.startswith("Least median test loss: b on 2 data sets, a on 1 data set.")


def test_how_sure_it_is_is_said_of_the_one_that_leads(report) -> None:
    rows = report.standings["methods"]
    leader = rows[0]["method"]
    turned = [{**row, "expected_rank": -row["expected_rank"]} for row in rows]
    report = replace(report, standings={**report.standings, "methods": turned})
    best, _, sure, *_ = comparison_page(report).answers
    assert best.headline == sure.headline == leader
    assert not any(line.startswith(f"better than {leader}") for line in sure.parts[0].lines)
    assert section(report, "pairs").startswith(f"{leader} ")


def test_of_one_method_none_is_said_to_be_behind() -> None:
    page = comparison_page(report_of(replicate("a", k, [3.0], 3.0) for k in range(2)))
    assert page.alert == ""
    assert page.answers[0].parts[0].lines == ["the only method"]
    html = page_html(page)
    assert "significantly behind" not in html.replace("not significantly behind the first", "")
