"""Pages of studies and comparisons, as HTML that is parsed and never run."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from flow_studies import USELESS
from reports import made_up as made_up_reports
from reports.compared import replicate, report_of
from reports.made_up import NASTY, SUMMARY, beyond_limits, failed, full

from prefect_tune.deployments.report.comparison_data import ComparisonReport, DataSetCurves
from prefect_tune.deployments.report.comparison_page import comparison_page
from prefect_tune.deployments.report.figures.importance import input_names
from prefect_tune.deployments.report.figures.paths import StepUse
from prefect_tune.deployments.report.figures.progress import Lead
from prefect_tune.deployments.report.html import page_html, plotly_bundle
from prefect_tune.deployments.report.page import Command, Cut, Figure, Section, Table
from prefect_tune.deployments.report.plots import downsampled, shortened
from prefect_tune.deployments.report.study_page import StudyReport, study_page
from prefect_tune.flows.comparison.standings import ComparisonOutcome
from prefect_tune.optimizers.converter import to_document
from prefect_tune.optimizers.importance import inputs_of
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
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
    assert not re.search(r"<\w", text.replace("<br>", ""))


def test_only_its_own_scripts_may_run_and_nothing_may_be_loaded(everything) -> None:
    [policy] = [a["content"] for tag, a in everything.tags
                if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("'sha256-") == 2
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert plotly_bundle().source in policy
    loading = [a for _, a in everything.tags if {"src", "href"} & set(a)]
    assert all((a.get("href") or "").startswith(("#", "data:")) for a in loading)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "empty", "failed", "beyond_limits"])
def test_the_five_questions_are_answered_whatever_the_study(name) -> None:
    page = study_page(getattr(made_up_reports, name)())
    assert [a.id for a in page.answers] == ["best", "loss", "failed", "saved", "next"]
    assert len({section.id for section in page.sections}) == len(page.sections)
    assert page.sections[-1].id == "again"
    assert (len(page_html(page)) > 500_000) == (name in {"full", "beyond_limits"})  # of Plotly


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "failed"])
@pytest.mark.parametrize("state", ["complete", "interrupted"])
def test_all_next_commands_name_a_store_other_than_the_default(name, state) -> None:
    report = getattr(made_up_reports, name)()
    summary = replace(report.summary, store_options=("--store", "s3://b/my store"), state=state)
    page = study_page(replace(report, summary=summary))
    parts = [p for a in page.answers for p in a.parts]
    parts += [p for s in page.sections if s.id != "again" for p in s.parts]
    commands = [part.words for part in parts if isinstance(part, Command)]
    assert len(commands) > 2
    assert all(command.endswith(" --store 's3://b/my store'") for command in commands)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "failed"])
@pytest.mark.parametrize("state", ["complete", "interrupted"])
def test_a_study_with_a_removed_option_says_so_and_has_no_command_that_extends_it(
    name, state
) -> None:
    report = getattr(made_up_reports, name)()
    page = study_page(
        replace(
            report,
            summary=replace(report.summary, state=state),
            reproduction=replace(report.reproduction, removed_option="units=raw"),
        )
    )
    parts = [p for part_of in (*page.answers, *page.sections) for p in part_of.parts]
    commands = [part.words.split()[1] for part in parts if isinstance(part, Command)]
    assert set(commands) <= {"predict", "export", "trials"}
    assert "uses units=raw" in page_html(page)


def test_the_answers_say_what_the_study_found() -> None:
    best, loss, broke, saved, then = study_page(full()).answers
    assert best.headline == "Trial 1"
    assert [row[:2] for row in best.parts[0].steps] == [("fit model", "tree")]
    assert best.parts[0].idle == ["rescale"]
    assert loss.headline == "13 %"
    assert [bar.value for bar in loss.bars] == ["50 %", "12.5 %", "13.5 %", "13 %"]
    assert broke.headline.startswith("30 of 5,000")
    assert broke.parts[0].lines[1].startswith("28 ")
    assert saved.headline == "4.0s"
    commands = [part.words for part in then.parts]
    assert "prefect-tune retry made-up" in commands
    assert "prefect-tune run 'it'\"'\"'s here.csv' --budget 20m --study made-up" in commands
    assert any("NEW.csv" in words and "--labels" not in words for words in commands)


@pytest.mark.slow
def test_problems_of_a_study_come_first() -> None:
    assert study_page(full()).alert == ""
    useless = replace(SUMMARY, usefulness=USELESS)
    assert "no better" in study_page(replace(full(), summary=useless)).alert
    page = study_page(replace(full(), summary=replace(SUMMARY, state="interrupted")))
    assert "interrupted" in page.alert
    assert page.answers[-1].parts[0].words.endswith("--study made-up")
    unknown = replace(full().importance, effects=(), r2=0.05, reason="a forest cannot")
    assert "5 %" in sections_of(replace(full(), importance=unknown))["importance"].finding
    command = ("prefect-tune", "run", "meds", "--labels", "labels.csv", "--study", "s")
    again = replace(full().reproduction, command=command)
    page = study_page(replace(full(), reproduction=again))
    assert any("--labels NEW_LABELS.csv" in part.words for part in page.answers[-1].parts)


def test_where_all_are_beyond_the_limits_it_says_which_limits_the_nearest_meets() -> None:
    page = study_page(beyond_limits())
    assert "constraints" in page.alert
    commands = [part.words for part in page.answers[-1].parts]
    assert commands[0].endswith("--constraint 'latency_us<=13'")
    assert not any("export" in words for words in commands)


def test_of_many_points_few_are_shown_and_the_page_says_how_many() -> None:
    figure = sections_of(full())["progress"].parts[0]
    n_shown = sum(len(trace["x"]) for trace in figure.plot["data"][:2])
    assert 1990 < n_shown < 2010
    assert figure.note.startswith(f"{n_shown:,} of 4,970 ")
    assert 12.5 in figure.plot["data"][1]["y"]  # what led is there


@pytest.mark.slow
def test_ten_thousand_trials_with_huge_messages_make_a_small_page() -> None:
    """Each of them led, for a reason of its own; names, messages and curves are long."""
    some, n = full(10_000), 10_000
    leads = [Lead(float(k), k + 1, k, 1e4 - k, "" if k > 500 else "folds 1 of 3") for k in range(n)]
    phases = [f"{'p' * 2_000}{k}" for k in range(n)]
    use = some.paths.steps[0].algorithms["none"]
    names = {f"{k}{'n' * 100_000}": use for k in range(300)}
    message = "m" * 1_000_000
    groups = [replace(some.failures[0], message=f"{k} {message}") for k in range(50)]
    curve = some.fidelities.curves[0]
    curves = [replace(curve, losses=[9.0 - e / 1_000 for e in range(1_000)])] * 120
    page = study_page(
        replace(
            some,
            progress=replace(some.progress, phase=phases, leads=leads),
            paths=replace(some.paths, steps=[StepUse("rescale", names), *some.paths.steps[1:]]),
            failures=groups,
            fidelities=replace(some.fidelities, curves=curves),
            trade_offs=[
                replace(some.trade_offs[0], quantity=f"{k}", losses=some.progress.seconds,
                        values=some.progress.seconds[::-1], trials=list(range(n)),
                        front=range(n))
                for k in range(4)
            ],
        )
    )  # fmt: skip
    assert len(page_html(page).encode()) < 5_000_000
    progress = next(s for s in page.sections if s.id == "progress")
    line = next(t for t in progress.parts[0].plot["data"] if t["name"] == "best so far")
    assert (line["x"][0], line["x"][-1]) == (0.0, pytest.approx(some.progress.seconds[-1]))
    assert line["y"].count(None) == 1  # the gap between fidelities stays
    assert len(line["x"]) == len(line["y"]) == len(line["hovertext"]) < 320
    table = progress.parts[2]
    assert len(table.rows) == 200
    assert "10,000" in table.note


@pytest.mark.slow
def test_losses_of_different_fidelities_are_not_held_against_each_other() -> None:
    some, part = full(), "epochs 1 of 9"
    leads = [Lead(0.0, 1, 0, 20.0, part), Lead(0.7, 2, 1, 12.5, part), Lead(1.4, 3, 2, 30.0),
             Lead(7.0, 11, 10, 26.0)]  # fmt: skip
    section = sections_of(replace(some, progress=replace(some.progress, leads=leads)))["progress"]
    assert all(
        part in section.finding for part in ("Trial 10", "7.0s", "26 %", "3 improvements", "30 %")
    )
    of_trials, table = section.parts[1], section.parts[2]
    line = next(t for t in of_trials.plot["data"] if t["name"] == "best so far")
    assert line["x"] == [1, 2, 3, 3, 3, 11, 5000]
    assert line["y"] == [20.0, 12.5, 12.5, None, 30.0, 26.0, 26.0]  # None is a gap
    assert len(line["hovertext"]) == len(line["x"])
    assert table.columns[3] == "fidelity"
    assert [row[3:] for row in table.rows] == [
        [part, "20 %", ""], [part, "12.5 %", "-7.5"], ["full", "30 %", ""], ["full", "26 %", "-4"]
    ]  # fmt: skip
    whole = sections_of(some)["progress"].parts[2]
    assert "fidelity" not in whole.columns
    assert [row[-1] for row in whole.rows] == ["", "-7.5"]


def test_a_failed_study_shows_no_loss_and_all_reasons() -> None:
    sections = sections_of(failed())
    assert "progress" not in sections
    folds = [part for part in sections["failures"].parts if part.kind == "fold"]
    assert len(folds[0].text) > 10_000
    assert NASTY[:8] in folds[0].text


@pytest.fixture
def compared() -> tuple[ComparisonOutcome, ComparisonReport]:
    tests = {"a": [3.0, 1.0], "b": [2.5, 2.5], "c": [9.0, 8.0]}
    return report_of(
        replicate(method, repeat, [9.0, loss], loss)
        for method, losses in tests.items()
        for repeat, loss in enumerate(losses)
    )


def test_it_has_one_ranking_a_curve_a_table_of_pairs_and_one_of_work(compared) -> None:
    outcome, _ = compared
    page = comparison_page(*compared)
    assert [section.id for section in page.sections] == ["ranks", "curves", "pairs", "work"]
    ranking, curves, pairs, work = (section.parts[0] for section in page.sections)
    leader = outcome.standings.methods[0].method
    assert page.answers[0].headline == ranking.rows[0][1] == leader
    assert ranking.rows[0][0] == "100 %"
    assert {trace["name"] for trace in curves.plot["data"]} == {"a", "b", "c"}
    assert len(pairs.rows) == 6
    assert [row[1] for row in work.rows] == ["4", "4", "4"]
    assert len(page_html(page)) < 3_000_000


@pytest.fixture
def blocks() -> DataSetCurves:
    _, report = report_of(
        [
            replicate("a", 0, [8.0, 4.0, 4.0, 2.0], 3.0),
            replicate("a", 1, [6.0, 6.0, 1.0, 1.0], 1.0),
            replicate("b", 0, [None, 9.0, 9.0, 9.0], 9.0),
            replicate("b", 1, [7.0, 7.0, 7.0, 7.0], 9.0),
        ]
    )
    [of] = report.data_sets
    return of


def at(of: DataSetCurves, method: int, what: str, share: float) -> float | None:
    return getattr(of.curves[method], what)[round(share * (len(of.shares) - 1))]


def test_curves_are_medians_and_quartiles_of_the_replicates(blocks) -> None:
    assert [curve.method for curve in blocks.curves] == ["a", "b"]
    assert at(blocks, 0, "median", 0.2) is None  # nothing has ended after eight seconds
    assert [at(blocks, 0, "median", s) for s in (0.25, 0.5, 0.75, 1.0)] == [7.0, 5.0, 2.5, 1.5]
    assert [at(blocks, 0, w, 0.5) for w in ("low", "high")] == [4.5, 5.5]


def test_a_replicate_without_a_loss_is_worse_than_all_others(blocks) -> None:
    assert at(blocks, 1, "median", 0.25) is None
    assert at(blocks, 1, "median", 0.5) == 8.0


@pytest.mark.parametrize("space", ["flash", "healthcare", "regression", "small"])
def test_each_choice_of_a_space_has_a_name_of_its_own(space) -> None:
    inputs = inputs_of(CandidateSpace(space_named(space)))
    names = input_names(inputs)
    assert len(names) == len(inputs)
    assert len(set(names.values())) == len(inputs)
    assert len(set(shortened(list(names.values())))) == len(inputs)


def test_the_step_is_named_only_where_the_rest_is_not_enough() -> None:
    names = input_names(inputs_of(CandidateSpace(space_named("flash"))))
    of_svms = {name for name in names.values() if name.startswith("C of linear_svm")}
    assert len(of_svms) == 2
    assert all(name.endswith(")") for name in of_svms)
    assert any("(" not in name for name in names.values())


def test_long_texts_that_differ_in_the_middle_stay_apart() -> None:
    a, b = (f"{'x' * 30}{middle}{'y' * 30}" for middle in "ab")
    labels = shortened([a, b, a, "short"])
    assert labels[0] == labels[2] != labels[1]
    assert max(map(len, labels)) < 50
    assert labels[3] == "short"


def test_of_many_the_extremes_and_what_is_to_be_kept_are_shown() -> None:
    values = [50.0] * 10_001
    values[4_321], values[8_765] = 1.0, 99.0
    shown = downsampled(values, keep={1_234, 20_000}, most=100)
    assert {1_234, 4_321, 8_765} <= set(shown)
    assert 100 <= len(shown) <= 103
    assert shown == sorted(shown)


def test_codes_stand_by_their_descriptions_and_long_ones_are_whole_on_hovering(everything) -> None:
    cut = [a["title"] for tag, a in everything.tags if tag == "td" and "title" in a]
    assert any(title.endswith("long " * 30) for title in cut)
    assert "long " * 12 not in everything.text
    sections = sections_of(full())
    [table] = [p for p in sections["codes"].parts if isinstance(p, Table)]
    assert [row[0] for row in table.rows if row[1] == Cut("Sodium", 60)] == ["LAB//1"]
    assert [row[3][:1] for row in table.rows] == ["↑", "↑", "u", "↓", "u"]
    assert [row[0].startswith("  ") for row in table.rows] == [False, True, True, False, False]
    [figure] = [p for p in sections["codes"].parts if isinstance(p, Figure)]
    assert figure.plot["data"][0]["y"][1:] == ["↓ Sodium", "age, years"]
    [coverage] = [p for p in sections["coverage"].parts if isinstance(p, Table)]
    assert len(coverage.rows) == 20
    assert coverage.rows[0][2:] == ["100.0", "2.5", "50.0", "-"]
    assert len(json.loads(json.dumps(to_document(full())))["model"]["coverage"]) == 30


def test_quality_of_two_classes_stands_on_the_page_as_far_as_it_is_known() -> None:
    report = full()
    loss = study_page(report).answers[1]
    assert any("0.800 (95 %: 0.750 to 0.850)" in line for p in loss.parts for line in p.lines)

    def judged(**changes) -> dict[str, Section]:
        return sections_of(replace(report, model=replace(report.model, **changes)))

    figures = [p.id for p in judged()["quality"].parts if isinstance(p, Figure)]
    assert figures == ["calibration"]
    bare = judged(calibration=None, effects=None, coverage=())
    assert not [p for p in bare["quality"].parts if isinstance(p, Figure)]
    assert not {"codes", "coverage"} & set(bare)
    broken = judged(problem=NASTY, effects=None, effects_problem="no room")
    assert NASTY[:30] in broken["quality"].finding
    assert "no room" in broken["codes"].finding
    assert "quality" not in judged(auroc=None, calibration=None)
