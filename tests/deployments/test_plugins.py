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

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("server")]

NAMES = {"method": "stroll", "metric": "cost", "space": "tiny", "format": "semicolons"}


def prefect_tune(extras: Path, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The real command, with a distribution on the path of all its processes."""
    variables = {**os.environ, "PYTHONPATH": str(extras), "PREFECT_TUNE_HOME": str(home)}
    command = [sys.executable, "-m", "prefect_tune.deployments", *map(str, words)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def run_words(folder: Path, *more: object) -> list[object]:
    data = folder / "data.semi"
    if not data.exists():
        table().to_csv(data, sep=";", index=False)
    chosen = [word for kind in ("method", "metric", "space") for word in (f"--{kind}", NAMES[kind])]
    return ["run", data, "--target", "target", *chosen, "--study", "s", *more]


@pytest.fixture
def extras(tmp_path) -> Path:
    """The distribution, installed."""
    return install(tmp_path / "extras")


def shown(extras: Path, home: Path) -> Any:
    return json.loads(prefect_tune(extras, home, "show", "s", "--json").stdout)


@pytest.mark.full
def test_a_study_uses_all_that_a_distribution_declares(extras, tmp_path) -> None:
    home = tmp_path / "home"
    ran = prefect_tune(extras, home, *run_words(tmp_path, "--trials", 2, "--workers", 1))
    assert ran.returncode == 0, ran.stderr
    assert "as a table of semicolons" in ran.stderr + ran.stdout
    told = prefect_tune(extras, home, "show", "s").stdout
    assert "strolled to path 1" in told
    assert " EUR" in told
    assert all(f"plugin: {kind} {name} of tune-extras 1.0" in told for kind, name in NAMES.items())
    summary = shown(extras, home)
    assert summary["n_failed"] == 0
    assert {plugin["kind"]: plugin["name"] for plugin in summary["plugins"]} == NAMES

    again = run_words(tmp_path, "--trials", 3, "--workers", 1)
    other = install(tmp_path / "other", "1.1")
    refused = prefect_tune(other, home, *again)
    assert refused.returncode == 2
    assert all(part in refused.stderr for part in ("stroll", "tune-extras 1.0", "1.1", "==1.0"))
    bare = prefect_tune(tmp_path / "nowhere", home, "show", "s")
    assert "tune-extras 1.0" in bare.stdout, bare.stderr
    unnamed = ("run", again[1], "--target", "target", "--study", "s", "--trials", 3)
    for words in (unnamed, again):
        missing = prefect_tune(tmp_path / "nowhere", home, *words)
        assert missing.returncode == 2
        assert "tune-extras==1.0" in missing.stderr
    assert prefect_tune(extras, home, *again).returncode == 0
    assert shown(extras, home)["n_trials"] == 3


@pytest.mark.full
def test_a_worker_with_another_version_is_refused(extras, tmp_path) -> None:
    home, other = tmp_path / "home", install(tmp_path / "other", "1.1")
    variables = {"PYTHONPATH": str(other), "PREFECT_TUNE_HOME": str(home)}
    with external_cluster(tmp_path / "dask", **variables) as external:
        external.start_worker()
        words = run_words(tmp_path, "--trials", 1, "--dask", external.address)
        ran = prefect_tune(extras, home, *words)
    assert ran.returncode == 2
    assert all(part in ran.stderr for part in ("worker tcp", "tune-extras 1.0", "1.1", "==1.0"))
