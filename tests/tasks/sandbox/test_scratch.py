"""The folder for temporary files of a process: private, and removed with the process."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from other_user import NOBODY, run_as_other_user
from processes import kill

from prefect_tune.storage.local_files import make_own

pytestmark = pytest.mark.slow

PROGRAM = (
    "from prefect_tune.tasks.sandbox.zygote import scratch_folder\n"
    "print(scratch_folder(), flush=True)\n"
)


def start(tmp: Path, rest: str = "input()") -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + rest], env={**os.environ, "TMPDIR": str(tmp)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process, Path(process.stdout.readline().strip())  # type: ignore[union-attr]


def test_scratch_folder_is_private_and_removed_even_after_a_kill(tmp_path) -> None:
    killed, left = start(tmp_path)
    running, used = start(tmp_path)
    assert {p.stat().st_mode & 0o777 for p in (left, left.parent, used)} == {0o700}
    kill(killed.pid)
    killed.communicate()
    assert left.is_dir()
    other, its = start(tmp_path, "")
    other.communicate()
    assert [folder.exists() for folder in (left, its, used)] == [False, False, True]
    running.communicate("\n")
    assert not used.exists()
    left.parent.chmod(0o755)
    make_own(left.parent)
    assert left.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_folder_created_first_by_another_user_is_refused() -> None:
    with tempfile.TemporaryDirectory() as everyone:
        Path(everyone).chmod(0o777)
        folder, link = Path(everyone, "folder"), Path(everyone, "link")
        body = "os.mkdir(sys.argv[1]); os.symlink('/root', sys.argv[2])"
        run_as_other_user("import sys, os", body, folder, link)
        assert folder.stat().st_uid == NOBODY
        for path in (folder, link):
            with pytest.raises(PermissionError, match="your own folder"):
                make_own(path)
