"""Pages of studies and comparisons, as HTML that is parsed but never run."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flow_studies import USELESS
from reports import made_up
from reports.compared import curves_of, replicate
from reports.made_up import NASTY, SUMMARY, failed, full, leads

from prefect_tune.deployments.report.comparison_page import comparison_page
from prefect_tune.deployments.report.html import page_html, plotly_script
from prefect_tune.deployments.report.judged_model import ModelReport
from prefect_tune.deployments.report.page import Command, Figure, ReportPage, Section, sampled
from prefect_tune.deployments.report.study_page import study_page, verdict
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.tasks.final.quality import class_curve

SCORED = ("curves", "calibration")
"""Tables of a model that need scores."""
N_FEW = 200
"""Trials of a report that is compared with a file."""


class Parsed(HTMLParser):
    """Tags, event handlers and texts of a page, with scripts kept separately."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._tag = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        self._tag = tag
        self.text += {"th": " | ", "td": " | ", "h2": "\n# ", "span": "", "b": ""}.get(tag, "\n")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag) -> None:  # noqa: ARG002
        self._tag = ""

    def handle_data(self, data) -> None:
        if self._tag == "script":
            self.scripts[-1] += data
        elif self._tag != "style":
            self.text += data if self._tag == "pre" else " ".join(data.split("\n"))

    @property
    def lines(self) -> str:
        """Return the text with one line per block."""
        lines = (re.sub(r"(?<=\S) +", " ", line.rstrip()) for line in self.text.split("\n"))
        return "\n".join(filter(None, lines)).replace("\n#", "\n\n#")


def parsed(page: ReportPage) -> Parsed:
    return Parsed(page_html(replace(page, made="Made by prefect-tune.")))


def sections_of(report: StudyReport) -> dict[str, Section]:
    return {section.id: section for section in study_page(report).sections}


@pytest.fixture(scope="module")
def everything() -> Parsed:
    return parsed(study_page(full()))


def test_page_of_a_study_equals_the_golden_file(file_regression) -> None:
    file_regression.check(parsed(study_page(full(N_FEW))).lines, extension=".txt")


def test_page_of_a_failed_study_names_the_store_in_every_command(file_regression) -> None:
    """All suggested commands name the store."""
    report = failed()
    own = {"store_options": ("--store", "s3://b/my store"), "usefulness": USELESS}
    page = study_page(replace(report, summary=replace(report.summary, **own)))
    assert (page.lines[0].tone, page.lines[1].tone) == ("alert", "plain")
    file_regression.check(parsed(page).lines, extension=".txt")


def test_page_of_a_comparison_equals_the_golden_file(file_regression) -> None:
    tests = {"a": [3.0, 1.0], "b": [2.5, 2.5], "c": [9.0, 8.0]}
    curves = curves_of(
        replicate(method, repeat, [9.0, loss], loss)
        for method, losses in tests.items()
        for repeat, loss in enumerate(losses)
    )
    page = comparison_page(standings(curves), curves, ["curves.parquet"])
    file_regression.check(parsed(page).lines, extension=".txt")
    figure = page.sections[1].parts[0]
    medians = {trace.name: list(trace.y[-2:]) for trace in figure.plot.data}
    assert medians["a"] == [9.0, 2.0]
    assert medians.keys() == tests.keys()


def test_names_and_messages_are_shown_as_plain_text(everything) -> None:
    assert {tag for tag, _ in everything.tags}.isdisjoint({"img", "b1"})
    assert not [attrs for _, attrs in everything.tags if any(a.startswith("on") for a in attrs)]
    assert not any("alert(1)" in s for s in everything.scripts if not s.lstrip().startswith("{"))
    html = page_html(study_page(full()))
    assert not [part for part in ("\x1b", "\\u001b", "secret") if part in html]
    # Plotly, too, takes no text of a figure for markup.
    figures = [json.loads(s) for s in everything.scripts if s.lstrip().startswith("{")]
    assert len(figures) >= 8
    text = json.dumps(figures)
    assert "&lt;img src=x onerror=alert(2)&gt;" in text
    assert set(re.findall(r"<\w[^>]*>", text)) <= {"<br>", "<b>", "<extra>"}  # of hover templates


