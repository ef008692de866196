"""Looking at studies, and removing them."""

import os
import re
import sys
from subprocess import run as run_process

import pandas as pd
import pytest
from inputs import write_meds

HEAVY = {"ConfigSpace", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "prefect", "distributed"}

pytestmark = pytest.mark.usefixtures("server")


def test_show_says_it_to_people(studied) -> None:
    said = studied.run("show", "s").stdout
    assert re.search(r"best: trial \d, cross-validated error .* %; on the test rows", said)
    assert "guessing: " in said
    assert "fit model" in said
    assert "saved" in said


def test_trials_are_listed_with_stable_fields(studied) -> None:
    rows = studied.json("trials", "s")
    assert [row["number"] for row in rows] == list(range(5))
    for row in rows:
        assert set(row) == {
            "number", "state", "query", "evaluation", "failure", "attempts", "deaths",
        }  # fmt: skip
        assert set(row["query"]) == {
            "configuration", "subset", "subset_draw", "epochs", "folds"
        }  # fmt: skip
        assert set(row["evaluation"]) >= {
            "loss", "cost_seconds", "cost_uncached_seconds", "fold_losses", "steps"
        }  # fmt: skip
        assert set(row["evaluation"]["steps"][0]) == {
            "step", "fold", "seconds", "load_seconds", "hit", "key"
        }  # fmt: skip
    assert studied.json("trials", "s", "--failed") == []
    assert "complete" in studied.run("trials", "s").stdout


def test_a_removed_study_takes_its_records_and_leaves_those_of_others(run, tmp_path) -> None:
    data = write_meds(tmp_path / "meds")
    command = (
        "run",
        data,
        "--labels",
        "labels/task",
        "--method",
        "random",
        "--trials",
        2,
        "--quiet",
    )
    for study in ("one", "two"):
        done = run(*command, "--study", study)
        assert done.exit_code == 0
        assert done.stderr == ""
    assert [row["study"] for row in run.json("study", "ls")] == ["two", "one"]
    gone = run.json("study", "rm", "one")
    assert gone["records"] == ["models/one"]  # the rest is what study two uses as well
    assert run("show", "one").exit_code == 2
    assert run.json("show", "two")["n_trials"] == 2
    times, out = tmp_path / "times.csv", tmp_path / "p.parquet"
    times.write_text("subject_id,prediction_time\n100,2020-03-01\n101,2020-03-01\n")
    assert run.json("predict", "two", data, "--labels", times, "--out", out)["rows"] == 2
    predictions = pd.read_parquet(out)
    assert list(predictions["subject_id"]) == [100, 101]
    assert "prediction" in predictions
    everything = run.json("study", "rm", "two")["records"]
    assert any(r.startswith("data/") for r in everything)
    assert run.json("artifacts", "stats")["records_bytes"] == 0
    assert run.json("artifacts", "verify")["damaged"] == []


def test_looking_imports_nothing_heavy(studied) -> None:
    for command in (
        ("show", "s"),
        ("trials", "s"),
        ("study", "ls"),
        ("artifacts", "ls", "--study", "s"),
        ("artifacts", "stats"),
    ):
        program = (
            "import sys; from prefect_tune.deployments.command import main\n"
            f"main({list(command)!r}, standalone_mode=False)\n"
            f"print(sorted({HEAVY} & set(sys.modules)))"
        )
        done = run_process(
            [sys.executable, "-c", program],
            env={**os.environ, "PREFECT_TUNE_HOME": str(studied.run.home)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith("[]\n"), (command, done.stdout.splitlines()[-1])
