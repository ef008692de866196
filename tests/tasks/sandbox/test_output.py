"""What a call prints: from everywhere, its end, in bounded memory, without passwords."""

import os
from collections.abc import Iterator

import pytest
import sandbox_calls as calls
from processes import run_python
from sandbox_calls import Caller, begun, called, value_of

from prefect_tune.tasks.sandbox import output as output_module
from prefect_tune.tasks.sandbox.output import Output
from prefect_tune.tasks.sandbox.sandbox import CallEnded, Sandbox, Sandboxes

pytestmark = pytest.mark.slow


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    sandboxes = Sandboxes()
    with sandboxes.taken(Caller()) as sandbox:
        yield sandbox
    sandboxes.close()


def test_all_that_a_call_prints_is_kept_and_nothing_of_the_call_before(sandbox, capfd) -> None:
    address = "postgresql://me:word@host/db"
    for _ in range(2):
        called(sandbox, calls.print_by_all_ways, words=f"my secret: {address}")
        text = sandbox.output.printed(["my secret"]).data.decode()
        parts = ("python\n", "python, without end|", "c, without end|", "child", "error of child")
        assert [text.count(part) for part in (*parts, "descriptor\n", ": a warning")] == [
            1,
            1,
            1,
            2,
            1,
            1,
            1,
        ]
        assert "***: postgresql://me:***@host/db" in text
        assert "word" not in text
    called(sandbox, calls.pause, seconds=0)
    assert sandbox.output.printed([]).data == b""
    assert capfd.readouterr() == ("", "")


def test_what_was_printed_before_a_kill_is_kept(sandbox, tmp_path) -> None:
    with pytest.raises(CallEnded):
        called(sandbox, calls.end_once, context=None, folder=tmp_path, times=1)
    assert sandbox.output.printed([]).data == b"attempt 1\n"


def test_of_two_gigabytes_the_end_is_kept(sandbox) -> None:
    sizes = []

    class Measuring(Caller):
        def observe(self, seen: object) -> None:  # noqa: ARG002
            sizes.append(os.fstat(sandbox.output.fileno()).st_blocks * 512)

    value_of(begun(sandbox, calls.print_much, None, Measuring(), n_bytes=2 * 10**9))
    printed = sandbox.output.printed([])
    assert printed.is_cut
    assert printed.data.startswith(b"line ")
    assert printed.data.endswith(b"line 099999\nend\n")
    assert 900_000 < len(printed.data) <= 1_000_000
    assert len(sizes) < 5 or sum(size < 5 * 10**8 for size in sizes) > len(sizes) / 2


def test_what_is_printed_between_cuts_is_kept_in_order() -> None:
    output = Output()
    for number in range(40):
        os.write(output.fileno(), b"%05d\n" % number * 50_000)
        output.cut()
    data = output.printed([]).data
    assert data == b"".join(b"%05d\n" % n * 50_000 for n in range(40))[-1_000_000:][-len(data) :]
    assert len(data) > 990_000


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_a_file_of_output_has_no_name(monkeypatch, tmp_path, has_memory_files) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(output_module.tempfile, "tempdir", str(tmp_path))
    output = Output()
    os.write(output.fileno(), b"printed")
    assert output.printed([]).data == b"printed"
    assert not list(tmp_path.iterdir())


CLOSED = """
import os, sys
from prefect_tune.tasks.sandbox.output import buffer_lines, flush_streams, open_streams
for number in (0, 1, 2):
    os.close(number)
sys.stdout.close()
sys.stderr = None
open_streams()
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
buffer_lines()
print("nowhere", flush=True)
print("nowhere", file=sys.stderr, flush=True)
flush_streams()
os.write(file, str(os.fstat(file).st_size).encode())
"""


def test_prints_to_closed_streams_go_to_no_other_file(tmp_path) -> None:
    run_python(CLOSED, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "0"
