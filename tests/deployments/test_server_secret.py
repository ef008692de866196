"""The embedded server tells and takes nothing without its secret, which only its owner can read."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
from inputs import QUICK_OPTIONS, write_table
from other_user import run_as_other_user
from prefect_api import flow_runs
from processes import (
    COMMAND,
    SECRETS,
    environment,
    kill,
    run,
    server_of,
    started,
    stop_server,
    wait_for,
)

from prefect_tune.deployments.server.locks import made_secret, read_secret

ASK = """
url, paths, sockets = json.loads(sys.argv[1])
for path, methods in paths.items():
    for method in methods:
        data = None if method == "get" else b"{}"
        for secret in (None, "Basic " + base64.b64encode(b"prefect-tune:").decode()):
            headers = {"Content-Type": "application/json", "Authorization": secret}
            headers = {name: value for name, value in headers.items() if value}
            request = urllib.request.Request(url + path, data, headers, method=method.upper())
            try:
                print(method, path, urllib.request.urlopen(request, timeout=30).status)
            except urllib.error.HTTPError as error:
                print(method, path, error.code)
for path in sockets:
    for protocol, token in ((None, None), ("prefect", None), ("prefect", "guess")):
        address = url.replace("http", "ws") + path
        try:
            with connect(address, subprotocols=protocol and [protocol]) as socket:
                socket.send(json.dumps({"type": "auth", "token": token}))
                socket.send(json.dumps({"type": "filter", "filter": {}}))
                print("socket", path, "told", socket.recv(timeout=20))
        except (websockets.exceptions.WebSocketException, TimeoutError) as error:
            print("socket", path, "closed", type(error).__name__)
"""


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """A home with one small study and its server left up; its URL; what the command said."""
    folder = tmp_path_factory.mktemp("secret")
    home, data = folder / "home", write_table(folder)
    command = ("run", data, *QUICK_OPTIONS, "--target", "target", "--trials", 1, "--workers", 1)
    done = run(*command, "--study", "s", "--keep-server", home=home)
    assert done.returncode == 0, done.stderr
    yield home, server_of(home)["url"], done.stdout + done.stderr
    stop_server(home)


def asked(url: str, path: str, **headers: str) -> Any:
    return urlopen(Request(url + path, headers=headers), timeout=30)  # noqa: S310 - our own


def signed_in(url: str, path: str) -> Any:
    from base64 import b64encode

    basic = b64encode(SECRETS[url].encode()).decode()
    return json.load(asked(url, path, Authorization=f"Basic {basic}"))


def sockets(routes: Any) -> Iterator[str]:
    """Paths of all websockets of Prefect's API."""
    for route in routes:
        if "WebSocket" in type(route).__name__:
            yield route.path.replace("{work_pool_name}", "local")
        yield from sockets(getattr(getattr(route, "original_router", route), "routes", ()))


def test_another_user_is_told_nothing_and_changes_nothing(studied) -> None:
    from prefect.server.api.server import create_api_app

    _, url, _ = studied
    paths = {
        path: list(methods) for path, methods in signed_in(url, "/openapi.json")["paths"].items()
    }
    assert len(paths) > 100
    found = sorted(sockets(create_api_app().routes))
    assert {"/events/in", "/events/out", "/logs/out"} < set(found)
    imports = (
        "import base64, encodings.idna, json, sys, urllib.request, urllib.error\n"
        "import websockets.exceptions\n"
        "from websockets.sync.client import connect\n"
    )
    shapes = {path.removeprefix("/api"): methods for path, methods in paths.items()}
    said = run_as_other_user(imports, ASK, json.dumps([url, shapes, found])).splitlines()
    let_in = [line for line in said if not line.endswith("401") and " closed " not in line]
    assert let_in == ["get /health 200"] * 2 + ["get /ready 200"] * 2
    assert sum(line.startswith("socket") for line in said) == 3 * len(found)
    assert flow_runs(url)[0].state_name == "Completed"


