"""A browser, and pages that it has opened: of a real study, and of made-up ones."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes import BROWSER
from reports.made_up import full

from prefect_tune.deployments.report.html import page_html
from prefect_tune.deployments.report.study_page import study_page

DRAWN = "html[data-figures=drawn]"
DESK = {"width": 1366, "height": 768}


@dataclass
class Opened:
    """A page in the browser, and what it said and asked for meanwhile."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def chromium(report_file) -> Iterator[Any]:  # noqa: ARG001 - no flow runs beside Playwright's loop
    """Ends with the module: flows of other tests could not run beside it either."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, file: Path) -> Opened:
    """A file, opened until its figures are drawn."""
    page = browser.new_page(viewport=DESK)
    it = Opened(page)
    page.on("console", lambda message: it.said.append(message.text))
    page.on("pageerror", lambda error: it.said.append(str(error)))
    page.on("request", lambda request: it.asked_for.append(request.url))
    page.on("dialog", lambda dialog: it.said.append(dialog.message))
    page.set_default_timeout(60_000)
    page.goto(file.as_uri())
    page.wait_for_selector(DRAWN)
    return it


@pytest.fixture(scope="module")
def made_up(chromium, tmp_path_factory) -> Opened:
    """The page of a study that has everything, of nasty names; a test leaves it as it was."""
    file = tmp_path_factory.mktemp("pages") / "made-up.html"
    file.write_text(page_html(study_page(full(n=200))))
    return opened(chromium, file)


@pytest.fixture(scope="session")
def report_file(ended, tmp_path_factory) -> Path:
    """The report of a study, by the command."""
    file = tmp_path_factory.mktemp("reported") / "report.html"
    done = ended.run("report", "s", "--out", file)
    assert done.exit_code == 0, done.output
    assert file.as_uri() in done.stdout
    return file  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def reported(chromium, report_file) -> Opened:
    """That report in the browser; a test leaves it as it was."""
    return opened(chromium, report_file)
