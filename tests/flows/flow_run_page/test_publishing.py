"""Artifacts of a flow run on a real server: made once, then updated in place."""

from dataclasses import replace
from uuid import UUID

import pytest
from prefect import flow
from prefect.runtime import flow_run
from prefect_api import artifacts, client_of

from prefect_tune.flows.flow_run_page.publishing import Page, Publisher, artifact_key

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


def test_a_flow_run_that_is_retried_goes_on_with_its_artifacts(flow_run_id) -> None:
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
