"""Published files: sdist and wheel are complete, and work in an empty environment."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from processes import environment
from source_tree import ROOMS, ROOT, SOURCES, copy_tree, listed_files, module_name

UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
NOT_IN_WHEEL = {
    "deployments/demo", "deployments/install", "deployments/nights",
    "deployments/pipeline_search.ipynb",
}  # fmt: skip
"""Files of the rooms that are no part of the package, besides `deployments/docs`."""
NAMES = {module_name(path) for path in SOURCES if path.name not in ("__init__.py", "__main__.py")}
OF_EXTRAS = {name for name in NAMES if name.endswith((".xg_boost", ".cat_boost"))}
"""Modules that need an optional dependency."""

pytestmark = [pytest.mark.slow, pytest.mark.full]


def call(*command: object, folder: Path = ROOT, **options: object) -> str:
    """Return the output of a command."""
    words = [str(word) for word in command]
    return subprocess.check_output(words, cwd=folder, text=True, timeout=280, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the repository without built files."""
    return copy_tree(tmp_path_factory.mktemp("tree"), skipped=("tests", ".ci", "uv.lock"))


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory) -> Path:
    """The wheel built from the sdist, in the same folder."""
    folder = tmp_path_factory.mktemp("dist")
    call(UV, "build", "--quiet", "--out-dir", folder, folder=tree)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory) -> Path:
    """The programs of an environment with the wheel and its locked dependencies."""
    folder = tmp_path_factory.mktemp("empty")
    locked = ("--locked", "--no-dev", "--no-emit-project", "--no-hashes")
    call(UV, "export", "--quiet", *locked, "--output-file", folder / "locked.txt")
    call(UV, "venv", "--quiet", "--seed", "--python", sys.executable, folder / "venv")
    programs = folder / "venv" / "bin"
    install = (UV, "pip", "install", "--quiet", "--python", programs / "python")
    call(*install, "--constraints", folder / "locked.txt", wheel)
    return programs


def test_wheel_has_every_file_of_the_product_and_the_sdist_no_tests(wheel) -> None:
    expected = {
        str(Path("prefect_tune", *path.parts)).replace("deployments/package/", "")
        for path in listed_files()
        if path.parts[0] in ROOMS
        and not path.is_relative_to("deployments/docs")
        and str(path) not in NOT_IN_WHEEL
    }
    with ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(names)
    assert [name for name in names if "__pycache__" in name or name.startswith("tests/")] == []


def test_each_module_can_be_imported_in_an_empty_environment(empty, tmp_path) -> None:
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    call(empty / "python", "-c", program, *sorted(NAMES - OF_EXTRAS), folder=tmp_path)


def test_wheel_works_in_an_empty_environment(empty, tmp_path) -> None:
    command, own = empty / "prefect-tune", {"env": environment(tmp_path / "home")}
    ask = "import prefect_tune; print(prefect_tune.__version__)"
    version = call(empty / "python", "-c", ask, folder=tmp_path)
    assert version.strip() in call(command, "--version", folder=tmp_path)
    study = ("sklearn:iris", "--space", "small", "--method", "random", "--trials", "1")
    shown = call(command, "run", *study, "--workers", "1", folder=tmp_path, **own)
    assert "best: trial 0" in shown


def test_pip_installs_the_source_tree(empty, tree, tmp_path) -> None:
    call(empty / "python", "-m", "pip", "install", "-q", "--no-deps", ".", folder=tree)
    ask = "import prefect_tune as p; print(p.__file__)"
    installed = call(empty / "python", "-c", ask, folder=tmp_path)
    assert installed.startswith(str(empty.parent))
