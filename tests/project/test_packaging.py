"""The package: its folders, its public names, and what importing it costs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source_tree import ROOMS, ROOT, listed_files

pytestmark = pytest.mark.tools


def test_every_package_is_listed_and_the_top_one_says_that_all_are_typed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {"prefect_tune"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT)
            if folder != Path("deployments/package"):
                packages.add("prefect_tune." + ".".join(folder.parts))
    assert sorted(settings["packages"]) == sorted(packages)
    rooms = {f"prefect_tune.{room}": room for room in ROOMS}
    assert settings["package-dir"] == {"prefect_tune": "deployments/package"} | rooms
    assert [p for p in listed_files() if p.name == "py.typed"] == [
        Path("deployments/package/py.typed")
    ]


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
        "import sys; from prefect_tune.deployments.cli.command import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "import prefect_tune.deployments.server.embedded\n"  # nor does the start of the server
        "heavy = {'prefect', 'numpy', 'sklearn', 'dask', 'pandas', 'sqlalchemy', 'fsspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
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
        "load_champion",
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


def test_the_version_equals_the_distributions() -> None:
    import prefect_tune

    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", prefect_tune.__version__)
