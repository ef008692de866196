"""An installed distribution brings a method, a metric, a space and a format."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from external_clusters import external_cluster
from inputs import table
from plugin_distribution import install
from processes import COMMAND, environment

pytestmark = [pytest.mark.slow, pytest.mark.full]

NAMES = {"method": "stroll", "metric": "cost", "space": "tiny", "format": "semicolons"}

Done = subprocess.CompletedProcess[str]
PrefectTune = Callable[..., Done]


@pytest.fixture
def prefect_tune(server, tmp_path) -> PrefectTune:
    """Return the real command, with a distribution on the path of all processes."""

    def run(extras: Path, *words: object) -> Done:
        variables = {**environment(tmp_path / "home", server), "PYTHONPATH": str(extras)}
        command = [*COMMAND, *map(str, words)]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def study(tmp_path) -> list[object]:
    """Return the words of a `run` command that uses the plugins."""
    table().to_csv(tmp_path / "data.semi", sep=";", index=False)
    chosen = [word for kind in ("method", "metric", "space") for word in (f"--{kind}", NAMES[kind])]
    where = ["run", tmp_path / "data.semi", "--target", "target", "--study", "s"]
    return [*where, *chosen, "--option", "first=1"]


@pytest.fixture
def extras(tmp_path) -> Path:
    """Install the distribution."""
    return install(tmp_path / "extras")


def assert_refused(ran: Done, *named: str) -> None:
    assert ran.returncode == 2
    assert all(part in ran.stderr for part in ("tune-extras", "==1.0", *named))


def test_study_uses_every_plugin_of_a_distribution(prefect_tune, extras, study, tmp_path) -> None:
    ran = prefect_tune(extras, *study, "--trials", 1, "--workers", 1)
    assert ran.returncode == 0, ran.stderr
    told = prefect_tune(extras, "show", "s").stdout
    assert "strolled to path 1" in told
    assert " EUR" in told
    summary = json.loads(prefect_tune(extras, "show", "s", "--json").stdout)
    assert (summary["n_failed"], summary["decisions"]) == (0, {"reached": 1})
    assert {plugin["kind"]: plugin["name"] for plugin in summary["plugins"]} == NAMES

    again = [*study, "--trials", 2, "--workers", 1]
    assert_refused(prefect_tune(install(tmp_path / "other", "1.1"), *again), "1.1")
    bare = tmp_path / "nowhere"
    assert "tune-extras 1.0" in prefect_tune(bare, "show", "s").stdout
    for words in (study[:6], again):  # named by the study alone, and by options
        assert_refused(prefect_tune(bare, *words))
    resumed = prefect_tune(extras, *again, "--json")
    assert json.loads(resumed.stdout)["n_trials"] == 2


def test_worker_with_another_plugin_version_is_refused(
    prefect_tune, extras, study, tmp_path
) -> None:
    other = install(tmp_path / "other", "1.1")
    variables = {"PYTHONPATH": str(other), "PREFECT_TUNE_HOME": str(tmp_path / "home")}
    with external_cluster(tmp_path / "dask", **variables) as external:
        external.start_worker()
        ran = prefect_tune(extras, *study, "--trials", 1, "--dask", external.address)
    assert_refused(ran, "worker tcp", "1.1")
