"""Pages of studies and comparisons, as HTML that is parsed and never run."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from flow_studies import USELESS
from reports import made_up as made_up_reports
from reports.compared import curves_of, replicate
from reports.made_up import NASTY, SUMMARY, beyond_limits, failed, full, leads

from prefect_tune.deployments.report.comparison_page import comparison_page
from prefect_tune.deployments.report.figures.search import input_name
from prefect_tune.deployments.report.html import page_html, plotly_script
from prefect_tune.deployments.report.page import Command, Figure, Section, Table, sampled
from prefect_tune.deployments.report.study_page import study_page
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.optimizers.importance import Input
from prefect_tune.optimizers.space.vectors import CandidateSpace
from prefect_tune.tasks.catalogue.spaces import space_named


class Parsed(HTMLParser):
    """Tags, handlers and texts of a page; a script's text is its own."""

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
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag) -> None:  # noqa: ARG002
        self._tag = ""

    def handle_data(self, data) -> None:
        if self._tag == "script":
            self.scripts[-1] += data
        elif self._tag != "style":
            self.text += data


def parsed(report: StudyReport) -> Parsed:
    return Parsed(page_html(study_page(report)))


def sections_of(report: StudyReport) -> dict[str, Section]:
    return {section.id: section for section in study_page(report).sections}


@pytest.fixture(scope="module")
def everything() -> Parsed:
    return parsed(full())


def test_names_and_messages_are_text_and_nothing_else(everything) -> None:
    assert {tag for tag, _ in everything.tags}.isdisjoint({"img", "b1"})
    assert not [attrs for _, attrs in everything.tags if any(a.startswith("on") for a in attrs)]
    assert not any("alert(1)" in s for s in everything.scripts if not s.lstrip().startswith("{"))
    assert (
        '<script>alert(1)</script> <img src=x onerror=alert(2)> `tick` "quote"' in everything.text
    )
    assert "🦊" in everything.text


def test_what_steers_a_terminal_and_passwords_are_not_in_it(everything) -> None:
    html = page_html(study_page(full()))
    assert "\x1b" not in html
    assert "\\u001b" not in html
    assert "secret" not in html
    assert "me:***@bucket" in everything.text


def test_plotly_takes_no_text_of_a_figure_for_markup(everything) -> None:
    figures = [json.loads(s) for s in everything.scripts if s.lstrip().startswith("{")]
    assert len(figures) >= 8
    text = json.dumps(figures)
    assert "&lt;img src=x onerror=alert(2)&gt;" in text
    assert set(re.findall(r"<\w[^>]*>", text)) <= {"<br>", "<b>", "<extra>"}  # of hover templates


def test_only_its_own_scripts_may_run_and_nothing_may_be_loaded(everything) -> None:
    [policy] = [a["content"] for tag, a in everything.tags
                if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("'sha256-") == 2
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert plotly_script()[1] in policy
    loading = [a for _, a in everything.tags if {"src", "href"} & set(a)]
    assert all((a.get("href") or "").startswith(("#", "data:")) for a in loading)


def commands_of(report: StudyReport) -> list[str]:
    page = study_page(report)
    parts = [p for s in page.sections if s.id != "again" for p in s.parts]
    return [part.words for part in [*page.commands, *parts] if isinstance(part, Command)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "empty", "failed", "beyond_limits"])
def test_a_page_has_lines_commands_and_sections_whatever_the_study(name) -> None:
    page = study_page(getattr(made_up_reports, name)())
    assert page.lines
    assert page.commands
    assert len({section.id for section in page.sections}) == len(page.sections)
    assert page.sections[-1].id == "again"
    assert (len(page_html(page)) > 500_000) == (name in {"full", "beyond_limits"})  # of Plotly


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "failed"])
@pytest.mark.parametrize("state", ["complete", "interrupted"])
def test_all_next_commands_name_a_store_other_than_the_default(name, state) -> None:
    report = getattr(made_up_reports, name)()
    summary = replace(report.summary, store_options=("--store", "s3://b/my store"), state=state)
    commands = commands_of(replace(report, summary=summary))
    assert len(commands) > 2
    assert all(command.endswith(" --store 's3://b/my store'") for command in commands)


def test_the_page_names_an_obstacle_to_a_longer_study_and_offers_no_command() -> None:
    report = full()
    report = replace(report, reproduction=replace(report.reproduction, obstacle="uses units=raw"))
    assert {command.split()[1] for command in commands_of(report)}.isdisjoint({"run", "retry"})
    assert "uses units=raw" in page_html(study_page(report))


