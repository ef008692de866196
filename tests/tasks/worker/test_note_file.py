"""A text that is read whole or not at all, also when the disk is full."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prefect_tune.tasks.worker import trial_note as note_file
from prefect_tune.tasks.worker.trial_note import PLACE_BYTES, NoteFile, read_text

FULL = """
import errno, os, sys
from pathlib import Path
from prefect_tune.tasks.worker.trial_note import NoteFile, read_text

folder = Path(sys.argv[1])
note = NoteFile(folder / "made before")
note.write("first")
with (folder / "rest").open("wb", buffering=0) as rest:
    try:
        while True:
            rest.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
for number in range(5):
    note.write(f"{number} " + 60_000 * "x")
    assert read_text(note.path).startswith(f"{number} ")
try:
    NoteFile(folder / "made after")
except OSError as error:
    assert error.errno == errno.ENOSPC
else:
    raise AssertionError("a file was made on a full disk")
assert not (folder / "made after").exists()
"""


def test_the_newest_text_is_read(tmp_path) -> None:
    note = NoteFile(tmp_path / "note")
    assert read_text(note.path) is None
    for text in ("a", "longer than that", "", "é"):
        note.write(text)
        assert read_text(note.path) == text
    note.remove()
    assert read_text(note.path) is None


def test_of_a_half_written_text_the_one_before_is_read(tmp_path) -> None:
    note = NoteFile(tmp_path / "note")
    for text in ("first", "second", "third"):
        note.write(text)
    content = note.path.read_bytes()
    at = content.index(b"third")
    for end in range(at - note_file._HEADER.size, at + len("third")):
        note.path.write_bytes(content[:end] + b"\xff" + content[end + 1 :])
        assert read_text(note.path) == "second"


def test_a_text_that_does_not_fit_is_refused_and_the_former_stays(tmp_path) -> None:
    note = NoteFile(tmp_path / "note")
    note.write("former")
    with pytest.raises(ValueError, match="do not fit"):
        note.write(PLACE_BYTES * "x")
    assert read_text(note.path) == "former"


def test_files_of_writers_that_were_killed_long_ago_are_swept_and_no_others(tmp_path) -> None:
    of_living, of_killed, fresh = (tmp_path / f"{name}.note" for name in ("a", "b", "c"))
    note = NoteFile(of_living)
    make = "import os, sys; from pathlib import Path\n"
    make += "from prefect_tune.tasks.worker.trial_note import NoteFile\n"
    make += "NoteFile(Path(sys.argv[1])); os._exit(0)"
    for path in (of_killed, fresh):
        subprocess.run([sys.executable, "-c", make, str(path)], check=True)
    for path in (of_living, of_killed):
        os.utime(path, (0, 0))
    note_file.sweep(tmp_path, "*.note")
    assert set(tmp_path.iterdir()) == {of_living, fresh}
    note.remove()


def _write_many(path: Path) -> None:
    note = NoteFile(path)
    for number in range(20_000):
        note.write(json.dumps({"number": number, "rest": number % 7 * 999 * "x"}))
    os._exit(0)


def test_a_reader_never_sees_no_text_while_another_process_writes(tmp_path) -> None:
    path = tmp_path / "note"
    writer = multiprocessing.get_context("spawn").Process(target=_write_many, args=(path,))
    writer.start()
    last, n_seen = -1, 0
    while writer.is_alive():
        text = read_text(path)
        assert text is not None or last == -1
        if text is not None:
            number = json.loads(text)["number"]
            n_seen += number != last
            last = number
    assert n_seen > 10
    assert json.loads(read_text(path) or "")["number"] == 19_999


def test_a_full_disk_stops_no_text_and_lets_no_file_be_made(tmp_path) -> None:
    script = f'mount -t tmpfs -o size=1m none "$1" && exec {sys.executable} -c "$2" "$1"'
    privately = [] if os.geteuid() == 0 else ["--map-root-user"]
    unshare = ["unshare", "--mount", *privately]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", str(tmp_path), FULL],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_where_no_block_can_be_had_no_file_is_left(tmp_path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from prefect_tune.tasks.worker.trial_note import NoteFile, PLACE_BYTES\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (PLACE_BYTES, PLACE_BYTES))\n"
        "NoteFile(Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "note")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "File too large" in done.stderr
    assert not (tmp_path / "note").exists()
