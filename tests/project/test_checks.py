"""Types, lint and import contracts, checked by their tools."""

import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

pytestmark = [pytest.mark.tools, pytest.mark.timeout(1200)]  # mypy without its cache is slow

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        "mypy",
        "mypy tests/typing",  # an ignore of a mistake that is not reported is an error
        f"pyright --pythonpath {sys.executable}",
        "ruff check .",
        "ruff format --check .",
        "lint-imports --no-cache --no-logo",
    ],
)
def test_type_checker_and_linters_find_no_errors(command: str) -> None:
    program, *arguments = command.split()
    subprocess.run([BIN / program, *arguments], cwd=ROOT, check=True)


def test_upward_import_is_reported(tmp_path) -> None:
    config = tmp_path / "contracts.toml"
    config.write_text(
        "[tool.importlinter]\nroot_packages = ['prefect_tune']\n"
        "[[tool.importlinter.contracts]]\nname = 'planted'\ntype = 'forbidden'\n"
        "source_modules = ['prefect_tune.flows']\nforbidden_modules = ['prefect_tune.tasks']\n"
    )
    command = [BIN / "lint-imports", "--no-cache", "--config", config]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"planted BROKEN" in done.stdout
