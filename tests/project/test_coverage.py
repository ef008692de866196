"""`--cov` finds product code by its place in the repository, in processes that tests start too."""

import json
import os
import subprocess
import sys

import pytest
from source_tree import ROOT

SETTINGS = f"--rcfile={ROOT / 'pyproject.toml'}"
PROGRAM = """
import subprocess, sys
import prefect_tune.optimizers.budget
program = "import prefect_tune.flows.wording.text"
subprocess.run([sys.executable, "-c", program], cwd="/", check=True)
"""


@pytest.mark.slow
def test_modules_of_a_process_and_of_one_that_it_starts_are_measured(tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    for command in (
        ("run", SETTINGS, tmp_path / "program.py"),
        ("combine", "--quiet", SETTINGS),
        ("json", "--quiet", SETTINGS, "--include=*/budget.py,*/text.py", "-o", tmp_path / "out"),
    ):
        subprocess.run(
            [sys.executable, "-m", "coverage", *command],
            cwd=ROOT,
            env={**variables, "COVERAGE_FILE": str(tmp_path / ".coverage")},
            check=True,
        )
    measured = json.loads((tmp_path / "out").read_text())
    assert measured["meta"]["branch_coverage"]
    ran = {file for file, of in measured["files"].items() if of["summary"]["covered_lines"]}
    assert {"optimizers/budget.py", "flows/wording/text.py"} <= ran