def test_the_first_screen_has_the_lines_of_show_and_the_next_commands() -> None:
    page = study_page(full())
    [best] = [line for line in page.lines if line.text.startswith("best: trial 1")]
    assert "12.5 %" in best.text
    assert page.headline == "error 13 % on the test rows"
    commands = [command.words for command in page.commands]
    assert "prefect-tune retry made-up" in commands
    assert "prefect-tune report made-up" not in commands
    assert "prefect-tune run 'it'\"'\"'s here.csv' --budget 20m --study made-up" in commands


def test_problems_of_a_study_come_first() -> None:
    useless = replace(SUMMARY, usefulness=USELESS)
    first = study_page(replace(full(), summary=useless)).lines[0]
    assert (first.tone, first.text) == ("alert", useless.uselessness)
    assert 'class="alert"' in page_html(study_page(replace(full(), summary=useless)))


def test_a_reason_replaces_an_importance_that_cannot_be_estimated() -> None:
    unknown = replace(full().importance, effects=(), r2=0.05, reason="a forest cannot")
    section = sections_of(replace(full(), importance=unknown))["importance"]
    assert "a forest cannot" in section.note
    assert "5 %" in section.note


def test_of_many_points_few_are_shown_and_the_page_says_how_many() -> None:
    figure = sections_of(full())["progress"].parts[0]
    n_shown = sum(len(trace.x) for trace in figure.plot.data[:2])
    assert 1_600 < n_shown < 2_010
    assert figure.note.startswith(f"{n_shown:,} of 4,970 ")
    assert 12.5 in figure.plot.data[0].y  # the best is there


@pytest.mark.slow
def test_ten_thousand_trials_with_huge_messages_make_a_small_page() -> None:
    """Each of them led, for a reason of its own; names, messages and curves are long."""
    some, n = full(10_000), 10_000
    led = leads(
        *((float(k), k + 1, k, "full" if k > 500 else "folds 1 of 3", 1e4 - k) for k in range(n))
    )
    names = [f"{k}{'n' * 100_000}" for k in range(300)]
    groups = [replace(some.failures[0], message=f"{k} {'m' * 1_000_000}") for k in range(50)]
    use = some.algorithms.iloc[[0] * 300].assign(algorithm=names)
    quantities = [
        pd.DataFrame({"quantity": f"{k}", "trial": range(n), "loss": some.progress["seconds"],
                      "value": some.progress["seconds"][::-1].to_numpy(), "is_best": True})
        for k in range(4)
    ]  # fmt: skip
    long = [9.0 - e / 1_000 for e in range(1_000)]
    curves = some.curves.iloc[[0] * 120].assign(trial=range(120), losses=[long] * 120, epochs=1_000)
    report = replace(
        some,
        progress=some.progress.assign(phase=[f"{'p' * 2_000}{k}" for k in range(n)]),
        incumbents=led,
        algorithms=pd.concat([use, some.algorithms]),
        failures=groups,
        trade_offs=pd.concat(quantities),
        curves=curves,
    )
    page = study_page(report)
    assert len(page_html(page).encode()) < 5_000_000
    progress = next(s for s in page.sections if s.id == "progress")
    lines = [of for of in progress.parts[0].plot.data if of.name == "best so far"]
    assert len(lines) == 2  # one for each fidelity
    assert lines[0].x[0] == 0.0
    assert lines[1].x[-1] == pytest.approx(some.progress["seconds"].iloc[-1])
    assert sum(len(line.x) for line in lines) < 700
    table = progress.parts[2]
    assert len(table.rows) == 200
    assert "10,000" in table.note


def test_losses_of_different_fidelities_are_not_held_against_each_other() -> None:
    some, part = full(), "epochs 1 of 9"
    led = leads((0.0, 1, 0, part, 20.0), (0.7, 2, 1, part, 12.5), (1.4, 3, 2, "full", 30.0),
                (7.0, 11, 10, "full", 26.0))  # fmt: skip
    section = sections_of(replace(some, incumbents=led))["progress"]
    lines = [of for of in section.parts[1].plot.data if of.name == "best so far"]
    assert [list(line.x) for line in lines] == [[1, 2, 2, 3], [3, 11, 11, 5000]]
    assert [list(line.y) for line in lines] == [[20, 20, 12.5, 12.5], [30, 30, 26, 26]]
    assert [row[3] for row in section.parts[2].rows] == [part, part, "full", "full"]


