"""A page follows its study whatever the server does, in artifacts that are updated in place."""

import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Event
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from flow_studies import plan, study_view
from observing import Heard
from prefect import flow
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_api import artifacts, client_of
from processes import wait_for
from worlds import mixed_space, told

from prefect_tune.flows.flow_run_page import page as module
from prefect_tune.flows.flow_run_page.page import FlowRunPage
from prefect_tune.flows.flow_run_page.publishing import Page, Publisher, artifact_key
from prefect_tune.flows.progress import Progress
from prefect_tune.flows.text import Whole
from prefect_tune.flows.workers.server_pace import OutageNote
from prefect_tune.optimizers import Evaluation, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage import StoreAddress
from prefect_tune.tasks.objective.declaration import Quantity, QuantityBound

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))


PROGRESS = Progress(
    study="s", metric="error", n_trials=0, n_failed=0, n_running=0,
    trials_total=4, seconds=1.0, seconds_total=None, incumbent=None, cache_hits=0,
    seconds_saved=0.0,
    whole=Whole(3, None),
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", str(uuid4()))
    monkeypatch.setattr(module, "_LEAST_SECONDS", 0.01)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def page_of(
    heard: Heard,
    *trials: Trial,
    task_run_ids: Mapping[int, str] = MappingProxyType({}),
    **options: Any,
) -> FlowRunPage:
    study: Any = SimpleNamespace(
        store=SimpleNamespace(address=StoreAddress("/of/others")),
        name="s",
        plan=plan(data_name="d", **options),
        trials={trial.number: trial for trial in trials},
        task_run_ids=task_run_ids,
    )
    return FlowRunPage(study, heard, PROGRESS, OutageNote(heard))


@pytest.fixture
def silent_server() -> Iterator[str]:
    """One that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/api"


@pytest.mark.slow
def test_a_server_that_never_answers_holds_up_nothing(heard, silent_server) -> None:
    with temporary_settings({PREFECT_API_URL: silent_server}):
        page = page_of(heard)
        page.start()
        for number in range(50):
            page.ended(told(number, QUERY, 5.0), PROGRESS)
            page.tick(PROGRESS)
        page.end(0.1)
    assert [trial.number for trial in heard.trials] == list(range(50))
    assert len(heard.ticks) == 50


@pytest.mark.slow
def test_an_absent_server_is_reported_once(heard, silent_server) -> None:
    gone = silent_server.replace("127.0.0.1", "127.0.0.2")  # where nobody listens
    with temporary_settings({PREFECT_API_URL: gone}):
        page = page_of(heard)
        page.start()
        wait_for(lambda: page.tick(PROGRESS) or heard.notes)
        for _ in range(3):
            page.tick(PROGRESS)
        page.end(10.0)
    (said,) = heard.notes
    assert "Prefect server" in said


class Shown:
    """A publisher that remembers."""

    def __init__(self) -> None:
        self.pages: list[dict[str, Page]] = []

    def publish(self, *pages: Page) -> None:
        self.pages.append({page.key: page for page in pages})

    def close(self) -> None:
        pass


@pytest.fixture
def shown(monkeypatch) -> Shown:
    shown = Shown()
    monkeypatch.setattr(module, "Publisher", lambda _: shown)
    return shown


@pytest.mark.slow
def test_trials_of_earlier_sessions_are_there_from_the_start(heard, shown) -> None:
    page = page_of(heard, told(0, QUERY, 5.0), told(1, QUERY, None), Trial(2, QUERY))
    page.start()
    page.end(10.0)
    assert '"trial": 1' in shown.pages[-1]["s-trials"].data
    assert '"trial": 2' not in shown.pages[-1]["s-trials"].data
    assert "### Failed trials" in shown.pages[-1]["s-summary"].data


def test_its_best_trials_meet_the_constraints_of_the_study(heard) -> None:
    bound = QuantityBound(Quantity("latency_us"), 50.0)
    page = page_of(heard, constraint=(bound,))
    slow = Evaluation(1.0, constraints={"latency_us": 60.0})
    for number in range(200):
        quick = Evaluation(9.0, constraints={"latency_us": 40.0})
        page.ended(Trial(number, QUERY).started().ended(slow if number else quick), PROGRESS)
    assert page._shown.table.rows()[-1]["trial"] == 0  # not among the newest


@pytest.mark.slow
def test_the_last_update_has_the_state_and_the_result(heard, shown) -> None:
    page = page_of(heard)
    page.start()
    wait_for(lambda: shown.pages)
    assert "| state | running |" in shown.pages[0]["s-summary"].data
    page.tick(replace(PROGRESS, n_begun=3, n_running=1, can_go_on=True))
    wait_for(lambda: shown.pages[-1]["s-progress"].data == 50.0)
    page.state, page.result = "complete", study_view(incumbent=None, test_loss=None)
    page.end(10.0)
    assert "| state | complete |" in shown.pages[-1]["s-summary"].data
    assert shown.pages[-1]["s-progress"].data == 100.0


@pytest.mark.slow
def test_a_server_that_was_away_is_hardly_waited_for_at_the_end(heard, monkeypatch) -> None:
    goes_on = Event()
    waited: list[float] = []

    class Away(Shown):
        def publish(self, *pages: Page) -> None:
            if self.pages:
                goes_on.wait(60.0)
            super().publish(*pages)
            raise OSError("away")

    away = Away()
    monkeypatch.setattr(module, "Publisher", lambda _: away)
    page = page_of(heard)
    join = page._thread.join
    monkeypatch.setattr(page._thread, "join", waited.append)
    page.start()
    wait_for(lambda: page.tick(PROGRESS) or heard.notes)
    page.end(10.0)
    assert waited == [1.0]
    goes_on.set()
    join(10.0)


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["made", "closed"])
def test_a_publisher_that_fails_prints_no_traceback(heard, monkeypatch, capsys, fails) -> None:
    class Failing(Shown):
        def __init__(self, _: object) -> None:
            super().__init__()
            if fails == "made":
                raise OSError("no settings")

        def close(self) -> None:
            raise OSError("closed already")

    escaped: list[object] = []
    monkeypatch.setattr(threading, "excepthook", escaped.append)
    monkeypatch.setattr(module, "Publisher", Failing)
    page = page_of(heard)
    page.start()
    page.end(10.0)
    assert escaped == []
    assert len(heard.notes) == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["url_for", "TrialsTable", "_base_name"])
def test_what_cannot_be_shown_stops_no_search(heard, shown, monkeypatch, name) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("no address")

    if name == "TrialsTable":
        monkeypatch.setattr(module.TrialsTable, "add", fails)
    else:
        monkeypatch.setattr(module, name, fails)
    page = page_of(heard, told(0, QUERY, 5.0), task_run_ids={0: str(uuid4()), 1: str(uuid4())})
    page.start()
    page.ended(told(1, QUERY, 5.0), PROGRESS)
    page.end(10.0)
    assert [trial.number for trial in heard.trials] == [1]
    assert bool(shown.pages) == (name != "_base_name")


PAGE = Page("responders-summary", "markdown", "# first", "one")


@pytest.fixture
def flow_run_id(server) -> UUID:  # noqa: ARG001 - the flow goes there
    @flow(persist_result=False)
    def study() -> UUID:
        return UUID(str(flow_run.id))

    made: UUID = study()
    return made


def test_an_artifact_is_made_once_and_then_updated(flow_run_id) -> None:
    publisher = Publisher(flow_run_id)
    publisher.publish(PAGE, Page("responders-progress", "progress", 1.0, "one"))
    first = {a.key: a for a in artifacts(flow_run_id)}
    publisher.publish(replace(PAGE, data="# second", description="two"))
    publisher.close()
    second = {a.key: a for a in artifacts(flow_run_id)}
    assert set(first) == set(second) == {"responders-summary", "responders-progress"}
    assert second[PAGE.key].id == first[PAGE.key].id
    assert (second[PAGE.key].data, second[PAGE.key].description) == ("# second", "two")
    assert second["responders-progress"].updated == first["responders-progress"].updated


def test_a_retried_flow_run_keeps_its_artifacts(flow_run_id) -> None:
    for data in ("# first", "# second"):
        publisher = Publisher(flow_run_id)
        publisher.publish(replace(PAGE, data=data))
        publisher.close()
    (artifact,) = artifacts(flow_run_id)
    assert artifact.data == "# second"


def test_one_that_was_deleted_is_made_again(flow_run_id) -> None:
    publisher = Publisher(flow_run_id)
    publisher.publish(PAGE)
    with client_of(None) as client:
        client.delete_artifact(artifacts(flow_run_id)[0].id)
    publisher.publish(replace(PAGE, data="# second"))
    publisher.close()
    assert [a.data for a in artifacts(flow_run_id)] == ["# second"]


@pytest.mark.parametrize("name", ["responders", "A.b", "a_b", "a-b", "-", "x" * 100])
def test_names_of_studies_give_keys_that_prefect_takes_and_that_differ(name) -> None:
    key = artifact_key(name, "trials")
    assert Page(key, "table", "[]", "").key == key
    assert all(c.islower() or c.isdigit() or c == "-" for c in key)
    others = {artifact_key(n, "trials") for n in ("responders", "A.b", "a_b", "a-b", "a.b")}
    assert len(others) == 5
