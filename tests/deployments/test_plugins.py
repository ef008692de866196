"""An installed distribution brings a method, a metric, a space and a format."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from external_clusters import external_cluster
from inputs import table
from plugin_distribution import install

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.usefixtures("server")]

NAMES = {"method": "stroll", "metric": "cost", "space": "tiny", "format": "semicolons"}


def prefect_tune(extras: Path, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The real command, with a distribution on the path of all its processes."""
    variables = {**os.environ, "PYTHONPATH": str(extras), "PREFECT_TUNE_HOME": str(home)}
    command = [sys.executable, "-m", "prefect_tune.deployments", *map(str, words)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def study(tmp_path) -> list[object]:
    """The words of a run that uses all four."""
    table().to_csv(tmp_path / "data.semi", sep=";", index=False)
    chosen = [word for kind in ("method", "metric", "space") for word in (f"--{kind}", NAMES[kind])]
    where = ["run", tmp_path / "data.semi", "--target", "target", "--study", "s"]
    return [*where, *chosen, "--option", "first=1"]


@pytest.fixture
def extras(tmp_path) -> Path:
    """The distribution, installed."""
    return install(tmp_path / "extras")


def shown(extras: Path, home: Path) -> Any:
    return json.loads(prefect_tune(extras, home, "show", "s", "--json").stdout)


def assert_refused(ran: subprocess.CompletedProcess[str], *named: str) -> None:
    assert ran.returncode == 2
    assert all(part in ran.stderr for part in ("tune-extras", "==1.0", *named))


def test_a_study_uses_all_that_a_distribution_declares(extras, study, tmp_path) -> None:
    home = tmp_path / "home"
    ran = prefect_tune(extras, home, *study, "--trials", 1, "--workers", 1)
    assert ran.returncode == 0, ran.stderr
    told = prefect_tune(extras, home, "show", "s").stdout
    assert "strolled to path 1" in told
    assert " EUR" in told
    summary = shown(extras, home)
    assert (summary["n_failed"], summary["decisions"]) == (0, {"reached": 1})
    assert {plugin["kind"]: plugin["name"] for plugin in summary["plugins"]} == NAMES

    again = [*study, "--trials", 2, "--workers", 1]
    assert_refused(prefect_tune(install(tmp_path / "other", "1.1"), home, *again), "1.1")
    bare = tmp_path / "nowhere"
    assert "tune-extras 1.0" in prefect_tune(bare, home, "show", "s").stdout
    for words in (study[:6], again):  # named by the study alone, and by options
        assert_refused(prefect_tune(bare, home, *words))
    assert prefect_tune(extras, home, *again).returncode == 0
    assert shown(extras, home)["n_trials"] == 2


def test_a_worker_with_another_version_is_refused(extras, study, tmp_path) -> None:
    home, other = tmp_path / "home", install(tmp_path / "other", "1.1")
    variables = {"PYTHONPATH": str(other), "PREFECT_TUNE_HOME": str(home)}
    with external_cluster(tmp_path / "dask", **variables) as external:
        external.start_worker()
        ran = prefect_tune(extras, home, *study, "--trials", 1, "--dask", external.address)
    assert_refused(ran, "worker tcp", "1.1")