def test_content_policy_allows_only_own_scripts_and_no_requests(everything) -> None:
    [policy] = [a["content"] for tag, a in everything.tags
                if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("'sha256-") == 2
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert plotly_script()[1] in policy
    loading = [a for _, a in everything.tags if {"src", "href"} & set(a)]
    assert all((a.get("href") or "").startswith(("#", "data:")) for a in loading)


def test_suggested_commands_match_the_state_of_the_study() -> None:
    nothing = study_page(made_up.empty())
    assert nothing.lines
    assert nothing.commands
    assert len(page_html(nothing)) < 500_000  # it needs no Plotly
    page = study_page(replace(failed(), summary=replace(SUMMARY, state="interrupted")))
    words = "prefect-tune run 'it'\"'\"'s here.csv' --study made-up"
    assert page.commands[0] == Command(words, "resume the study")
    again = replace(made_up.REPRODUCTION, obstacle="uses units=raw")
    page = study_page(replace(failed(), reproduction=again))
    assert {command.words.split()[1] for command in page.commands}.isdisjoint({"run", "retry"})
    assert page.sections[-1].parts[0].lines == ["uses units=raw"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"problem": NASTY}, NASTY[:30]),
        ({"n_rows": 0}, "has no test rows"),
        ({"n_rows": 0, "n_training": 0, "problem": "no room"}, "cannot be read"),
    ],
)
def test_reason_replaces_figures_of_the_model(changes, reason) -> None:
    report = full(N_FEW)
    model = replace(report.model, **{"tables": {}, **changes})
    sections = sections_of(replace(report, model=model))
    shown = [sections[name] for name in ("quality", "uses", "data")]
    assert any(reason in section.note for section in shown)
    assert not [part for section in shown for part in section.parts if isinstance(part, Figure)]


def test_reason_replaces_importance_of_choices() -> None:
    report = full(N_FEW)
    unknown = replace(report.importance, effects=(), r2=0.05, reason="a forest cannot")
    parts = sections_of(replace(report, importance=unknown))["search"].parts
    assert any("a forest cannot" in line for part in parts for line in getattr(part, "lines", ()))


def test_report_without_a_model_shows_the_reason() -> None:
    sections = sections_of(replace(failed(), model=ModelReport(n_training=9, n_rows=3)))
    assert all("final model" in sections[name].note for name in ("quality", "uses"))


@pytest.mark.parametrize("loss", [25.0, 26.0])
def test_verdict_shows_an_interval_only_for_the_displayed_loss(loss) -> None:
    report = full(N_FEW)
    tested = replace(report, summary=replace(report.summary, test_loss=loss))
    assert ("95% interval" in verdict(tested)) == (loss == 25.0)  # others are left out of the loss
    untested = replace(report, summary=replace(report.summary, test_loss=None))
    assert "test rows not scored" in verdict(untested)
    model = replace(report.model, n_rows=0)
    assert "no test rows" in verdict(replace(untested, model=model))


@pytest.mark.parametrize("target", ["classes", "numbers"])
def test_page_of_a_model_of_a_table_equals_the_golden_file(file_regression, target) -> None:
    model = made_up.of_table() if target == "classes" else made_up.of_numbers()
    summary = replace(SUMMARY, is_of_events=False)
    page = study_page(replace(full(N_FEW), model=model, summary=summary))
    shown = [s for s in page.sections if s.id in {"quality", "uses", "data"}]
    kept = replace(page, lines=(), commands=(), sections=shown)
    file_regression.check(parsed(kept).lines, extension=".txt")


def figure_of(report: StudyReport, section: str, title: str) -> Any:
    [figure] = [p for p in sections_of(report)[section].parts if getattr(p, "title", "") == title]
    return figure


def test_confusion_matrix_without_scores_counts_predicted_classes() -> None:
    report = full(N_FEW)
    tables = {name: t for name, t in report.model.tables.items() if name not in SCORED}
    report = replace(report, model=replace(report.model, tables=tables))
    matrix = figure_of(report, "quality", "Confusion matrix")
    assert matrix.plot.data[0].z.sum() == report.model.tables["confusion"]["rows"].sum()
    assert matrix.note == ""


@pytest.mark.parametrize("highest", [0.4, 0.9])
def test_slider_starts_at_a_threshold_that_finds_rows(highest) -> None:
    report, y = full(N_FEW), np.arange(120) % 3 > 1
    curves = class_curve(y, highest * (0.5 + y / 2)).assign(label=NASTY)
    tables = report.model.tables | {"curves": curves}
    report = replace(report, model=replace(report.model, tables=tables))
    matrix = figure_of(report, "quality", "Confusion matrix")
    threshold, found, false = matrix.rows[matrix.start]
    assert threshold == (0.5 if highest == 0.9 else pytest.approx(0.4))
    assert (found, false) == (40, 0)
    assert ("predicts no for all" in matrix.note) == (highest == 0.4)


def test_direction_has_the_same_color_in_all_reports() -> None:
    report, colors = full(N_FEW), []
    effects = report.model.tables["effects"]
    for direction in (0.4, -0.4):
        changed = effects.assign(direction=[direction, None, -direction, 0.0])
        tables = report.model.tables | {"effects": changed}
        figure = figure_of(
            replace(report, model=replace(report.model, tables=tables)), "uses", "Strength by code"
        )
        colors.append({trace.name[0]: trace.marker.color for trace in figure.plot.data})
    assert colors[0] == colors[1]
    assert len(set(colors[0].values())) == len(colors[0]) == 3


