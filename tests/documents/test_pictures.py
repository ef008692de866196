"""Pictures show the present code; after a failure, `deployments/docs/pictures` rewrites them."""

import re
from html import unescape

import pytest
from documents.benchmark_chart import benchmark_chart
from documents.pictures import PICTURES, labels_of
from reports.made_up import full

from prefect_tune.deployments.report.html import page_html
from prefect_tune.deployments.report.study_page import study_page
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.prefect_tasks import step_task

pytestmark = pytest.mark.slow


def test_chart_has_the_recorded_figures() -> None:
    assert (PICTURES / "benchmark.svg").read_text() == benchmark_chart()


def test_picture_of_a_report_shows_only_current_headings() -> None:
    page = page_html(study_page(full()))
    present = re.findall(r"<(?:h2|h3|summary|a)\b[^>]*>([^<]*)</", page)
    shown = labels_of("report.png")
    assert len(shown) > 5
    assert set(shown) <= set(map(unescape, present))


def test_picture_of_prefect_shows_only_current_names_of_task_runs() -> None:
    present = {
        str(step_task(step.name).task_run_name).format(algorithm=algorithm.id)
        for step in space_named("events").steps
        for algorithm in step.algorithms
    }
    shown = labels_of("prefect-flow-run.png")
    assert len(shown) > 1
    assert set(shown) <= present
