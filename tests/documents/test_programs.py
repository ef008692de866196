"""Every program of README and of the pages runs as it stands there."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from documents.inputs_of_documents import write_inputs
from documents.pages import DOCUMENTS, files, programs
from processes import environment

from prefect_tune.tasks.user_space import find_space


def search_responders(folder: Path) -> None:
    """Run the study that README begins with."""
    came = CommandLine(folder / "home")(
        "run", folder / "patients.csv", "--target", "responder", "--drop", "patient", "--study",
        "responders", "--space", "small", "--trials", 1, "--workers", 1, "--quiet",
    )  # fmt: skip
    assert came.exit_code == 0, came.output


@pytest.mark.full
@pytest.mark.parametrize("position", range(len(programs())))
def test_programs_run_as_they_stand(position, server, tmp_path) -> None:
    write_inputs(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(programs()[position])
    if "load_study(" in programs()[position]:
        search_responders(tmp_path)
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=environment(tmp_path / "home", server),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_space_of_the_pages_can_be_used(tmp_path) -> None:
    (tmp_path / "my_space.py").write_text(files(*DOCUMENTS)["my_space.py"])
    space, _ = find_space(f"{tmp_path / 'my_space.py'}:space")
    assert space.n_paths == 2
