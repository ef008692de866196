"""The embedded server: one per home, shared, replaced, taken over, stopped by the last."""

import json
import threading
from urllib.request import urlopen

import psutil
import pytest
from processes import is_alive, server_of

from prefect_tune.deployments.server.embedded import local_server, may_be_configured
from prefect_tune.deployments.server.process import prepare_template


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    """A home without a server, in a folder where Prefect finds no address of one."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    prepare_template()
    return tmp_path


def answers(url: str) -> bool:
    with urlopen(f"{url}/health", timeout=10) as response:  # noqa: S310 - our own server
        return response.status == 200


def test_a_configured_server_is_used_as_it_is(server, own_home) -> None:
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
def test_only_a_file_that_may_name_a_server_delays_our_own(
    tmp_path, monkeypatch, file, text, may_be
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text(text)
    assert may_be_configured() is may_be


class TestWithoutAConfiguredServer:
    @pytest.fixture(autouse=True)
    def _no_address(self):
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            yield

    def test_the_last_user_stops_it(self, own_home) -> None:
        with local_server() as first:
            noted = server_of(own_home)
            with self._elsewhere() as (entered, leave):
                assert entered["url"] == first
                assert answers(first)
                leave.set()
            assert answers(first)
        assert server_of(own_home) is None
        assert not is_alive(noted["pid"])

    def test_one_that_was_left_up_is_shared_and_stopped_by_the_next(self, own_home) -> None:
        with local_server(keep=True) as url:
            pass
        assert answers(url)
        noted = server_of(own_home)
        with local_server() as again:
            assert again == url
        assert not is_alive(noted["pid"])

    def test_one_that_was_killed_is_replaced(self, own_home) -> None:
        with local_server(keep=True):
            pass
        noted = server_of(own_home)
        process = psutil.Process(noted["pid"])
        family = [*process.children(recursive=True), process]
        for member in family:
            member.kill()
        psutil.wait_procs(family)
        with local_server() as url:
            assert answers(url)
            assert server_of(own_home)["pid"] != noted["pid"]

    def test_a_process_that_only_has_the_number_of_a_server_is_left_alone(self, own_home) -> None:
        (own_home / "server").mkdir()
        me = {"pid": psutil.Process().ppid(), "started": 5.0, "url": "http://127.0.0.1:9/api"}
        (own_home / "server" / "server.json").write_text(json.dumps(me))
        with local_server() as url:
            assert url != me["url"]
        assert is_alive(me["pid"])

    def _elsewhere(self):
        """Another user of the same home, in a thread of its own."""
        from contextlib import contextmanager

        @contextmanager
        def user():
            entered, is_in, leave = {}, threading.Event(), threading.Event()

            def use() -> None:
                from prefect.settings import PREFECT_API_URL, temporary_settings

                with temporary_settings(restore_defaults={PREFECT_API_URL}), local_server() as url:
                    entered["url"] = url
                    is_in.set()
                    leave.wait(60)

            thread = threading.Thread(target=use)
            thread.start()
            assert is_in.wait(60)
            yield entered, leave
            thread.join()

        return user()
