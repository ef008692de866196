"""Pages of comparisons: what they say agrees with itself."""

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


def test_it_has_one_ranking_a_curve_a_table_of_pairs_and_one_of_work(report) -> None:
    page = comparison_page(report)
    assert [section.id for section in page.sections] == ["ranks", "curves", "pairs", "work"]
    ranking, curves, pairs, work = (section.parts[0] for section in page.sections)
    leader = report.standings["methods"][0]["method"]
    assert page.answers[0].headline == ranking.rows[0][1] == leader
    assert ranking.rows[0][0] == "100 %"
    assert {trace["name"] for trace in curves.plot["data"]} == {"a", "b", "c"}
    assert len(pairs.rows) == 6
    assert [row[1] for row in work.rows] == ["4", "4", "4"]
    assert len(page_html(page)) < 3_000_000


def test_one_method_has_no_pairs() -> None:
    page = comparison_page(report_of(replicate("a", k, [3.0], 3.0) for k in range(2)))
    assert page.alert == ""
    assert [section.id for section in page.sections] == ["ranks", "curves", "work"]
    assert "significantly behind" not in page.sections[0].finding
