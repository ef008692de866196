"""Reports in a real browser: their figures respond, and nothing is asked for or complained of."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from processes import BROWSER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("CI" not in os.environ and not BROWSER, reason="needs a browser"),
]
CONTROLS = "a[href]:visible, button:visible, summary:visible, [tabindex='0']:visible"


def violations(page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {node['html'][:200]}" for v in found for node in v["nodes"]]


def wait_for_theme(page, theme: str) -> None:
    """The browser tells the page of the system's theme, and that it has printed, when it may."""
    from playwright.sync_api import expect

    expect(page.locator("html")).to_have_attribute("data-theme", theme)


@contextmanager
def dark(page) -> Iterator[None]:
    """The page in the dark, as its reader chose."""
    switch = page.get_by_role("button", name="Dark mode")
    switch.click()
    yield
    switch.click()


def test_the_report_of_a_study_answers_on_its_first_screen(reported) -> None:
    page = reported.page
    lines, following = (page.locator(".card").nth(i) for i in range(2))
    ends = [card.bounding_box() for card in (lines, following)]
    assert max(box["y"] + box["height"] for box in ends) <= 768
    assert re.search(r"cross-validated.*test rows.*guessing", lines.inner_text(), re.DOTALL)
    assert "prefect-tune export s" in following.inner_text()
    n_figures = page.locator(".figure").count()
    assert page.locator(".figure .main-svg").count() >= n_figures >= 4
    assert reported.said == []
    assert reported.asked_for == [page.url]


def test_light_and_dark_follow_the_system_until_the_reader_chooses(reported) -> None:
    page = reported.page

    def shown() -> tuple[str, str]:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return page.locator("html").get_attribute("data-theme"), colour

    light = shown()
    page.emulate_media(color_scheme="dark")
    wait_for_theme(page, "dark")
    assert (light[0], shown()[0]) == ("light", "dark")
    assert light[1] != shown()[1]
    switch = page.get_by_role("button", name="Dark mode")
    switch.click()
    assert shown() == light
    switch.click()
    page.emulate_media(color_scheme="light")
    assert shown()[0] == "dark"  # as its reader chose
    switch.click()
    assert shown() == light


@pytest.mark.full
def test_the_legend_hides_a_trace_and_shows_it_again(made_up) -> None:
    figure = made_up.page.locator(".figure", has_text="Seconds by step")
    legend = figure.locator(".legend button", has_text="saved by the cache")
    bars = figure.locator(".trace.bars")
    assert bars.count() == 2
    legend.click()
    assert legend.get_attribute("aria-pressed") == "false"
    assert bars.count() == 1
    legend.press("Enter")
    assert bars.count() == 2


@pytest.mark.full
def test_a_command_is_copied(made_up) -> None:
    from playwright.sync_api import expect

    page = made_up.page
    first = page.locator(".next .copy").first
    first.click()
    expect(first).to_have_text("Copied")
    page.context.grant_permissions(["clipboard-read"])
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator(".next code").first.inner_text()
    expect(first).to_have_text("Copy")


@pytest.mark.full
def test_the_keyboard_reaches_every_control(made_up) -> None:
    page = made_up.page
    expected = page.locator(CONTROLS).count()
    page.evaluate(
        """() => {
            window.reached = new Set();
            document.activeElement?.blur();
            document.addEventListener('focusin', (event) => window.reached.add(event.target));
        }"""
    )
    for _ in range(expected + 5):
        page.keyboard.press("Tab")
    assert expected > 40
    assert page.evaluate("window.reached.size") >= expected


@pytest.mark.full
def test_axe_finds_no_violation_in_light_and_dark(made_up, reported) -> None:
    assert violations(reported.page) == []
    page = made_up.page
    unfold = (
        "(is_open) => document.querySelectorAll('details').forEach((d) => { d.open = is_open; })"
    )
    page.evaluate(unfold, True)
    assert violations(page) == []
    with dark(page):
        assert violations(page) == []
    page.evaluate(unfold, False)


@pytest.mark.full
@pytest.mark.parametrize("which", ["made_up", "reported"])
def test_a_phone_needs_no_scrolling_sideways(which, request) -> None:
    page = request.getfixturevalue(which).page
    before = page.viewport_size
    page.set_viewport_size({"width": 360, "height": 780})
    page.wait_for_timeout(300)  # Plotly waits until a window has been resized
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.set_viewport_size(before)


@pytest.mark.full
def test_paper_has_all_figures_in_its_width_and_in_light(made_up) -> None:
    page = made_up.page
    page.evaluate(
        """addEventListener('beforeprint', () => {
            window.widths = [...document.querySelectorAll('.figure .main-svg')]
                .map((svg) => Number(svg.getAttribute('width')));
            window.theme = document.documentElement.dataset.theme;
        })"""
    )
    with dark(page):
        pdf = page.pdf(format="A4")
        assert page.evaluate("window.theme") == "light"
        wait_for_theme(page, "dark")
    widths = page.evaluate("window.widths")
    assert set(widths) == {640}
    assert len(widths) >= page.locator(".figure").count()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 5


@pytest.mark.full
def test_nothing_of_a_nasty_name_was_run_nor_asked_for(made_up) -> None:
    made_up.page.mouse.wheel(0, 20_000)
    made_up.page.wait_for_timeout(100)
    assert made_up.said == []
    assert {url for url in made_up.asked_for if not url.startswith("data:")} == {made_up.page.url}
    assert made_up.page.locator("img").count() == 0
