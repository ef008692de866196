"""Types, lint and import contracts, as their tools check them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

pytestmark = pytest.mark.tools


def tool(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_types_are_checked_strictly() -> None:
    assert "no issues found" in tool("mypy")


TYPING = ROOT / "tests" / "typing"


def test_users_programs_have_the_types_that_they_rely_on() -> None:
    """In `tests/typing`: an ignore of a mistake that a checker does not report is an error."""
    assert "no issues found" in tool("mypy", str(TYPING))
    assert "0 errors" in tool("pyright", "--pythonpath", sys.executable)


def test_lint_and_format_are_clean() -> None:
    tool("ruff", "check", ".")
    tool("ruff", "format", "--check", ".")


def lint_imports(*options: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--no-cache", "--no-logo", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_run_one_way() -> None:
    done = lint_imports()
    assert done.returncode == 0, done.stdout
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def test_an_import_upward_would_be_seen(tmp_path) -> None:
    """The control of the test above: a contract that is broken on purpose."""
    config = tmp_path / "contracts.toml"
    config.write_text(
        "[tool.importlinter]\nroot_packages = ['prefect_tune']\n"
        "[[tool.importlinter.contracts]]\nname = 'planted'\ntype = 'forbidden'\n"
        "source_modules = ['prefect_tune.flows']\nforbidden_modules = ['prefect_tune.tasks']\n"
    )
    done = lint_imports("--config", str(config))
    assert done.returncode == 1
    assert "planted BROKEN" in done.stdout


def test_a_loop_would_be_seen_though_one_import_is_lazy(tmp_path) -> None:
    room = tmp_path / "planted"
    room.mkdir()
    for name, text in {
        "__init__": "",
        "store": "import planted.signing",
        "signing": "def key():\n    import planted.blocks",
        "blocks": "import planted.store",
    }.items():
        (room / f"{name}.py").write_text(text)
    config = tmp_path / "contracts.toml"
    config.write_text(
        "[tool.importlinter]\nroot_packages = ['planted']\n"
        "[[tool.importlinter.contracts]]\nname = 'loops'\ntype = 'acyclic_siblings'\n"
        "ancestors = ['planted']\n"
    )
    done = lint_imports("--config", str(config), folder=tmp_path)
    assert done.returncode == 1
    assert "loops BROKEN" in done.stdout
