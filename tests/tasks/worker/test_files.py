"""Files that tell of a worker after its death: notes, printed output, the log of its starts."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.waiting import Waits
from prefect_tune.tasks.worker import start_log, trial_note
from prefect_tune.tasks.worker.output_keeper import (
    KEPT_BYTES,
    TailFile,
    is_being_written,
    read_tail,
    remove_tail,
    sweep_tails,
)
from prefect_tune.tasks.worker.start_log import LOG_VARIABLE, log_path, log_size, log_text
from prefect_tune.tasks.worker.trial_note import (
    PLACE_BYTES,
    NoteFile,
    WorkerUnfit,
    loading_noted,
    note_path,
    note_step,
    note_waits,
    own_seconds,
    read_note,
    read_text,
    trial_noted,
)

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
    for end in range(at - trial_note._HEADER.size, at + len("third")):
        note.path.write_bytes(content[:end] + b"\xff" + content[end + 1 :])
        assert read_text(note.path) == "second"


def test_a_text_that_does_not_fit_is_refused_and_the_former_stays(tmp_path) -> None:
    note = NoteFile(tmp_path / "note")
    note.write("former")
    with pytest.raises(ValueError, match="exceeds"):
        note.write(PLACE_BYTES * "x")
    assert read_text(note.path) == "former"


@pytest.mark.slow
def test_files_of_writers_that_were_killed_long_ago_are_swept_and_no_others(tmp_path) -> None:
    of_living, of_killed, fresh = (tmp_path / f"{name}.note" for name in ("a", "b", "c"))
    note = NoteFile(of_living)
    make = "import os, sys; from pathlib import Path\n"
    make += "from prefect_tune.tasks.worker.trial_note import NoteFile\n"
    make += "notes = [NoteFile(Path(path)) for path in sys.argv[1:]]; os._exit(0)"
    command = [sys.executable, "-c", make, str(of_killed), str(fresh)]
    subprocess.run(command, check=True)
    for path in (of_living, of_killed):
        os.utime(path, (0, 0))
    sweep_tails(tmp_path, "*.note")
    assert set(tmp_path.iterdir()) == {of_living, fresh}
    note.remove()


def _write_many(path: Path) -> None:
    note = NoteFile(path)
    for number in range(3_000):
        note.write(json.dumps({"number": number, "rest": number % 7 * 999 * "x"}))
    os._exit(0)


@pytest.mark.slow
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
    assert n_seen  # a slow machine may read rarely
    assert json.loads(read_text(path) or "")["number"] == 2_999


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_no_block_can_be_had_no_file_is_left(tmp_path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from prefect_tune.tasks.worker.trial_note import NoteFile, PLACE_BYTES\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (PLACE_BYTES, PLACE_BYTES))\n"
        "NoteFile(Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "note")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert not (tmp_path / "note").exists()


def lines(count: int) -> bytes:
    return b"".join(b"line %06d\n" % i for i in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("piece", [1000, 65536, 3_000_000])
def test_the_end_is_kept_in_bounded_space(tmp_path: Path, piece: int) -> None:
    path, data = tmp_path / "tail", lines(300_000)
    file = TailFile(path)
    for start in range(0, len(data), piece):
        file.write(data[start : start + piece])
        assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 2 * KEPT_BYTES
    kept, is_cut = read_tail(path)
    assert is_cut is True
    assert data.endswith(kept)
    assert kept.startswith(b"line ")
    assert KEPT_BYTES - 20 < len(kept) <= KEPT_BYTES
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}
    file.close()
    remove_tail(path)
    assert not list(tmp_path.iterdir())


def test_what_fits_is_whole(tmp_path: Path) -> None:
    file = TailFile(tmp_path / "tail")
    file.write(b"first\n")
    file.close()
    TailFile(tmp_path / "tail").write(b"second")
    assert read_tail(tmp_path / "tail") == (b"first\nsecond", False)
    assert read_tail(tmp_path / "none") == (b"", False)


def test_readers_see_whether_more_may_come(tmp_path: Path) -> None:
    path = tmp_path / "tail"
    assert not is_being_written(path)
    file = TailFile(path)
    assert is_being_written(path)
    file.write(b"x" * KEPT_BYTES)
    file.write(b"y")
    assert is_being_written(path)
    file.close()
    assert not is_being_written(path)


def test_old_files_are_swept_unless_they_are_written(tmp_path: Path) -> None:
    left, open_, new = (tmp_path / f"{name}.output" for name in ("left", "open", "new"))
    files = [TailFile(path) for path in (left, open_, new)]
    files[0].close()
    files[2].close()
    for path in (left, open_):
        os.utime(path, (0, 0))
    sweep_tails(tmp_path, "*.output*")
    assert {p.name for p in tmp_path.iterdir()} == {"open.output", "new.output"}


SERVED = StepCost("impute", 2, 30.0, 0.25, hit=True, key="a" * 64)


class Run:
    id = "trial"
    flow_run_id = "flow run"


@pytest.fixture
def worker(tmp_path, monkeypatch) -> SimpleNamespace:
    """The worker that runs this test as its trial."""
    worker = SimpleNamespace(address="tcp://w", local_directory=str(tmp_path / "worker"))
    context = SimpleNamespace(get=lambda: SimpleNamespace(task_run=Run))
    monkeypatch.setattr(trial_note, "this_worker", lambda: worker)
    monkeypatch.setattr(trial_note, "TaskRunContext", context)
    monkeypatch.setattr(trial_note, "lead_group", lambda: None)
    trial_note._note_file.cache_clear()
    return worker


def test_the_note_of_a_trial_goes_with_it(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    for step in ("rescale", "fit model"):
        with trial_noted():
            note_step(step, 0)
            note = read_note(path)
            assert (note["trial"], note["flow_run"], note["step"]) == ("trial", "flow run", step)
        assert read_note(path) == {}


def test_waits_while_the_data_is_loaded_do_not_count_after_it(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    with trial_noted():
        with loading_noted():
            assert read_note(path)["is_loading"]
            note_waits(Waits(note_waits, seconds=1000.0))
        assert not read_note(path)["is_loading"]
        assert own_seconds(read_note(path)) >= 0
        note_waits(Waits(note_waits, seconds=1500.0))
        assert own_seconds(read_note(path)) < 0


def test_a_trial_that_cannot_be_noted_does_not_start(worker) -> None:
    worker.local_directory = "/proc/no folder/worker"
    with pytest.raises(WorkerUnfit, match=r"tcp://w.*/proc"), trial_noted():
        pytest.fail("it has started")


def test_steps_that_cannot_be_noted_leave_the_note_of_their_trial(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    with trial_noted():
        note_step(PLACE_BYTES * "long", 0)
        assert read_note(path)["trial"] == "trial"


def test_of_many_steps_the_last_are_noted(worker) -> None:
    path = note_path(worker.local_directory, os.getpid())
    costs = [replace(SERVED, fold=fold) for fold in range(10_000)]
    with trial_noted():
        note_step("rescale", 0, lambda: costs)
        steps = read_note(path)["steps"]
    assert steps[-1]["fold"] == 9_999
    assert len(steps) > 100


def test_a_note_that_cannot_be_taken_back_is_removed(worker, monkeypatch) -> None:
    path = note_path(worker.local_directory, os.getpid())
    with trial_noted():
        monkeypatch.setattr(NoteFile, "_place", refused)
    assert not path.exists()
    monkeypatch.undo()


def refused(*_: object) -> None:
    raise OSError(28, "No space left on device")


PROGRAM = """
import os, sys
from prefect_tune.tasks.worker.start_log import begin_log, dask_setup
begin_log()
begin_log()  # does nothing
os.write(2, b"as it started\\n")
dask_setup(None)
dask_setup(None)
os.write(2, b"once it was up\\n")
"""


def test_there_is_no_text_without_a_log(tmp_path) -> None:
    assert (log_size(tmp_path), log_text(tmp_path, 0)) == (0, "")


def test_the_output_of_a_start_excludes_earlier_starts(tmp_path) -> None:
    log_path(tmp_path).write_text("an earlier start\n")
    since = log_size(tmp_path)
    assert log_text(tmp_path, since) == ""
    with log_path(tmp_path).open("a") as log:
        log.write("Traceback:\n\n   MemoryError  \n")
    assert log_text(tmp_path, since) == "Traceback: | MemoryError"


def test_of_much_text_the_last_lines_are_returned(tmp_path) -> None:
    log_path(tmp_path).write_text("".join(f"line {n}\n" for n in range(1000)))
    assert log_text(tmp_path, 0) == " | ".join(f"line {n}" for n in range(995, 1000))
    log_path(tmp_path).write_text("x" * 10_000 + "end")
    text = log_text(tmp_path, 0)
    assert (len(text), text[-4:]) == (start_log._MOST_BYTES, "xend")


def test_text_that_is_not_utf_8_is_returned(tmp_path) -> None:
    log_path(tmp_path).write_bytes(b"caf\xe9\n")
    assert log_text(tmp_path, 0) == "caf�"


@pytest.mark.slow
@pytest.mark.parametrize("folder", [".", None, "missing"], ids=["log", "no log", "no folder"])
def test_standard_error_goes_to_a_log_that_can_be_opened_until_the_worker_is_up(
    tmp_path, folder
) -> None:
    variables = {} if folder is None else {LOG_VARIABLE: str(log_path(tmp_path / folder))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    has_log = folder == "."
    assert log_text(tmp_path, 0) == ("as it started" if has_log else "")
    printed = "once it was up\n"
    assert done.stderr == (printed if has_log else f"as it started\n{printed}")
