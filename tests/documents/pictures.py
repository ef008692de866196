"""Pictures of Prefect's interface and of a report; `deployments/docs/pictures` runs this."""

import argparse
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from documents.pages import DOCS
from PIL import Image
from playwright.sync_api import FloatRect, Page, expect, sync_playwright
from prefect_api import flow_runs
from processes import BROWSER, run, server_of, stop_server

from prefect_tune.deployments.server.process import read_secret

PICTURES = DOCS / "pages" / "pictures"
STUDY = "responders"
MOST_BYTES = 200_000
WIDTH, HEIGHT = 1280, 900


def main() -> None:
    """Run a study, leave its server running, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("prefect", "report"))
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        command = ("run", "cohort:demo", "--study", STUDY, "--trials", arguments.trials)
        done = run(*command, "--trial-timeout", "2m", "--workers", 2, "--keep-server", home=home)
        try:
            assert done.returncode == 0, done.stderr
            chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            page = chromium.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                color_scheme="light",
                device_scale_factor=1.5,
            )
            page.set_default_timeout(60_000)
            if arguments.only != "report":
                save(picture_of_prefect(page, home), PICTURES / "prefect-flow-run.png")
            if arguments.only != "prefect":
                save(picture_of_report(page, home), PICTURES / "report.png")
        finally:
            stop_server(home)


def picture_of_prefect(page: Page, home: Path) -> bytes:
    """Picture the flow run of the study: trials over time, and one step of all trials."""
    server = server_of(home)
    assert server is not None
    address = server["url"].removesuffix("/api")
    (flow_run,) = flow_runs(server["url"])
    page.goto(address)
    page.fill("input[type=password]", read_secret(home / "server"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard*")
    page.goto(f"{address}/runs/flow-run/{flow_run.id}")
    expect(page.locator("body")).to_contain_text(STUDY)
    page.get_by_text("Task Runs", exact=True).click()
    page.get_by_placeholder("Search by run name").last.fill("construct features")
    expect(page.locator("body")).to_contain_text("Cached")
    page.wait_for_timeout(5_000)  # the graph draws itself
    return page.screenshot(clip=FloatRect(x=256, y=0, width=WIDTH - 256, height=HEIGHT))


def picture_of_report(page: Page, home: Path) -> bytes:
    """Picture the beginning of the report of the study."""
    file = home / "report.html"
    done = run("report", STUDY, "--out", file, home=home)
    assert done.returncode == 0, done.stderr
    page.goto(file.as_uri())
    page.wait_for_timeout(2_000)
    return page.screenshot()


def save(taken: bytes, file: Path) -> None:
    """Write a picture with as many colors as its size allows, without times or names."""
    picture = Image.open(BytesIO(taken))
    size = WIDTH, round(WIDTH * picture.height / picture.width)
    for colours in (256, 128, 64, 32, 16):
        picture.convert("RGB").resize(size).quantize(colours).save(file, optimize=True)
        if file.stat().st_size <= MOST_BYTES:
            return
    raise ValueError(f"{file.name} is {file.stat().st_size} bytes with 16 colours; crop it")


if __name__ == "__main__":
    main()
