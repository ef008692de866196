"""What `prefect-tune spaces` and `prefect-tune methods` say."""

import sys
from subprocess import run as run_process

import pytest

from prefect_tune.optimizers.registry import METHODS
from prefect_tune.tasks.catalogue.spaces import SPACES


def test_spaces_are_listed_with_stable_fields(run) -> None:
    rows = {row["name"]: row for row in run.json("spaces")}
    assert list(rows) == list(SPACES)
    flash = rows["flash"]
    assert (flash["n_paths"], flash["n_feasible_paths"], flash["n_hyperparameters"]) == (
        1456,
        1456,
        102,
    )
    assert [step["name"] for step in flash["steps"]] == [
        "rescale",
        "balance",
        "preprocess",
        "fit model",
    ]
    assert [len(step["algorithms"]) for step in flash["steps"]] == [4, 2, 13, 14]


def test_a_space_is_shown_in_full(run) -> None:
    shown = run.json("spaces", "flash")
    trees = shown["steps"][3]["hyperparameters"]["decision_tree"]
    assert {h["name"]: h.get("choices") or h["range"] for h in trees} == {
        "criterion": ["gini", "entropy"],
        "max_depth": [0.0, 2.0],
        "min_samples_split": [2, 20],
        "min_samples_leaf": [1, 20],
    }
    text = run("spaces", "flash").stdout
    assert "1,456 paths, of which 1,456 can run, and 102 hyperparameters" in text
    assert "    C                       0.03125 to 32768 (log)  [default: 1.0]" in text


def test_spaces_are_listed_for_people(run) -> None:
    lines = run("spaces").stdout.splitlines()
    assert len(lines) == len(SPACES) + 1
    assert any(
        line.split()[:6] == ["flash", "table", "classes", "1456", "1456", "102"] for line in lines
    )


def test_an_unknown_space_is_a_mistake_with_the_nearest_name(run) -> None:
    result = run("spaces", "flahs")
    assert result.exit_code == 2
    assert "unknown space 'flahs'. Did you mean 'flash'?" in result.stderr


def test_methods_are_listed_with_what_they_are_for(run) -> None:
    rows = run.json("methods")
    assert [row["name"] for row in rows] == list(METHODS)
    assert all(row["purpose"] for row in rows)
    lines = run("methods").stdout.splitlines()
    assert lines[0].split()[0] == "flash"


@pytest.mark.parametrize("name", METHODS)
def test_every_option_of_a_method_is_explained(run, name) -> None:
    shown = run.json("methods", name)
    assert shown["name"] == name
    assert all(len(option["meaning"]) > 10 for option in shown["options"])
    text = " ".join(run("methods", name).stdout.split())
    for option in shown["options"]:
        assert f"--option {option['name']}=" in text
        assert option["meaning"] in text


def test_an_unknown_method_is_a_mistake_with_the_nearest_name(run) -> None:
    result = run("methods", "flahs")
    assert result.exit_code == 2
    assert "unknown method 'flahs'. Did you mean 'flash'?" in result.stderr


@pytest.mark.slow
def test_they_need_neither_prefect_nor_a_server() -> None:
    script = (
        "import sys; from prefect_tune.deployments.command import main\n"
        "main(['spaces', '--json'], standalone_mode=False)\n"
        "assert not {'prefect', 'dask', 'distributed'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = run_process(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