def test_no_page_of_another_origin_may_read_it(studied) -> None:
    _, url, _ = studied
    for origin, allowed in (("http://evil.example", None), (url.removesuffix("/api"),) * 2):
        answer = asked(url, "/health", Origin=origin)
        assert answer.headers["access-control-allow-origin"] == allowed


def test_its_owner_uses_it_from_another_shell_as_the_command_said(studied, tmp_path) -> None:
    home, url, said = studied
    exports = next(line for line in said.splitlines() if "export PREFECT_API_URL" in line)
    shell = exports.partition("in another shell: ")[2]
    listing = subprocess.run(
        ["bash", "-c", f"{shell}\nprefect flow-run ls"],
        env={
            **environment(home),
            "PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert listing.returncode == 0, listing.stderr
    assert "COMPL" in listing.stdout
    assert (
        f"Prefect shows it at {url.removesuffix('/api')} (sign in with the line in {home}" in said
    )


def test_a_command_without_the_secret_says_what_is_missing(studied, tmp_path) -> None:
    _, url, _ = studied
    here = {**environment(tmp_path), "PREFECT_API_URL": url}
    data = write_table(tmp_path)
    done = subprocess.run(
        [*COMMAND, "run", str(data), *QUICK_OPTIONS, "--target", "target", "--trials", "1"],
        env=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "only who sets its PREFECT_API_AUTH_STRING" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_secret_is_in_one_file_and_nowhere_else(studied) -> None:
    home, _, said = studied
    secret = read_secret(home / "server")
    assert len(secret) > 40
    word = secret.partition(":")[2]
    assert word not in said
    commands = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert str(home / "server") in " ".join(commands)
    assert word not in " ".join(commands)
    files = [p for p in home.rglob("*") if p.is_file()]
    assert home / "server" / "prefect.db" in files
    holding = [p for p in files if word.encode() in p.read_bytes()]
    assert holding == [home / "server" / "auth"]


def test_others_can_read_no_file_of_the_server(studied) -> None:
    home, _, _ = studied
    for path in (home, *home.glob("*"), *(home / "server").rglob("*")):
        mode = path.stat().st_mode
        assert not mode & (stat.S_IRWXG | stat.S_IRWXO), f"{path} {mode:o}"
    assert (home / "server" / "prefect.db-wal").exists()


def test_one_that_is_started_again_has_the_same_secret(tmp_path) -> None:
    home = tmp_path / "home"
    with started("serve", home=home) as process:
        wait_for(lambda: "prefect deployment run" in process.stderr.readline())
        former, secret = server_of(home), read_secret(home / "server")
        kill(former["pid"])
        again = wait_for(lambda: (s := server_of(home)) and s["pid"] != former["pid"] and s)
        assert again["url"] == former["url"]
        wait_for(lambda: is_let_in(again["url"]))
        assert read_secret(home / "server") == secret


def is_let_in(url: str) -> bool:
    try:
        return bool(signed_in(url, "/version"))
    except (HTTPError, OSError):
        return False


def test_a_secret_that_others_could_read_is_made_anew(tmp_path) -> None:
    first = made_secret(tmp_path)
    assert made_secret(tmp_path) == first
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o600
    (tmp_path / "auth").chmod(0o644)
    assert made_secret(tmp_path) != first
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs a browser")
def test_its_owner_signs_in_with_a_browser_and_sees_the_run(studied) -> None:
    from playwright.sync_api import expect, sync_playwright

    home, url, _ = studied
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(url.removesuffix("/api"))
        page.fill("input[type=password]", "prefect-tune:wrong")
        page.keyboard.press("Enter")
        expect(page.locator("body")).to_contain_text("Invalid", timeout=60_000)
        page.fill("input[type=password]", read_secret(home / "server"))
        page.keyboard.press("Enter")
        page.wait_for_url("**/dashboard*")
        page.goto(url.removesuffix("/api") + "/runs")
        expect(page.locator("body")).to_contain_text("s (random)", timeout=60_000)
        browser.close()
