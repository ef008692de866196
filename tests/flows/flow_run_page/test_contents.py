"""What the page of a flow run shows: a summary, a table of trials, and nobody's markup."""

import re
from base64 import b64decode
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from worlds import mixed_space

from prefect_tune.flows.flow_run_page.plain_text import cell, escaped
from prefect_tune.flows.flow_run_page.summary import PageState, one_line, summary
from prefect_tune.flows.flow_run_page.trials_table import TrialsTable
from prefect_tune.flows.progress import CurvePoint, Progress
from prefect_tune.flows.text import FailureGroups, Whole
from prefect_tune.optimizers import Evaluation, Failure, Query, StepCost, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.objective import Constraint
from prefect_tune.optimizers.trials.outcome import FailureKind

WHOLE = Whole(folds=3, epochs=None)
QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))


BEST = Trial(19, QUERY).started().ended(Evaluation(8.667))


PROGRESS = Progress(
    study="responders", metric="error", n_trials=18, n_failed=2, n_running=2,
    trials_total=40, seconds=120.0, seconds_total=600.0, incumbent=BEST, cache_hits=1_234,
    seconds_saved=44.0, whole=WHOLE, n_stopped=7, n_begun=20, can_go_on=True, phase="design",
    seconds_left=95.0,
    curve=(CurvePoint(2.0, 48.0), CurvePoint(60.0, 8.667)),
)  # fmt: skip


PAGE_STATE = PageState(
    progress=PROGRESS, method="flash", space="my_<space>", data="patients", chance_loss=50.0
)


def picture_of(page: str) -> ET.Element:
    data = page.partition("](data:image/svg+xml;base64,")[2].partition(")")[0]
    return ET.fromstring(b64decode(data))  # noqa: S314 - our own


def test_leader_progress_and_next_steps_are_shown_while_it_runs() -> None:
    page = summary(PAGE_STATE)
    assert page.startswith("## Best error: 8.667 %\ntrial 19 · guessing: 50 %\n\n![best error")
    assert "| model | svm | C \\= 1" not in page  # "=" needs no escape
    assert "| model | svm | C = 1, kernel = rbf |" in page
    assert "| state | running\\: design |" in page
    (counts,) = (line for line in page.splitlines() if "configurations started" in line)
    assert re.findall(r"\d+", counts) == ["18", "9", "7", "2", "20", "40"]
    assert "| time | 2m00s of 10m00s |" in page
    assert "| cache | 1,234 steps served, 44s saved |" in page
    assert "my\\_\\<space\\> by flash, on patients" in page
    assert "prefect-tune show responders\n" in page
    assert "--failed" not in page
    assert "export" not in page
    assert "on the test rows" not in page
    in_short = ["8.667", "18", "9", "7", "2", "20", "40", "1m35s"]
    assert re.findall(r"\d[\w.]*", one_line(PAGE_STATE)) == in_short


def test_commands_name_a_store_that_is_not_the_default() -> None:
    page = summary(replace(PAGE_STATE, store_options=("--store", "s3://of us/store")))
    assert "prefect-tune show responders --store 's3://of us/store'\n" in page


def test_failures_are_listed_by_reason_with_the_last_one_of_each() -> None:
    failures, urls = FailureGroups(), {7: "http://server/runs/task-run/7", 9: ""}
    for number, message, step in ((5, "<img> | took", "model"), (9, "crashed", None)):
        failures.add(number, failed(number, message, step).failure)
    for number in (6, 7):
        failures.add(number, failed(number, "<img> | took").failure)
    page = summary(replace(PAGE_STATE, failures=failures.found(), task_run_urls=urls))
    assert (
        "| model\\: \\<img\\> \\| took | 3 | [trial\xa07](http://server/runs/task-run/7) |" in page
    )
    assert "| crashed | 1 | trial\xa09 |" in page
    assert "prefect-tune trials responders --failed\nprefect-tune retry responders\n" in page


def test_the_loss_of_less_than_everything_says_so() -> None:
    best = Trial(3, replace(QUERY, subset=0.125)).started().ended(Evaluation(12.5))
    page_state = replace(PAGE_STATE, progress=replace(PROGRESS, incumbent=best))
    assert "trial 3 (subset 1/8) · " in summary(page_state)
    assert one_line(page_state).startswith("best error 12.5 % (subset 1/8) · ")


@pytest.mark.parametrize("losses", [(48.0, 9.0), (9.0,), (0.0, 0.0), (-3.0, -4.0)])
def test_the_curve_is_a_picture_that_stands_alone(losses) -> None:
    curve = tuple(CurvePoint(float(at), loss) for at, loss in enumerate(losses))
    root = picture_of(summary(replace(PAGE_STATE, progress=replace(PROGRESS, curve=curve))))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0 s", "2m00s", "best error %"} <= set(texts)
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == len(losses)
    assert all(0 <= float(c.attrib["cy"]) <= 220 for c in circles)


def complete(number: int, loss: float) -> Trial:
    steps = (
        StepCost("scale", 0, 1.0, 0.1, hit=True, key="a"),
        StepCost("model", 0, 1.0, 0.1, hit=False, key="b"),
    )
    return Trial(number, QUERY).started().ended(Evaluation(loss, cost_seconds=2.0, steps=steps))


