"""Pictures of README and pages, made from the present code by `deployments/docs/pictures`.

A picture of a screen keeps the labels on the screen as its description, which a test compares with
the present code.
"""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from documents.benchmark_chart import benchmark_chart
from documents.pages import DOCS
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import FloatRect, Page, expect, sync_playwright
from prefect_api import flow_runs
from processes import BROWSER, run, server_of, stop_server

from prefect_tune.deployments.server.process import read_secret

__all__ = ["PICTURES", "labels_of"]

PICTURES = DOCS / "pages" / "pictures"
STUDY = "demo"
MOST_BYTES = 200_000
WIDTH, HEIGHT, REPORT_HEIGHT = 1280, 900, 1250
TITLES = "h2, h3, summary, nav a"
"""Elements of a report whose texts do not depend on its study."""
SEEN = """selector => [...document.querySelectorAll(selector)]
    .filter(it => it.getClientRects().length && it.getBoundingClientRect().bottom < innerHeight)
    .map(it => it.innerText.trim())"""
"""Returns the texts of the elements on the screen."""


def labels_of(picture: str) -> list[str]:
    """The labels on a picture of a screen."""
    with Image.open(PICTURES / picture) as image:
        return str(image.info["Description"]).splitlines()


def main() -> None:
    """Draw the chart, run the demo, leave the server running, and take the pictures."""
    (PICTURES / "benchmark.svg").write_text(benchmark_chart())
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        try:
            done = run("run", "cohort:demo", "--study", STUDY, "--keep-server", home=home)
            assert done.returncode == 0, done.stderr
            chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            page = chromium.new_page(color_scheme="light", device_scale_factor=1.5)
            page.set_default_timeout(60_000)
            take_prefect(page, home)
            take_report(page, home)
        finally:
            stop_server(home)


def take_prefect(page: Page, home: Path) -> None:
    """Take the flow run of the study: its trials over time, and its cached steps."""
    server = server_of(home)
    assert server is not None
    address = server["url"].removesuffix("/api")
    (flow_run,) = flow_runs(server["url"])
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    page.goto(address)
    page.fill("input[type=password]", read_secret(home / "server"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard*")
    page.goto(f"{address}/runs/flow-run/{flow_run.id}")
    page.get_by_text("Task Runs", exact=True).click()
    choices = ("All run states", "Cached"), ("Newest to Oldest", "Oldest to Newest")
    for chosen, wanted in choices:
        page.get_by_text(chosen, exact=True).last.click()
        page.keyboard.press("ArrowDown")  # opens the list
        page.wait_for_timeout(1_000)  # the list is the last to be drawn
        page.get_by_text(wanted, exact=True).last.click()
        page.get_by_text("Flow", exact=True).click()  # closes the list
    for text in ("All run states", "Cancelling"):
        expect(page.get_by_text(text, exact=True)).to_be_hidden()
    page.wait_for_timeout(5_000)  # the graph draws itself
    taken = page.screenshot(clip=FloatRect(x=256, y=0, width=WIDTH - 256, height=HEIGHT))
    save("prefect-flow-run.png", taken, page.evaluate(SEEN, "a[href*=task-run]"))


def take_report(page: Page, home: Path) -> None:
    """Take the beginning of the report of the study."""
    file = home / "report.html"
    done = run("report", STUDY, "--out", file, home=home)
    assert done.returncode == 0, done.stderr
    page.set_viewport_size({"width": WIDTH, "height": REPORT_HEIGHT})
    page.goto(file.as_uri())
    page.wait_for_timeout(2_000)
    save("report.png", page.screenshot(), page.evaluate(SEEN, TITLES))


def save(name: str, taken: bytes, labels: list[str]) -> None:
    """Write a picture with its labels, and with as many colors as its size allows."""
    file, picture, description = PICTURES / name, Image.open(BytesIO(taken)), PngInfo()
    description.add_text("Description", "\n".join(dict.fromkeys(labels)))
    size = WIDTH, round(WIDTH * picture.height / picture.width)
    for colors in (256, 128, 64, 32, 16):
        small = picture.convert("RGB").resize(size).quantize(colors)
        small.save(file, optimize=True, pnginfo=description)
        if file.stat().st_size <= MOST_BYTES:
            return
    raise ValueError(f"{name} is {file.stat().st_size} bytes with 16 colors; crop it")


if __name__ == "__main__":
    main()
