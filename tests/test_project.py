"""The project's own rules: imports, types, lint, packaging, doctests."""

import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("deployments", "flows", "optimizers", "storage", "tasks")
MODULES = sorted(
    "prefect_tune." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


def tool(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_imports_run_one_way() -> None:
    done = lint_imports()
    assert done.returncode == 0, done.stdout
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def lint_imports(*options: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--no-cache", "--no-logo", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


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


def test_types_are_checked_strictly() -> None:
    assert "no issues found" in tool("mypy")


def test_lint_and_format_are_clean() -> None:
    tool("ruff", "check", ".")
    tool("ruff", "format", "--check", ".")


def test_every_package_is_listed_and_typed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"prefect_tune": "deployments/package"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT)
            if folder != Path("deployments/package"):
                folders["prefect_tune." + ".".join(folder.parts)] = str(folder)
    assert sorted(settings["packages"]) == sorted(folders)
    assert settings["package-dir"] == folders
    assert all((ROOT / folder / "py.typed").exists() for folder in folders.values())


def test_the_top_level_holds_the_rooms_and_nothing_else() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        *ROOMS, "tests", "pyproject.toml", "README.md", "LICENSE", "uv.lock"
    }  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_modules_were_found() -> None:
    assert len(MODULES) > 50


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, prefect_tune; dir(prefect_tune); "
        "print(sorted({'prefect', 'numpy', 'sklearn', 'dask', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from prefect_tune.deployments.command import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'prefect', 'numpy', 'sklearn', 'dask', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "name",
    ["tune", "retry", "compare", "Space", "Step", "Algorithm", "ArtifactStore", "local_server"],
)
def test_public_names_are_there(name) -> None:
    import prefect_tune

    assert callable(getattr(prefect_tune, name))
    assert name in dir(prefect_tune)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    import prefect_tune

    with pytest.raises(AttributeError, match="no attribute 'tnue'"):
        prefect_tune.tnue  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    import prefect_tune

    assert re.fullmatch(r"\d+\.\d+\.\d+", prefect_tune.__version__)