def failed(number: int, message: str = "no rows", step: str | None = "model") -> Trial:
    return Trial(number, QUERY).started().failed(Failure(FailureKind.ERROR, message, step=step))


def test_a_row_says_what_became_of_a_trial_and_where_a_failed_one_is_seen() -> None:
    table = TrialsTable(WHOLE)
    part = Trial(2, replace(QUERY, folds=1)).started().ended(Evaluation(9.5, cost_seconds=0.5))
    for trial in (complete(0, 12.34567), failed(1, "x=<b>"), part):
        table.add(trial, f"http://server/{trial.number}")
    newest, lost, first = table.rows()
    assert first == {
        "trial": 0, "state": "complete", "loss": "12.35", "took": "2.0s", "cached": "1/2",
        "pipeline": "unit > svm", "failure": "", "task run": "",
    }  # fmt: skip
    assert (newest["state"], newest["loss"], newest["cached"]) == (
        "partial (folds 1 of 3)",
        "9.5",
        "",
    )
    assert (lost["state"], lost["loss"]) == ("failed", "")
    assert lost["failure"] == "model: x=<\u200bb>"
    assert lost["task run"] == "http://server/1"


def test_of_very_many_trials_the_newest_the_best_and_the_last_failed_ones_stay() -> None:
    table = TrialsTable(WHOLE)
    for number in range(3_000):
        is_failed = number % 10 == 0
        trial = failed(number) if is_failed else complete(number, float((number * 37) % 2_999))
        table.add(trial, "")
        assert len(table.rows()) <= 200
    rows = {row["trial"]: row for row in table.rows()}
    assert list(rows) == sorted(rows, reverse=True)
    assert set(range(2_900, 3_000)) <= set(rows)
    losses = {n: (n * 37) % 2_999 for n in range(3_000) if n % 10}
    assert set(sorted(losses, key=lambda n: losses[n])[:50]) <= set(rows)
    assert set(range(2_500, 3_000, 10)) <= set(rows)


def test_a_trial_that_is_run_again_has_one_row() -> None:
    table = TrialsTable(WHOLE)
    for trial in (failed(0), complete(1, 5.0), complete(0, 4.0)):
        table.add(trial, "")
    assert [(r["trial"], r["state"]) for r in table.rows()] == [(1, "complete"), (0, "complete")]
    for number in range(2, 300):
        table.add(complete(number, 9.0), "")
    assert {0, 1} <= {row["trial"] for row in table.rows()}  # among the best


def test_the_best_trials_are_those_that_meet_the_constraints() -> None:
    table = TrialsTable(WHOLE, [Constraint("latency_us", 50.0)])
    for number in range(300):
        latency = 10.0 if number < 3 else 100.0
        evaluation = Evaluation(float(300 - number), constraints={"latency_us": latency})
        table.add(Trial(number, QUERY).started().ended(evaluation), "")
    assert {row["trial"] for row in table.rows()} == {0, 1, 2, *range(200, 300)}


HOSTILE = [
    "<img src=http://evil.example/x.png>",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "see https://evil.example/?q=1 or www.evil.example or <mailto:a@evil.example>",
    "# heading",
    "> quote",
    "- item",
    "1. item",
    "*bold* `code` ~~gone~~ a_b _c_ __d__",
    "a | b",
    "&lt;b&gt; &amp; \\<b>",
    "two\nlines\r\n\r\nand a third",
]


MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": False})


ADDRESS = re.compile(r"://|www\.|mailto:")


"""What readers of markdown make links of by themselves."""


def tokens(text: str) -> set[str]:
    """The kinds of markup that a reader of markdown finds in a text."""
    found = set()
    for token in MARKDOWN.parse(text):
        found.add(token.type)
        found |= {child.type for child in token.children or ()}
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_a_line_of_markdown_has_nothing_but_its_words(text) -> None:
    plain = {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    assert tokens(escaped(text)) <= plain
    assert not ADDRESS.search(escaped(text).replace("\\", ""))
    shown = "".join(c.content for t in MARKDOWN.parse(escaped(text)) for c in t.children or ())
    assert shown.replace("\u200b", "") == " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_has_nothing_but_its_words_and_no_escapes_that_would_be_seen(text) -> None:
    seen = tokens(cell(text)) - {"paragraph_open", "inline", "text", "paragraph_close"}
    assert seen <= {"text_special", "html_entity"}
    assert not ADDRESS.search(cell(text))
    assert "\n" not in cell(text)
    assert cell("fit model: ValueError at x=0.5") == "fit model: ValueError at x=0.5"


def test_what_steers_what_shows_it_is_spelt_out() -> None:
    for shown in (escaped, cell):
        said = shown("\u202egnp.exe \x1b[2J\x9b2J")
        assert not {"\u202e", "\x1b", "\x9b"} & set(said)
        assert "u202e" in said


def test_passwords_are_not_shown() -> None:
    for shown in (escaped, cell):
        assert "s3cret" not in shown("postgresql://user:s3cret@host/db is away")
