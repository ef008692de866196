"""The package: folders, public names, and the cost of importing it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source_tree import ROOMS, ROOT, listed_files

import prefect_tune
from prefect_tune.deployments.server.prefect_settings import server_environment


def test_every_package_is_listed_and_typed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        init.parent.relative_to(ROOT)
        for room in ROOMS
        for init in (ROOT / room).rglob("__init__.py")
    }
    packages = {".".join(("prefect_tune", *folder.parts)) for folder in folders}
    packages |= {"prefect_tune"}
    packages -= {"prefect_tune.deployments.package"}
    assert sorted(settings["packages"]) == sorted(packages)
    assert (ROOT / "deployments" / "package" / "py.typed").exists()


@pytest.mark.tools
def test_top_level_has_only_product_packages_tests_and_project_files() -> None:
    top = {path.parts[0] for path in listed_files()}
    files = {"pyproject.toml", "README.md", "LICENSE", "uv.lock"}
    assert {name for name in top if not name.startswith(".")} == {*ROOMS, "tests", *files}


@pytest.mark.tools
def test_package_and_help_import_nothing_heavy() -> None:
    program = (
        "import sys, prefect_tune; dir(prefect_tune)\n"
        "from prefect_tune.deployments.cli.command import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "import prefect_tune.deployments.server.embedded\n"  # nor does the start of the server
        "heavy = {'prefect', 'numpy', 'sklearn', 'dask', 'pandas', 'sqlalchemy', 'fsspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.endswith("[]\n")


@pytest.mark.tools
def test_neither_client_nor_private_server_of_prefect_reports_usage() -> None:
    program = (
        "import prefect_tune\n"
        "from prefect._internal.analytics import is_telemetry_enabled\n"
        "print(is_telemetry_enabled())"
    )
    own = {k: v for k, v in os.environ.items() if k not in ("DO_NOT_TRACK", "CI")}
    assert subprocess.check_output([sys.executable, "-c", program], env=own) == b"False\n"
    assert server_environment(Path())["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_public_names_exist_and_unknown_names_raise_attribute_errors() -> None:
    names = {"tune", "compare", "retry", "load_study", "load_champion", "local_server"}
    names |= {"PipelineSearch", "ArtifactStore", "Space", "Step", "Algorithm"}
    assert names <= set(dir(prefect_tune))
    assert all(callable(getattr(prefect_tune, name)) for name in names)
    with pytest.raises(AttributeError):
        prefect_tune.tnue  # noqa: B018
