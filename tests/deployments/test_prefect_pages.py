"""Prefect's own pages of a study in a real browser: run, steps, artifacts."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from command_line import CommandLine
from inputs import write_table
from playwright.sync_api import expect, sync_playwright
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.urls import url_for
from prefect_api import artifacts, flow_runs
from processes import BROWSER, SECRETS
from user_spaces import PRELUDE

from prefect_tune.flows.tune import tune
from prefect_tune.optimizers import METHODS

SPACE = (
    PRELUDE
    + """
class Fails(GaussianNB):
    def fit(self, X, y):
        raise ValueError("<img src=http://evil.example/x.png> no model")


works = one("works", DecisionTreeClassifier, DEPTH, seeded=True)
space = models(works, one("fails", Fails, SMOOTHING))
"""
)
STUDY = "seen"

pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture(scope="module")
def run(server, tmp_path_factory) -> CommandLine:  # noqa: ARG001 - the flow goes there
    folder = tmp_path_factory.mktemp("seen")
    (folder / "half.py").write_text(SPACE)
    command = CommandLine(folder / "home")
    done = command(
        *("run", write_table(folder), "--target", "target", "--space", f"{folder}/half.py:space"),
        *("--method", "random", "--no-race", "--trials", 5, "--study", STUDY, "--workers", 1),
    )
    assert done.exit_code == 0, done.stderr
    return command


@pytest.fixture(scope="module")
def flow_run_id(run) -> UUID:  # noqa: ARG001 - it has run
    (found,) = [r for r in flow_runs() if f"study:{STUDY}" in r.tags]
    assert set(found.tags) == {f"study:{STUDY}", "method:random"}
    return found.id


@pytest.fixture(scope="module")
def deployment_id(server) -> UUID:  # noqa: ARG001 - it is made there
    made = tune.to_deployment(name="form", entrypoint_type=EntrypointType.MODULE_PATH).apply()
    return UUID(str(made))


@pytest.fixture(scope="module")
def page(server, flow_run_id, deployment_id) -> Iterator[Any]:  # noqa: ARG001 - made before it
    """A browser with a signed-in user; its event loop affects how flows run."""
    expect.set_options(timeout=120_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        page.set_default_timeout(120_000)
        page.goto(server.removesuffix("/api"))
        page.fill("input[type=password]", SECRETS[server])
        page.keyboard.press("Enter")
        page.wait_for_url("**/dashboard*")
        yield page
        browser.close()


@pytest.fixture(scope="module")
def pages(server) -> str:
    return server.removesuffix("/api") + "/v2"


def shows(page: Any, *texts: str) -> None:
    for text in texts:
        expect(page.locator("body")).to_contain_text(text)


def test_run_page_shows_steps_and_artifacts_and_the_summary_loads_no_external_url(
    page, pages, flow_run_id
) -> None:
    page.goto(f"{pages}/runs/flow-run/{flow_run_id}?tab=TaskRuns")
    shows(page, f"{STUDY} (random)", f"study:{STUDY}", "method:random")
    shows(page, "trial 4", "fit model", "encode", "Cached")
    page.goto(f"{pages}/runs/flow-run/{flow_run_id}?tab=Artifacts")
    shows(page, *(f"{STUDY}-{part}" for part in ("progress", "summary")))
    (summary,) = [a for a in artifacts(flow_run_id) if a.key == f"{STUDY}-summary"]
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{pages}/artifacts/artifact/{summary.id}")
    shows(page, "Best error: ", "on the test rows", f"prefect-tune retry {STUDY}")
    assert not [url for url in requested if "evil" in url]


def test_show_links_the_page_of_a_failed_trial_in_prefect(run, server, page, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", server)
    number = json.loads(run("trials", STUDY, "--failed", "--json").stdout)[0]["number"]
    said = "".join(run("show", STUDY, "--trial", number).stdout.split())
    found = re.findall(rf"{server.removesuffix('/api')}/runs/task-run/([0-9a-f-]{{36}})", said)
    assert found
    url = url_for("task-run", obj_id=found[0])
    assert url in said
    page.goto(url)
    shows(page, "trial ", "Failed", "no model")


def test_form_of_a_deployment_has_choices_descriptions_and_sections(
    page, pages, deployment_id
) -> None:
    page.goto(f"{pages}/deployments/deployment/{deployment_id}/run")
    shows(page, "Data: target", "Search: method", "Budget: trials", "Where: workers")
    shows(page, "Search method: flash, admm", "[default: flash]", "Total time")
    page.get_by_text("choose", exact=True).nth(5).click()
    page.get_by_text("Select", exact=True).first.click()
    page.get_by_role("option", name="fabolas", exact=True).wait_for()
    assert [option.inner_text() for option in page.get_by_role("option").all()] == list(METHODS)
