"""The summary of a study on the page of its flow run."""

from base64 import b64decode
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from worlds import mixed_space

from prefect_tune.flows.flow_run_page.summary import Account, short, summary
from prefect_tune.flows.flow_run_page.trials_table import FailureReason
from prefect_tune.flows.progress import CurvePoint, Progress
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))
BEST = Trial(19, QUERY).started().ended(Evaluation(8.667))
PROGRESS = Progress(
    study="responders", metric="error", unit="percent", n_trials=18, n_failed=2, n_running=2,
    trials_total=40, seconds=120.0, seconds_total=600.0, incumbent=BEST, cache_hits=1_234,
    seconds_saved=44.0, n_stopped=7, n_begun=20, can_go_on=True, phase="design", seconds_left=95.0,
    curve=(CurvePoint(2.0, 48.0), CurvePoint(60.0, 8.667)),
)  # fmt: skip
ACCOUNT = Account(
    progress=PROGRESS, method="flash", space="my_<space>", data="patients", chance_loss=50.0
)


def picture_of(page: str) -> ET.Element:
    data = page.partition("](data:image/svg+xml;base64,")[2].partition(")")[0]
    return ET.fromstring(b64decode(data))  # noqa: S314 - our own


def test_what_leads_how_it_stands_and_how_to_go_on_are_said_while_it_runs() -> None:
    page = summary(ACCOUNT)
    assert page.startswith("## Best error: 8.667 %\ntrial 19 · guessing: 50 %\n\n![best error")
    assert "| model | svm | C \\= 1" not in page  # "=" needs no escape
    assert "| model | svm | C = 1, kernel = rbf |" in page
    assert "| state | running\\: design |" in page
    assert "18 trials\\: 9 in full, 7 in part, 2 failed; 20 of 40 configurations begun" in page
    assert "| time | 2m00s of 10m00s |" in page
    assert "| cache | 1,234 steps served, 44s saved |" in page
    assert "my\\_\\<space\\> by flash, on patients" in page
    assert "prefect-tune show responders\n" in page
    assert "--failed" not in page
    assert "export" not in page
    assert "on the test rows" not in page
    assert short(ACCOUNT) == (
        "best error 8.667 % · 18 trials: 9 in full, 7 in part, 2 failed; 20 of 40 configurations "
        "begun · done in about 1m35s"
    )


def test_commands_name_a_store_that_is_not_the_default() -> None:
    page = summary(replace(ACCOUNT, store_options=("--store", "s3://of us/store")))
    assert "prefect-tune show responders --store 's3://of us/store'\n" in page


def test_at_the_end_there_are_the_test_losses_and_the_model() -> None:
    members = [{"trial": 19, "weight": 0.6}, {"trial": 3, "weight": 0.4}]
    result = {
        "incumbent": {"trial": 19}, "test_loss": 9.1, "single_best_test_loss": 9.4,
        "ensemble": {"kind": "agnostic", "members": members},
    }  # fmt: skip
    page = summary(replace(ACCOUNT, state="complete", result=result))
    assert "on the test rows **9.4 %**" in page
    assert "agnostic ensemble of 2 trials, on the test rows **9.1 %**" in page
    assert "| state | complete |" in page
    assert "prefect-tune export responders model.pkl" in page


def test_failures_are_listed_by_reason_with_the_last_one_of_each() -> None:
    seen = FailureReason("model: <img> | took", 3, 7, "http://server/runs/task-run/7")
    unseen = FailureReason("crashed", 1, 9, "")
    page = summary(replace(ACCOUNT, failures=(seen, unseen)))
    assert (
        "| model\\: \\<img\\> \\| took | 3 | [trial\xa07](http://server/runs/task-run/7) |" in page
    )
    assert "| crashed | 1 | trial\xa09 |" in page
    assert "prefect-tune trials responders --failed\nprefect-tune retry responders\n" in page


def test_before_anything_leads_that_is_said_and_nothing_is_drawn() -> None:
    page = summary(replace(ACCOUNT, progress=replace(PROGRESS, incumbent=None, curve=())))
    assert page.startswith("## No trial leads yet\n\n| study | responders |")
    assert "data:image" not in page


def test_the_loss_of_less_than_everything_says_so() -> None:
    best = Trial(3, replace(QUERY, subset=0.125)).started().ended(Evaluation(12.5))
    account = replace(ACCOUNT, progress=replace(PROGRESS, incumbent=best))
    assert "trial 3 (subset 1/8) · " in summary(account)
    assert short(account).startswith("best error 12.5 % (subset 1/8) · ")


@pytest.mark.parametrize("losses", [(48.0, 9.0), (9.0,), (0.0, 0.0), (-3.0, -4.0)])
def test_the_curve_is_a_picture_that_stands_alone(losses) -> None:
    curve = tuple(CurvePoint(float(at), loss) for at, loss in enumerate(losses))
    root = picture_of(summary(replace(ACCOUNT, progress=replace(PROGRESS, curve=curve))))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0 s", "2m00s", "best error %"} <= set(texts)
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == len(losses)
    assert all(0 <= float(c.attrib["cy"]) <= 220 for c in circles)


def test_a_metric_of_other_peoples_is_no_markup_in_the_picture() -> None:
    account = replace(ACCOUNT, progress=replace(PROGRESS, metric='<x "y">', unit=""))
    root = picture_of(summary(account))
    assert 'best 1 - <x "y">' in [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
