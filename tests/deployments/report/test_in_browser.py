"""Reports in a real browser: figures respond, without requests or console errors."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes import BROWSER
from reports.made_up import full

from prefect_tune.deployments.report.html import page_html
from prefect_tune.deployments.report.study_page import study_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("CI" not in os.environ and not BROWSER, reason="needs a browser"),
]
DESK = {"width": 1366, "height": 768}
LIMIT_MS = 120_000
CLIPPED = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll(".xtitle, .ytitle, .ytick text")]
    .filter((text) => {
      const own = text.getBoundingClientRect();
      return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 ||
        own.bottom > box.bottom + 1;
    })
    .map((text) => text.textContent);
})"""
"""Texts of axes that are not entirely within their figure."""
UNFOLD = "(is_open) => document.querySelectorAll('details').forEach((d) => { d.open = is_open; })"


@dataclass
class Opened:
    """A page in the browser, with its console messages and requests."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def report_file(ended, tmp_path_factory) -> Path:
    """Write the report of a study with the command."""
    file = tmp_path_factory.mktemp("reported") / "report.html"
    done = ended.run("report", "s", "--out", file)
    assert done.exit_code == 0, done.output
    assert file.as_uri() in done.stdout
    return file  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def chromium(report_file) -> Iterator[Any]:  # noqa: ARG001 - no flow runs beside Playwright's loop
    """Start a browser for this module only, because its event loop blocks flows of other tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"], timeout=LIMIT_MS
        )
        yield browser
        browser.close()


def opened(browser: Any, file: Path) -> Opened:
    """Open a file, and wait until its figures are drawn."""
    page = browser.new_page(viewport=DESK)
    it = Opened(page)
    page.on("console", lambda message: it.said.append(message.text))
    page.on("pageerror", lambda error: it.said.append(str(error)))
    page.on("request", lambda request: it.asked_for.append(request.url))
    page.on("dialog", lambda dialog: it.said.append(dialog.message))
    page.set_default_timeout(LIMIT_MS)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-figures=drawn]")
    return it


def background(page) -> str:
    color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return color


def test_first_screen_of_a_report_shows_the_result_in_light_and_dark_mode(
    chromium, report_file
) -> None:
    reported = opened(chromium, report_file)
    page = reported.page
    lines, following = (page.locator(".card").nth(i) for i in range(2))
    ends = [card.bounding_box() for card in (lines, following)]
    assert max(box["y"] + box["height"] for box in ends) <= DESK["height"]
    assert re.search(r"cross-validated.*test rows.*baseline", lines.inner_text(), re.DOTALL)
    n_figures = page.locator(".figure").count()
    assert page.locator(".figure .main-svg").count() >= n_figures >= 4
    light = background(page)
    page.emulate_media(color_scheme="dark")  # the system's theme
    page.wait_for_selector("html[data-theme=dark]")
    assert background(page) != light
    page.get_by_role("button", name="Dark mode").click()  # its reader's
    page.wait_for_selector("html[data-theme=light]")
    assert background(page) == light
    assert reported.said == []
    assert reported.asked_for == [page.url]


@pytest.mark.full
def test_page_with_hostile_names_runs_no_script_and_is_accessible(chromium, tmp_path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    file = tmp_path / "made-up.html"
    file.write_text(page_html(study_page(full(n=200))))
    made_up = opened(chromium, file)
    page = made_up.page
    figure = page.locator(".figure", has_text="Seconds by step")
    figure.locator(".legend button").first.click()  # hides a trace
    assert figure.locator(".trace.bars").count() == 1
    matrix, slider = page.locator(".threshold td.number"), page.locator(".threshold input")
    before = matrix.all_inner_texts()
    slider.press("Home")
    after = matrix.all_inner_texts()
    assert (after[0], after[3]) == ("0", "0")  # all rows reach the lowest threshold
    assert int(before[0]) + int(before[1]) == int(after[1])
    page.evaluate(UNFOLD, True)
    for _ in ("light", "dark"):
        assert Axe().run(page).response["violations"] == []
        page.get_by_role("button", name="Dark mode").click()
    page.set_viewport_size({"width": 360, "height": 780})
    page.wait_for_function("document.documentElement.scrollWidth === 360")
    page.reload()
    page.wait_for_selector("html[data-figures=drawn]")
    clipped = page.evaluate(CLIPPED)
    assert clipped == []
    assert made_up.said == []
    assert {url for url in made_up.asked_for if not url.startswith("data:")} == {page.url}
    assert page.locator("img").count() == 0
