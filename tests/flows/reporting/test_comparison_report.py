"""Curves of compared methods over the budget, by hand."""

import pytest
from reports.compared import replicate, report_of


@pytest.fixture
def report():
    return report_of(
        [
            replicate("a", 0, [8.0, 4.0, 4.0, 2.0], 3.0),
            replicate("a", 1, [6.0, 6.0, 1.0, 1.0], 1.0),
            replicate("b", 0, [None, 9.0, 9.0, 9.0], 9.0),
            replicate("b", 1, [7.0, 7.0, 7.0, 7.0], 9.0),
        ]
    )


def at(report, method: int, what: str, share: float) -> float | None:
    [of] = report.data_sets
    return getattr(of.curves[method], what)[round(share * (len(of.shares) - 1))]


def test_curves_are_medians_and_quartiles_of_the_replicates(report) -> None:
    assert [curve.method for curve in report.data_sets[0].curves] == ["a", "b"]
    assert at(report, 0, "median", 0.2) is None  # nothing has ended after eight seconds
    assert [at(report, 0, "median", s) for s in (0.25, 0.5, 0.75, 1.0)] == [7.0, 5.0, 2.5, 1.5]
    assert [at(report, 0, w, 0.5) for w in ("low", "high")] == [4.5, 5.5]


def test_a_replicate_without_a_loss_is_worse_than_all_others(report) -> None:
    assert at(report, 1, "median", 0.25) is None
    assert at(report, 1, "median", 0.5) == 8.0


def test_what_was_run_is_that_of_each_method(report) -> None:
    assert [(w.method, w.evaluations, w.failed) for w in report.work] == [("a", 8, 0), ("b", 8, 1)]
    assert report.work[0].evaluating_seconds == 16.0
    assert len(report.studies) == 4
