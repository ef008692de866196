"""Captured output of calls: complete, limited in memory, and without passwords."""

import os
from collections.abc import Iterator

import pytest
import sandbox_calls as calls
from sandbox_calls import Caller, called

from prefect_tune.tasks.sandbox import output as output_module
from prefect_tune.tasks.sandbox.output import Output
from prefect_tune.tasks.sandbox.sandbox import Sandbox, Sandboxes


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    sandboxes = Sandboxes()
    with sandboxes.taken(Caller()) as sandbox:
        yield sandbox
    sandboxes.close()


@pytest.mark.slow
def test_output_of_a_call_is_complete_and_excludes_earlier_calls(sandbox, capfd) -> None:
    address = "postgresql://me:word@host/db"
    parts = ("python\n", "python, without end|", "c, without end|", "descriptor\n", ": a warning")
    for _ in range(2):
        called(sandbox, calls.print_by_all_ways, words=f"my secret: {address}")
        text = sandbox.output.printed(["my secret"]).data.decode()
        assert [text.count(part) for part in parts] == [1] * len(parts)
        assert {"child", "error of child"} <= set(text.replace("|", "\n").splitlines())
        assert "***: postgresql://me:***@host/db" in text
        assert "word" not in text
    called(sandbox, calls.in_steps, names=[])
    assert sandbox.output.printed([]).data == b""
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_end_of_a_long_output_is_kept(sandbox) -> None:
    called(sandbox, calls.print_until_cut)
    printed = sandbox.output.printed([])
    assert printed.is_cut
    assert printed.data.startswith(b"line ")
    assert printed.data.endswith(b"line 799999\nend\n")
    assert 900_000 < len(printed.data) <= 1_000_000


def test_output_written_during_truncation_is_kept_in_order(monkeypatch, tmp_path) -> None:
    """An unnamed temporary file is used if the system has no in-memory files."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(output_module.tempfile, "tempdir", str(tmp_path))
    output = Output()
    for number in range(40):
        os.write(output.fileno(), b"%05d\n" % number * 50_000)
        output.cut()
    assert not list(tmp_path.iterdir())
    data = output.printed([]).data
    assert data == b"".join(b"%05d\n" % n * 50_000 for n in range(40))[-1_000_000:][-len(data) :]
    assert len(data) > 990_000
