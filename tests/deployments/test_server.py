"""The private server: one per home, shared, replaced, and closed to other users."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest
from inputs import QUICK_OPTIONS, write_table
from other_user import run_as_other_user
from prefect.client.orchestration import get_client
from prefect.server.api.server import create_api_app
from prefect.settings import PREFECT_API_URL, temporary_settings
from processes import SECRETS, environment, is_alive, run, server_of
from processes import stop_server as stop_server_of

from prefect_tune.deployments.server import empty_database
from prefect_tune.deployments.server.embedded import (
    launched_server,
    local_server,
    may_be_configured,
)
from prefect_tune.deployments.server.empty_database import (
    has_block_types,
    note_block_types,
    prepare_template,
    seed_database,
)
from prefect_tune.deployments.server.process import (
    made_secret,
    noted_server,
    read_secret,
    running_server,
    stop_server,
)
from prefect_tune.storage.processes import process_start


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    """A home without a server, in a folder where Prefect finds no server address."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    prepare_template()
    return tmp_path


def answers(url: str) -> bool:
    with urlopen(f"{url}/health", timeout=10) as response:  # noqa: S310 - our own server
        return response.status == 200


def test_configured_server_is_used_unchanged(server, own_home) -> None:
    with local_server() as url:
        assert url == server
    assert server_of(own_home) is None


