"""The package: its folders, its public names, and what importing it costs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source_tree import ROOMS, ROOT, listed_files


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
    top = {path.parts[0] for path in listed_files()}
    assert {name for name in top if not name.startswith(".")} == {
        *ROOMS, "tests", "pyproject.toml", "README.md", "LICENSE", "uv.lock"
    }  # fmt: skip


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
    [
        "tune",
        "retry",
        "compare",
        "Space",
        "Step",
        "Algorithm",
        "ArtifactStore",
        "local_server",
        "load_study",
        "PipelineSearch",
    ],
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

    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", prefect_tune.__version__)
