"""What is published: sdist and wheel are complete, and work where nothing else is installed."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from mypy.modulefinder import FindModuleCache, SearchPaths, get_search_dirs
from mypy.options import Options
from processes import environment
from source_tree import ROOMS, ROOT, SOURCES, listed_files, module_name

UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
LEFT_OUT = (
    "deployments/demo", "deployments/install", "deployments/nights",
    "deployments/pipeline_search.ipynb",
)  # fmt: skip
"""Files of the rooms that are no part of the package, besides `deployments/docs`."""
NAMES = {module_name(path) for path in SOURCES if path.name not in ("__init__.py", "__main__.py")}
OF_EXTRAS = {name for name in NAMES if name.endswith((".xg_boost", ".cat_boost"))}
"""Modules that need an optional dependency."""

pytestmark = [pytest.mark.slow, pytest.mark.full]


def call(*command: object, folder: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the repository, so that nothing built before is taken for it."""
    folder = tmp_path_factory.mktemp("tree")
    for path in listed_files():
        if path.parts[0] not in ("tests", ".ci", "uv.lock"):
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path)
    return folder


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    call(UV, "build", "--quiet", "--out-dir", folder, folder=tree)  # and of it the wheel
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    return next(sdist.parent.glob("*.whl"))


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_every_file_of_the_rooms(wheel) -> None:
    expected = {
        str(Path("prefect_tune", *path.parts)).replace("deployments/package/", "")
        for path in listed_files()
        if path.parts[0] in ROOMS
        and not path.is_relative_to("deployments/docs")
        and str(path) not in LEFT_OUT
    }
    found = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert found == expected


def test_the_wheel_of_the_sdist_equals_the_wheel_of_the_tree(wheel, tree, tmp_path) -> None:
    call(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, folder=tree)
    assert contents(next(tmp_path.glob("*.whl"))) == contents(wheel)


def test_the_sdist_has_no_tests_and_no_caches(sdist) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(names)
    assert [name for name in names if "__pycache__" in name or name.startswith("tests/")] == []


def test_the_project_page_has_no_dead_link(wheel) -> None:
    """Links and pictures of the page at PyPI are absolute, and its markdown renders."""
    from readme_renderer.markdown import render

    text = next(t for name, t in contents(wheel).items() if name.endswith("/METADATA"))
    metadata = message_from_bytes(text)
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = render(metadata.get_payload(decode=True).decode())
    assert page
    links = re.findall(r'(?:href|src)="([^"#][^"]*)"', page)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory) -> Path:
    """An environment with the wheel and what it asks for, in the versions of the lock file."""
    folder = tmp_path_factory.mktemp("empty")
    locked = ("--locked", "--no-dev", "--no-emit-project", "--no-hashes")
    call(UV, "export", "--quiet", *locked, "--output-file", folder / "locked.txt")
    call(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    call(
        *(UV, "pip", "install", "--quiet", "--python", python),
        *("--constraints", folder / "locked.txt", wheel),
    )
    return python.parent


def test_pip_installs_the_tree(tree, tmp_path) -> None:
    """Without its dependencies: those of the same wheel are installed for `empty`."""
    call(UV, "venv", "--quiet", "--seed", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", ".", folder=tree)
    installed = call(python, "-c", "import prefect_tune as p; print(p.__file__)", folder=tmp_path)
    assert installed.startswith(str(tmp_path))


@pytest.mark.parametrize("installed", ["wheel", "editable"])
def test_mypy_finds_the_types_of_each_module(request, installed) -> None:
    python = request.getfixturevalue("empty") / "python" if installed == "wheel" else sys.executable
    libraries, packages = get_search_dirs(str(python))
    search = SearchPaths((), (), (*libraries, *packages), ())
    finder = FindModuleCache(search, fscache=None, options=Options())
    untyped = {name for name in NAMES if not isinstance(finder.find_module(name), str)}
    assert untyped == set()


def test_each_module_is_imported_where_nothing_else_is_installed(empty, tmp_path) -> None:
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    call(empty / "python", "-c", program, *sorted(NAMES - OF_EXTRAS), folder=tmp_path)


def test_the_wheel_works_where_nothing_else_is_installed(empty, tmp_path) -> None:
    def run(*command: str) -> Iterator[str]:
        program, *arguments = command
        done = subprocess.run(
            [empty / program, *arguments],
            cwd=tmp_path,
            env=environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield done.stdout
        yield done.stderr

    version = next(run("python", "-c", "import prefect_tune; print(prefect_tune.__version__)"))
    assert version.strip() in next(run("prefect-tune", "--version"))
    assert "fabolas" in next(run("prefect-tune", "methods"))
    study = ("sklearn:iris", "--space", "small", "--method", "random")
    shown, said = run("prefect-tune", "run", *study, "--trials", "1", "--workers", "1")
    assert "best: trial 0" in shown
    assert "Warning" not in said
