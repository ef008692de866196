"""Workers do not import the main module of the process that starts them."""

import subprocess
import sys
from multiprocessing import spawn
from pathlib import Path

import pytest
from inputs import write_table
from processes import environment

from prefect_tune.flows.workers.local_workers import spare_main_module

SCRIPT = """
from pathlib import Path

with Path("imports").open("a") as file:
    file.write(f"{__name__}\\n")

from prefect_tune import tune

summary = tune(
    "table.csv", target="target", trials=3, workers=2, method="random", space="small"
)
print(summary["n_trials"])
"""


def test_only_workers_are_spared() -> None:
    before = spawn.get_preparation_data("Process-1")
    spare_main_module()
    assert spawn.get_preparation_data("Process-1") == before
    told = spawn.get_preparation_data("Dask Worker process (from Nanny)")
    assert {name for name in before if name not in told} <= {
        "init_main_from_name",
        "init_main_from_path",
    }
    assert not [name for name in told if name.startswith("init_main")]


@pytest.mark.parametrize("as_module", [False, True])
def test_a_script_without_a_guard_runs_once(tmp_path: Path, server: str, as_module) -> None:
    write_table(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *(["-m", "script"] if as_module else ["script.py"])],
        cwd=tmp_path,
        env=environment(tmp_path / "home", server),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3"]
    assert (tmp_path / "imports").read_text().split() == ["__main__"]