def test_page_counts_classes_and_columns_beyond_the_rows_shown() -> None:
    some, n = made_up.of_table(), 500
    labels = [f"class {k}" for k in range(n)]
    columns = pd.concat([some.tables["columns"].iloc[[0]]] * 2_000)
    classes = some.tables["classes"].iloc[[0] * n].assign(label=labels)
    tables = some.tables | {"columns": columns, "classes": classes}
    report = replace(full(N_FEW), model=replace(some, tables=tables, n_rare_classes=2))
    text = parsed(study_page(report)).lines
    assert "The 2 most frequent of 502 classes." in text
    assert text.count(" (not listed: 2 with fewer than 10 rows)") == 2
    assert "The first 200 of 500 rows." in text
    assert "The first 200 of 2,000 rows." in text


def test_figure_of_many_points_shows_a_sample_and_the_sample_size() -> None:
    figure = sections_of(full())["search"].parts[0]
    n_shown = sum(len(trace.x) for trace in figure.plot.data[:2])
    assert 1_600 < n_shown < 2_010
    assert figure.note.startswith(f"{n_shown:,} of 4,970 ")
    assert 12.5 in figure.plot.data[0].y  # the best is there
    values = np.full(10_001, 50.0)
    values[4_321], values[8_765] = 1.0, 99.0
    shown = sampled(pd.DataFrame({"loss": values}), "loss", n_rows=100)
    assert {4_321, 8_765, 10_000} <= set(shown.index)
    assert 100 <= len(shown) <= 103
    assert shown.index.is_monotonic_increasing


@pytest.mark.slow
def test_ten_thousand_trials_with_huge_messages_make_a_small_page() -> None:
    """Every trial was the incumbent once; names and failure messages are very long."""
    some, n = full(10_000), 10_000
    names = [f"{k}{'n' * 100_000}" for k in range(300)]
    groups = [replace(some.failures[0], message=f"{k} {'m' * 1_000_000}") for k in range(50)]
    use = some.algorithms.iloc[[0] * 300].assign(algorithm=names)
    seconds = some.progress["seconds"]
    quantities = [
        pd.DataFrame({"quantity": f"{k}", "trial": range(n), "loss": seconds,
                      "value": seconds[::-1].to_numpy(), "is_best": True})
        for k in range(4)
    ]  # fmt: skip
    report = replace(
        some,
        progress=some.progress.assign(phase=[f"{'p' * 2_000}{k}" for k in range(n)]),
        incumbents=leads(*((float(k), k + 1, k, "full", 1e4 - k) for k in range(n))),
        algorithms=pd.concat([use, some.algorithms]),
        failures=groups,
        trade_offs=pd.concat(quantities),
    )
    page = study_page(report)
    assert len(page_html(page).encode()) < 5_000_000
    progress = next(s for s in page.sections if s.id == "search")
    [led] = [of for of in progress.parts[0].plot.data if of.name == "best so far"]
    assert led.x[-1] == pytest.approx(seconds.iloc[-1])
    assert len(led.x) < 700
    assert len(progress.parts[1].rows) == 200
    assert "10,000" in progress.parts[1].note


def test_losses_of_different_fidelities_are_drawn_as_separate_lines() -> None:
    some, part = full(), "epochs 1 of 9"
    led = leads((0.0, 1, 0, part, 20.0), (0.7, 2, 1, part, 12.5), (1.4, 3, 2, "full", 30.0),
                (7.0, 11, 10, "full", 26.0))  # fmt: skip
    section = sections_of(replace(some, incumbents=led))["search"]
    lines = [of for of in section.parts[0].plot.data if of.name == "best so far"]
    end = some.progress["seconds"].iloc[-1]
    assert [list(line.x) for line in lines] == [[0, 0.7, 0.7, 1.4], [1.4, 7, 7, end]]
    assert [list(line.y) for line in lines] == [[20, 20, 12.5, 12.5], [30, 30, 26, 26]]


def test_figures_have_bounds_and_descriptions() -> None:
    sections = sections_of(full(N_FEW))
    parts = sections["search"].parts
    [at] = [k for k, part in enumerate(parts) if getattr(part, "title", "").endswith("latency_us")]
    figure, table = parts[at : at + 2]
    assert [shape.x0 for shape in figure.plot.layout.shapes] == [10.0]
    assert {row[-1] for row in table.rows} == {"within the bound"}
    [figure] = [part for part in sections["uses"].parts if isinstance(part, Figure)]
    assert {label for trace in figure.plot.data for label in trace.y} > {"Sodium", "age, years"}
