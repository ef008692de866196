"""Files that keep the end of what is written to them."""

import os
from pathlib import Path

import pytest

from prefect_tune.tasks.worker.output_keeper import (
    KEPT_BYTES,
    TailFile,
    is_being_written,
    read_tail,
    remove_tail,
    sweep_tails,
)


def lines(count: int) -> bytes:
    return b"".join(b"line %06d\n" % i for i in range(count))


@pytest.mark.parametrize("piece", [7, 4096, 65536, 3_000_000])
def test_the_end_is_kept_in_bounded_space(tmp_path: Path, piece: int) -> None:
    path, data = tmp_path / "tail", lines(300_000 if piece > 7 else 150_000)
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


def test_a_line_without_end_is_kept(tmp_path: Path) -> None:
    file = TailFile(tmp_path / "tail")
    for _ in range(30):
        file.write(b"." * 100_000)
    file.write(b"\n")
    assert len(read_tail(tmp_path / "tail")[0]) == KEPT_BYTES


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
