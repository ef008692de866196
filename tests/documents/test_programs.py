"""Every program of README and pages runs as written."""

import subprocess
import sys

import pytest
from command_line import CommandLine
from documents.inputs_of_documents import write_inputs
from documents.pages import programs
from processes import environment


@pytest.mark.full
@pytest.mark.parametrize("position", range(len(programs())))
def test_documented_programs_run_as_written(position, server, tmp_path) -> None:
    write_inputs(tmp_path)
    program = programs()[position]
    if "load_study(" in program or "model.pkl" in program:
        prefect_tune = CommandLine(tmp_path / "home")
        came = prefect_tune(
            "run", tmp_path / "patients.csv", "--target", "responder", "--drop", "patient",
            "--study", "responders", "--space", "small", "--trials", 1, "--workers", 1, "--quiet",
        )  # fmt: skip
        assert came.exit_code == 0, came.output
        assert prefect_tune("export", "responders", tmp_path / "model.pkl").exit_code == 0
    (tmp_path / "program.py").write_text(program)
    subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment(tmp_path / "home", server),
        timeout=240,
        check=True,
    )
