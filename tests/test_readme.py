"""Every command and program of the README, run as it stands there, in its order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from inputs import events, table, write_meds, write_omop_log, write_synthea_log
from processes import environment

from prefect_tune.deployments.command import main
from prefect_tune.tasks.user_space import find_space

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

RUN_ELSEWHERE = {
    "tests/run": "is what runs this",
    ". .venv/bin/activate": "the tests run in that environment",
    "deployments/demo": "test_the_demo_runs",
    'pip install "prefect-tune[cluster]"': "the lock file has it, and tests/storage uses it",
    "prefect-tune serve": "deployments/test_serve.py",
    "prefect deployment run tune/healthcare --param trials=40 --watch": "deployments/test_serve.py",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.strip().splitlines()]


def write_inputs(folder: Path) -> None:
    """The files that the README speaks of."""
    patients = table().rename(columns={"target": "responder"})
    patients.insert(0, "patient", range(len(patients)))
    patients.to_csv(folder / "patients.csv", index=False)
    patients.drop(columns="responder").head(20).to_csv(folder / "new_patients.csv", index=False)
    visits = patients.assign(patient=[i // 2 for i in range(len(patients))])
    visits[:100].to_parquet(folder / "visits.parquet", index=False)
    visits[100:].to_parquet(folder / "later_visits.parquet", index=False)
    header = [f"@ATTRIBUTE {name} NUMERIC" for name in ("patient", "a", "b", "c", "count")]
    header += ["@ATTRIBUTE colour {red,green,blue}", "@ATTRIBUTE responder {no,yes}", "@DATA"]
    rows = patients.to_csv(index=False, header=False, na_rep="?")
    (folder / "patients.arff").write_text("\n".join(["@RELATION patients", *header, rows]))
    write_omop_log(folder / "cdm")
    write_synthea_log(folder / "synthea")
    meds = write_meds(folder / "meds")
    (meds / "labels" / "task").rename(meds / "labels" / "responder")
    log, labels = events()
    log.set_axis(["patient", "time", "event", "value"], axis=1).to_csv(
        folder / "events.csv", index=False
    )
    labels.set_axis(["patient", "prediction_time", "responder"], axis=1).to_csv(
        folder / "labels.csv", index=False
    )


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("server")
def test_commands_do_what_the_readme_says(tmp_path, monkeypatch) -> None:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    space = next(block for block in blocks("python") if block.startswith("# my_space.py"))
    (tmp_path / "my_space.py").write_text(space)
    prefect_tune = CommandLine(tmp_path / "home")
    ran = 0
    for command in commands():
        if command in RUN_ELSEWHERE:
            continue
        program, *arguments = shlex.split(command)
        assert program == "prefect-tune", command
        if arguments[0] == "compare":
            arguments += ["--workers", "2", "--quiet"]
        if arguments[0] == "run":
            n_trials = "8" if "--ensemble" in arguments else "1"
            arguments += ["--trials", n_trials, "--workers", "1", "--quiet"]
        if "KEY" in arguments:
            rows = prefect_tune.json("artifacts", "ls")
            key = next(row["key"] for row in rows if row["step"] != "fit model")
            arguments = [key if a == "KEY" else a for a in arguments]
        came = prefect_tune(*arguments)
        assert came.exit_code == 0, f"{command}: {came.output}"
        ran += 1
    assert ran > 12
    assert (tmp_path / "predictions.csv").read_text().startswith("prediction,probability_no")
    assert (tmp_path / "model.pkl").exists()


def test_the_space_of_the_readme_can_be_used(tmp_path) -> None:
    text = next(block for block in blocks("python") if block.startswith("# my_space.py"))
    (tmp_path / "my_space.py").write_text(text)
    space, _ = find_space(f"{tmp_path / 'my_space.py'}:space")
    assert space.n_paths == 2


def test_commands_named_in_the_text_exist() -> None:
    named = set(re.findall(r"`prefect-tune (\w+)", README))
    assert named <= set(main.commands)


@pytest.mark.parametrize("position", range(len(blocks("python"))))
def test_programs_run_as_they_stand(position, server, tmp_path) -> None:
    write_inputs(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[position])
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=environment(tmp_path / "home", server),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
def test_the_demo_runs(tmp_path) -> None:
    environment_of_user = {**environment(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [ROOT / "deployments" / "demo", "--trials", "3"],
        cwd=tmp_path,
        env=environment_of_user,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "best: trial" in done.stdout
    shown = README.split("The first command ends like this:")[1].split("```")[1].strip()
    for line in shown.splitlines()[1:3]:  # the README shows what is printed, with other numbers
        parts = re.split(r"(?:\d+m)?\d[\d.]*", line.strip())  # 1m37s stands for 5.2s too
        assert re.search(r"(?:\d+m)?\d[\d.]*".join(map(re.escape, parts)), done.stdout)
    assert "Prefect shows it at http://127.0.0.1:" in done.stderr