def test_a_failed_study_shows_no_loss_and_all_reasons() -> None:
    sections = sections_of(failed())
    assert "progress" not in sections
    parts = sections["failures"].parts
    assert [row[3] for row in parts[0].rows] == ["2", "28"]
    assert NASTY[:8] in "".join(parts[1].lines)
    assert sum(map(len, parts[1].lines)) > 10_000


def test_the_bound_of_a_quantity_is_drawn() -> None:
    figure, table = sections_of(beyond_limits())["constraints"].parts
    assert [shape.x0 for shape in figure.plot.layout.shapes] == [10.0]
    assert {row[-1] for row in table.rows} == {"within the bound"}


def test_the_page_of_a_comparison_has_ranking_curves_and_pairs() -> None:
    tests = {"a": [3.0, 1.0], "b": [2.5, 2.5], "c": [9.0, 8.0]}
    curves = curves_of(
        replicate(method, repeat, [9.0, loss], loss)
        for method, losses in tests.items()
        for repeat, loss in enumerate(losses)
    )
    found = standings(curves)
    page = comparison_page(found, curves, ["curves.parquet"])
    assert [section.id for section in page.sections] == ["ranks", "curves", "pairs"]
    ranking, figure, pairs = (section.parts[0] for section in page.sections)
    assert [row[0] for row in ranking.rows] == found.methods.method.tolist()
    assert len(pairs.rows) == 6
    medians = {trace.name: list(trace.y[-2:]) for trace in figure.plot.data}
    assert medians["a"] == [9.0, 2.0]
    assert medians.keys() == tests.keys()
    assert [line.text for line in page.lines[3:]] == found.warnings
    winner = found.methods.iloc[0]
    assert page.headline.startswith(f"{winner.method}: median error {winner.median_test_loss:g} %")
    assert len(page_html(page)) < 3_000_000


@pytest.mark.parametrize("space", ["flash", "healthcare", "regression", "small"])
def test_each_choice_of_a_space_has_a_name_of_its_own(space) -> None:
    columns = CandidateSpace(space_named(space)).columns
    inputs = [Input(step.name) for step in space_named(space).searched]
    inputs += [Input(*column) for column in columns]
    assert len({input_name(of) for of in inputs}) == len(inputs)


def test_of_many_rows_the_extremes_and_the_last_are_shown() -> None:
    values = np.full(10_001, 50.0)
    values[4_321], values[8_765] = 1.0, 99.0
    shown = sampled(pd.DataFrame({"loss": values}), "loss", n_rows=100)
    assert {4_321, 8_765, 10_000} <= set(shown.index)
    assert 100 <= len(shown) <= 103
    assert shown.index.is_monotonic_increasing


def test_codes_stand_by_their_descriptions(everything) -> None:
    assert "Sodium" in everything.text
    sections = sections_of(full())
    [table] = [p for p in sections["codes"].parts if isinstance(p, Table)]
    assert [row[0] for row in table.rows if row[1] == "Sodium"] == ["LAB//1"]
    assert [row[3][:1] for row in table.rows] == ["↑", "↑", "u", "↓", "u"]
    assert [row[0].startswith("  ") for row in table.rows] == [False, True, True, False, False]
    [figure] = [p for p in sections["codes"].parts if isinstance(p, Figure)]
    assert {label for trace in figure.plot.data for label in trace.y} > {"Sodium", "age, years"}
    [coverage] = [p for p in sections["coverage"].parts if isinstance(p, Table)]
    assert len(coverage.rows) == 20
    assert coverage.rows[0][2:] == ["100.0%", "2.5", "50.0%", "-"]
    assert len(json.loads(json.dumps(full().to_json()))["model"]["coverage"]) == 30


def test_quality_of_two_classes_stands_on_the_page_as_far_as_it_is_known() -> None:
    report = full()

    def judged(**changes) -> dict[str, Section]:
        return sections_of(replace(report, model=replace(report.model, **changes)))

    measures, calibration, _ = judged()["quality"].parts
    assert ["95 % interval", "0.750 to 0.850 (1,000 bootstraps of 90 patients)"] in measures.rows
    assert isinstance(calibration, Figure)
    bare = judged(calibration=None, effects=None, coverage=())
    assert not [p for p in bare["quality"].parts if isinstance(p, Figure)]
    assert not {"codes", "coverage"} & set(bare)
    assert "no room" in judged(effects=None, problem="no room")["codes"].note
    broken = judged(auroc=None, calibration=None, effects=None, problem=NASTY)
    assert NASTY[:30] in broken["quality"].note
    assert "quality" not in judged(auroc=None, calibration=None)
