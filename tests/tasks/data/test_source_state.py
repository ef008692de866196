"""The state of files that an input is read from: what counts as a change."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from prefect_tune.storage import masking
from prefect_tune.storage.masking import without_signature
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.source_state import SourceStates, source_states


def changed(source: Source, known: SourceStates) -> list[str]:
    return source_states(source, known).changed_since(known)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,u\n2,v\n")
    return path


def test_a_touched_file_is_unchanged_and_its_new_times_are_known(file) -> None:
    source = Source(str(file))
    known = source_states(source)
    os.utime(file, (1, 1))
    found = source_states(source, known)
    assert found.changed_since(known) == []
    assert found != known


def test_a_file_of_equal_size_and_times_is_not_read_again(file) -> None:
    state = source_states(Source(str(file))).data
    assert state is not None
    believed = SourceStates(replace(state, content="not read"))
    assert source_states(Source(str(file)), believed) == believed


@pytest.mark.parametrize("name", ["data", "labels", "test"])
def test_each_file_with_another_content_is_named_though_its_size_and_time_are_kept(
    tmp_path, name
) -> None:
    files = {one: tmp_path / f"{one}.csv" for one in ("data", "labels", "test")}
    for path in files.values():
        path.write_text("a,y\n1,u\n")
    source = Source(**{one: str(path) for one, path in files.items()})
    known, stat = source_states(source), files[name].stat()
    files[name].write_text("a,y\n1,v\n")
    os.utime(files[name], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert changed(source, known) == [name]


@pytest.mark.parametrize("change", ["replaced", "added", "removed", "renamed"])
def test_a_folder_changes_with_any_of_its_files(tmp_path, change) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in ("0.parquet", "1.parquet"):
        (folder / name).write_text(name)
    source = Source(str(folder))
    known = source_states(source)
    (folder / ".hidden").write_text("of an editor")
    assert changed(source, known) == []
    if change == "removed":
        (folder / "1.parquet").unlink()
    elif change == "renamed":
        (folder / "1.parquet").rename(folder / "2.parquet")
    else:
        (folder / ("1.parquet" if change == "replaced" else "2.parquet")).write_text("others")
    assert changed(source, known) == ["data"]


def test_a_link_is_followed_to_the_file_that_is_replaced(tmp_path) -> None:
    (tmp_path / "v1").write_text("a,y\n1,u\n")
    (tmp_path / "v2").write_text("a,y\n1,v\n")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "0.csv").symlink_to(tmp_path / "v1")
    source = Source(str(folder))
    known = source_states(source)
    shutil.copy(tmp_path / "v2", tmp_path / "v1")
    assert changed(source, known) == ["data"]


@pytest.mark.parametrize("place", [0, 1_199_999_999])
def test_the_first_and_last_bytes_of_a_large_file_are_compared(tmp_path, place) -> None:
    """Its holes take no room on the disk, and reading all of it would take longer."""
    file = tmp_path / "large.parquet"
    with file.open("wb") as opened:
        opened.truncate(1_200_000_000)
    source, stat = Source(str(file)), file.stat()
    known = source_states(source)
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"1")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert changed(source, known) == ["data"]


def test_labels_are_found_below_the_data_as_they_are_read(tmp_path) -> None:
    folder = tmp_path / "meds"
    folder.mkdir()
    (folder / "labels.csv").write_text("a")
    source = Source(str(folder), labels="labels.csv")
    known = source_states(source)
    (folder / "labels.csv").write_text("b")
    assert "labels" in changed(source, known)


@pytest.mark.parametrize("data", ["cohort:demo", "sklearn:wine", "dataframe:0123", "no/such.csv"])
def test_what_is_no_file_has_no_state(data) -> None:
    assert source_states(Source(data)) == SourceStates()


def test_a_file_that_is_gone_is_lost_and_its_state_is_kept(file) -> None:
    source = Source(str(file))
    known = source_states(source)
    file.unlink()
    found = source_states(source, known)
    assert (found.changed_since(known), found.lost_since(known)) == ([], ["data"])
    assert found.completed_by(known) == known


def test_a_file_of_another_file_system_changes_with_its_time() -> None:
    memory, source = fsspec.filesystem("memory"), Source("memory://state/t.csv")
    memory.pipe("/state/t.csv", b"a,y\n1,u\n")
    known = source_states(source)
    assert source_states(source) == known
    memory.pipe("/state/t.csv", b"a,y\n1,v\n")
    assert changed(source, known) == ["data"]


class Served:
    """A file on a web server, with headers."""

    body: bytes = b"a,y\n1,u\n"
    headers: Mapping[str, str] = {}
    query: str = ""


@contextmanager
def served(file: Served) -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(file.body)

        def do_HEAD(self) -> None:
            self.send_response(200 if self.path.endswith(file.query) else 403)
            for name, value in file.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(file.body)))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Source(f"http://127.0.0.1:{server.server_port}/t.csv")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ({"ETag": '"1"'}, {"ETag": '"2"'}, True),
        ({"ETag": '"1"', "Last-Modified": "Mon"}, {"ETag": '"1"', "Last-Modified": "Tue"}, False),
        ({"Last-Modified": "Mon"}, {"Last-Modified": "Tue"}, True),
        ({"Last-Modified": "Mon"}, {"Last-Modified": "Mon"}, False),
        ({}, {}, True),
    ],
)
def test_a_url_changes_with_its_etag_or_its_time_or_else_its_content(
    before, after, is_changed
) -> None:
    file = Served()
    file.headers = before
    with served(file) as source:
        known = source_states(source)
        assert known.data is not None
        assert source_states(source) == known
        file.headers, file.body = after, b"a,y\n1,v\n"
        assert changed(source, known) == ["data"] * is_changed
    assert source_states(source).lost_since(known) == ["data"]


def test_a_web_address_with_a_signature_is_read_and_shown_without(monkeypatch) -> None:
    file = Served()
    file.body, file.query = b"a,y\n1,u\n2,v\n3,\n", "?v=1&sig=geheim7"
    with served(file) as source:
        shown = without_signature(source.data + file.query)
        assert shown == source.data + "?v=1&sig=***"
        for url in (shown, source.data + file.query):
            with pytest.raises(BadInput, match=r"t\.csv\?v=1&sig=\*\*\*") as error:
                read_source(Source(url, "y"))
            assert "geheim7" not in str(error.value)
        dataset = read_source(Source(shown, "y", drop_missing_target=True))
        assert (dataset.name, len(dataset)) == ("t", 2)
        assert source_states(Source(shown)).data is not None
        monkeypatch.setattr(masking, "_SIGNED", {})  # as in another process
        with pytest.raises(BadInput, match="no file"):
            read_source(Source(shown, "y"))
