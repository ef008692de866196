"""The page of a flow run follows its study, and a slow server does not delay the study."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from flow_studies import entered, study_view, tell
from markdown_it import MarkdownIt
from observing import Heard
from prefect import flow
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_api import artifacts
from processes import wait_for
from studies import context_of
from worlds import evaluation, mixed_space, told

from prefect_tune.flows import flow_run_page as module
from prefect_tune.flows.flow_run_page import FlowRunPage, artifact_key, shown_on_page, summary
from prefect_tune.flows.study.progress import Progress, RunningTrial, StudyTotals
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.wording.text import Whole
from prefect_tune.flows.workers.server_pace import OutageNote
from prefect_tune.optimizers import Query
from prefect_tune.optimizers.space.configuration import default_configuration

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))
PROGRESS = Progress(
    study="s", metric="error", totals=StudyTotals(),
    trials_total=4, seconds=1.0, seconds_total=None, incumbent=None,
    whole=Whole(3, None),
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with entered(context_of(tmp_path), "s") as study:
        yield study


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/api"


@pytest.mark.usefixtures("server")
def test_flow_run_page_has_the_output_of_show_and_the_progress(
    study, heard, monkeypatch, file_regression
) -> None:
    monkeypatch.setattr(module, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(module, "_SHARE", 1e9)

    @flow(persist_result=False)
    def running() -> UUID:
        flow_run_id = UUID(str(flow_run.id))
        with shown_on_page(study, heard, PROGRESS, OutageNote(heard)) as page:
            wait_for(lambda: len(artifacts(flow_run_id)) == 2)
            space = study.optimizer.space
            query = Query(default_configuration(space, next(iter(space.paths()))))
            trial = tell(study, evaluation(5.0), query)
            page.ended(
                trial, replace(PROGRESS, n_begun=3, running=(RunningTrial(2, (), 1.0, 9.0),))
            )
            wait_for(lambda: {50.0} < {a.data for a in artifacts(flow_run_id)})
            study.set_state("complete")
        return flow_run_id

    found = {a.key: a for a in artifacts(running())}
    assert set(found) == {"s-summary", "s-progress"}  # updated in place
    assert found["s-progress"].data == 100.0
    page = str(found["s-summary"].data).replace(study.store.address.url, "STORE")
    file_regression.check(page, extension=".md")
    assert heard.notes == []


@pytest.fixture
def page(study, heard, monkeypatch) -> FlowRunPage:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", str(uuid4()))
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    return FlowRunPage(study, heard, PROGRESS, OutageNote(heard))


def test_unresponsive_server_does_not_delay_the_study(page, heard, silent_server) -> None:
    with temporary_settings({PREFECT_API_URL: silent_server}):
        page.update()
        for number in range(50):
            page.ended(told(number, QUERY, 5.0), PROGRESS)
            page.tick(PROGRESS)
        page.update(wait_seconds=0.1)
    assert [trial.number for trial in heard.trials] == list(range(50))
    assert len(heard.ticks) == 50


def test_missing_server_is_reported_once(page, heard, silent_server) -> None:
    gone = silent_server.replace("127.0.0.1", "127.0.0.2")  # where nobody listens
    with temporary_settings({PREFECT_API_URL: gone}):
        page.update()
        wait_for(lambda: page.tick(PROGRESS) or heard.notes)
        page.tick(PROGRESS)
        page.update(wait_seconds=10.0)
    (note,) = heard.notes
    assert "Prefect server" in note


def test_summary_shows_user_strings_literally() -> None:
    hostile = "<img src=x> [a](javascript:b) https://evil.example ```` ~~~ \u202e"
    view = study_view(no_model=hostile, study="a`b", data=hostile)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(summary(view))
    blocks = {token.tag for token in tokens if token.nesting}
    inline = {child.type for token in tokens for child in token.children or ()}
    assert blocks == {"h2", "h3", "p", "ul", "li"}
    assert inline <= {"text", "text_special"}
    assert "\u202e" not in summary(view)


def test_study_names_map_to_distinct_valid_prefect_artifact_keys() -> None:
    names = ["responders", "A.b", "a_b", "a-b", "a.b", "-", "x" * 100]
    keys = {artifact_key(name, "trials") for name in names}
    assert len(keys) == len(names)
    assert all(c.islower() or c.isdigit() or c == "-" for c in "".join(keys))