@pytest.mark.parametrize(
    ("file", "text", "may_be"),
    [
        ("pyproject.toml", "[project]\ndependencies = ['prefect']\n", False),
        ("pyproject.toml", "[tool.prefect]\napi.url = 'http://there/api'\n", True),
        ("prefect.toml", "[api]\nurl = 'http://there/api' # of Prefect\n", True),
        (".env", "PREFECT_API_URL=http://there/api\n", True),
        (".env", "OTHER=1\n", False),
    ],
)
def test_private_server_starts_early_unless_a_settings_file_may_name_a_server(
    tmp_path, monkeypatch, file, text, may_be
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text(text)
    assert may_be_configured() is may_be


@pytest.fixture
def no_address(own_home) -> Iterator[Path]:
    """The test's own home, without a configured server address."""
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield own_home


@contextmanager
def elsewhere() -> Iterator[str]:
    """Use the same home from another thread, and return the server address."""
    entered, is_in, leave = [], threading.Event(), threading.Event()

    def use() -> None:
        with temporary_settings(restore_defaults={PREFECT_API_URL}), local_server() as url:
            entered.append(url)
            is_in.set()
            leave.wait(200)

    thread = threading.Thread(target=use)
    thread.start()
    assert is_in.wait(200)
    yield entered[0]
    leave.set()
    thread.join()


@pytest.mark.slow
def test_server_is_shared_without_a_proxy_and_stopped_by_the_last_user(
    no_address, monkeypatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.delenv("no_proxy", raising=False)
    with local_server() as first:
        noted = server_of(no_address)
        with elsewhere() as url:
            assert url == first
            assert answers(first)
        with get_client(sync_client=True) as client:
            assert client.hello().status_code == 200
        assert os.environ["no_proxy"].startswith("example.org,")
    assert os.environ["NO_PROXY"] == "example.org"
    assert "no_proxy" not in os.environ
    assert server_of(no_address) is None
    assert not is_alive(noted["pid"])


@pytest.mark.slow
@pytest.mark.full
def test_running_server_is_shared_and_a_killed_server_is_replaced(no_address) -> None:
    with local_server(keep=True) as url:
        pass
    assert answers(url)
    noted = server_of(no_address)
    with local_server(keep=True) as again:
        assert again == url
    process = psutil.Process(noted["pid"])
    family = [*process.children(recursive=True), process]
    for member in family:
        member.kill()
    psutil.wait_procs(family)
    with local_server() as url:
        assert answers(url)
        assert server_of(no_address)["pid"] != noted["pid"]


@pytest.mark.slow
@pytest.mark.full
def test_unshared_server_is_replaced_by_a_server_with_event_services(no_address) -> None:
    with local_server(keep=True):
        without = server_of(no_address)
    n_threads = threading.active_count()
    with launched_server(with_events=True) as server:
        assert threading.active_count() == n_threads  # the zygote is a copy of one thread
        server.wait()
        assert server.has_events
        assert server_of(no_address)["pid"] != without["pid"]
    with elsewhere() as url, launched_server(with_events=True) as server:
        assert (server.url, server.has_events) == (url, False)


@pytest.mark.slow
def test_new_home_has_all_database_tables(tmp_path) -> None:
    prepare_template()
    seed_database(tmp_path)
    with closing(sqlite3.connect(tmp_path / "prefect.db")) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        blocks = {row[0] for row in connection.execute("SELECT name FROM block_type")}
    assert {"flow_run", "task_run", "alembic_version"} <= tables
    assert {"Secret", "ArtifactStore"} <= blocks
    assert has_block_types(tmp_path)


def test_killed_copy_of_the_template_leaves_no_database(tmp_path, monkeypatch) -> None:
    def copy_half(_: Path, target: Path) -> None:
        target.write_text("half")
        raise KeyboardInterrupt

    template = tmp_path / "template"
    template.write_text("whole")
    monkeypatch.setattr(empty_database, "_template", lambda: template)
    folder = tmp_path / "home"
    folder.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfile", copy_half)
        with pytest.raises(KeyboardInterrupt):
            seed_database(folder)
    assert not (folder / "prefect.db").exists()
    seed_database(folder)
    assert (folder / "prefect.db").read_text() == "whole"
    assert stat.S_IMODE((folder / "prefect.db").stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.full
def test_server_stores_all_files_in_a_home_with_an_unusual_name(no_address, monkeypatch) -> None:
    folder = no_address / "50% of #1; which?"
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(folder))
    with local_server() as url:
        assert answers(url)
    assert [path.name for path in no_address.iterdir()] == [folder.name]
    assert (folder / "server" / "prefect.db").stat().st_size > 100_000


def test_existing_database_is_kept_and_gets_current_block_types(tmp_path, monkeypatch) -> None:
    (tmp_path / "prefect.db").write_text("mine")
    seed_database(tmp_path)
    assert (tmp_path / "prefect.db").read_text() == "mine"
    assert not has_block_types(tmp_path)  # so the server makes them
    note_block_types(tmp_path)
    assert has_block_types(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(empty_database, "version", lambda _: "0.1")
        assert not has_block_types(tmp_path)
    (tmp_path / "prefect.db").write_text("")  # a new database without a template
    assert not has_block_types(tmp_path)


def test_unrelated_process_with_a_reused_pid_is_not_killed(tmp_path) -> None:
    ours = {"pid": os.getppid(), "started": process_start(os.getppid())}
    note = {**ours, "url": "http://127.0.0.1:4242/api"}
    (tmp_path / "server.json").write_text(json.dumps(note))
    assert noted_server(tmp_path).runs()
    assert noted_server(tmp_path).port == 4242
    (tmp_path / "server.json").write_text(json.dumps({**note, "started": 5.0}))
    assert not noted_server(tmp_path).runs()
    assert running_server(tmp_path) is None
    stop_server(tmp_path)
    assert is_alive(os.getppid())
    (tmp_path / "server.json").write_text('{"pid": 1')
    assert noted_server(tmp_path) is None
    assert running_server(tmp_path) is None


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


def asked(url: str, path: str, **headers: str) -> Any:
    return urlopen(Request(url + path, headers=headers), timeout=30)  # noqa: S310 - our own


def sockets(routes: Any) -> Iterator[str]:
    """Yield the paths of all websockets of Prefect's API."""
    for route in routes:
        if "WebSocket" in type(route).__name__:
            yield route.path.replace("{work_pool_name}", "local")
        yield from sockets(getattr(getattr(route, "original_router", route), "routes", ()))


def test_server_refuses_reads_and_changes_by_other_users(server) -> None:
    basic = b64encode(SECRETS[server].encode()).decode()
    document = json.load(asked(server, "/openapi.json", Authorization=f"Basic {basic}"))
    paths = {path: list(methods) for path, methods in document["paths"].items()}
    assert len(paths) > 100
    found = sorted(sockets(create_api_app().routes))
    assert {"/events/in", "/events/out", "/logs/out"} < set(found)
    imports = (
        "import base64, encodings.idna, json, sys, urllib.request, urllib.error\n"
        "import websockets.exceptions\n"
        "from websockets.sync.client import connect\n"
    )
    shapes = {path.removeprefix("/api"): methods for path, methods in paths.items()}
    said = run_as_other_user(imports, ASK, json.dumps([server, shapes, found])).splitlines()
    let_in = [line for line in said if not line.endswith("401") and " closed " not in line]
    assert let_in == ["get /health 200"] * 2 + ["get /ready 200"] * 2
    assert sum(line.startswith("socket") for line in said) == 3 * len(found)


def test_pages_of_other_origins_cannot_read_the_server(server) -> None:
    for origin, allowed in (("http://evil.example", None), (server.removesuffix("/api"),) * 2):
        answer = asked(server, "/health", Origin=origin)
        assert answer.headers["access-control-allow-origin"] == allowed


@pytest.mark.full
def test_printed_commands_let_the_owner_use_the_server_in_another_shell(tmp_path) -> None:
    home, data = tmp_path / "home", write_table(tmp_path)
    command = ("run", data, *QUICK_OPTIONS, "--target", "target", "--trials", 1, "--workers", 1)
    done = run(*command, "--study", "s", "--keep-server", home=home)
    said, url = done.stdout + done.stderr, server_of(home)["url"]
    exports = next(line for line in said.splitlines() if "export PREFECT_API_URL" in line)
    shell = exports.partition("in another shell: ")[2]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = {**environment(home), "PATH": path, "PREFECT_HOME": str(tmp_path)}
    try:
        listed = subprocess.check_output(["bash", "-c", f"{shell}\nprefect flow-run ls"], env=here)
    finally:
        stop_server_of(home)
    assert b"COMPL" in listed
    assert url.removesuffix("/api") in said
    assert read_secret(home / "server").partition(":")[2] not in said


@pytest.mark.full
def test_command_without_the_secret_names_the_missing_variable(server, tmp_path) -> None:
    SECRETS.pop(server)
    try:
        command = ("run", write_table(tmp_path), *QUICK_OPTIONS, "--target", "target")
        done = run(*command, "--trials", 1, home=tmp_path, server=server)
    finally:
        server_of(Path(os.environ["PREFECT_TUNE_HOME"]))  # knows it again
    assert done.returncode == 1
    assert "PREFECT_API_AUTH_STRING" in done.stderr
    assert "Traceback" not in done.stderr


def test_secret_is_in_a_single_file_unreadable_to_other_users(server, home) -> None:  # noqa: ARG001
    word = read_secret(home / "server").partition(":")[2]
    assert len(word) > 30
    commands = " ".join(" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    assert str(home / "server") in commands
    assert word not in commands
    files = [p for p in home.rglob("*") if p.is_file()]
    assert home / "server" / "prefect.db" in files
    assert [p for p in files if word.encode() in p.read_bytes()] == [home / "server" / "auth"]
    for path in (home / "server", *(home / "server").rglob("*")):
        mode = path.stat().st_mode
        assert not mode & (stat.S_IRWXG | stat.S_IRWXO), f"{path} {mode:o}"
    assert (home / "server" / "prefect.db-wal").exists()


def test_secret_readable_by_other_users_is_replaced(tmp_path) -> None:
    first = made_secret(tmp_path)
    assert made_secret(tmp_path) == first
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o600
    (tmp_path / "auth").chmod(0o644)
    assert made_secret(tmp_path) != first
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o600
