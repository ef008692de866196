"""Every command of README and of the pages, each run once as it stands there, in their order."""

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from command_line import CommandLine
from documents.inputs_of_documents import write_inputs
from documents.pages import DOCUMENTS, commands, files
from processes import environment
from source_tree import ROOT

RUN_ELSEWHERE = {
    "tests/run": "is what runs this",
    ". .venv/bin/activate": "the tests run in that environment",
    "deployments/demo": "test_demo.py",
    "prefect-tune run cohort:demo": "test_demo.py",
    "uvx --from dist/*.whl prefect-tune run cohort:demo --trials 2": "project/test_distribution.py",
    'pip install "prefect-tune[cluster]"': "the lock file has it, and tests/storage uses it",
    "prefect-tune serve": "deployments/test_serve.py",
    "prefect deployment run tune/healthcare --param trials=40 --watch": "deployments/test_serve.py",
    "prefect worker start --pool local": "deployments/test_work_pool.py",
}
LAST = ("prefect-tune study rm responders",)
"""Commands after which others would miss something."""


class Session:
    """What a reader would have typed so far, in one folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self.prefect_tune = CommandLine(folder / "home")
        self.environment = environment(folder / "home", server)
        self.trials: Counter[str] = Counter()

    def run(self, command: str) -> None:
        program, *arguments = shlex.split(command)
        if program == "prefect":
            self.run_prefect(arguments)
            return
        assert program == "prefect-tune", command
        came = self.prefect_tune(*self.made_short(arguments))
        assert came.exit_code == 0, f"{command}: {came.output}"

    def run_prefect(self, arguments: list[str]) -> None:
        """Run Prefect's own command, where the repository is."""
        done = subprocess.run(
            [Path(sys.executable).with_name("prefect"), *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def made_short(self, arguments: list[str]) -> list[str]:
        """The same command for a minute that is not spent; KEY is a key of the store."""
        if arguments[0] == "compare":
            return [*arguments, "--workers", "2", "--quiet"]
        if arguments[0] == "run":
            study = arguments[arguments.index("--study") + 1] if "--study" in arguments else ""
            self.trials[study] += 1
            n_trials = self.trials[study] if study else 8 if "--ensemble" in arguments else 1
            return [*arguments, "--trials", str(n_trials), "--workers", "1", "--quiet"]
        if "KEY" in arguments:
            rows = self.prefect_tune.json("artifacts", "ls")
            key = next(row["key"] for row in rows if row["step"] != "fit model")
            return [key if a == "KEY" else a for a in arguments]
        return arguments


@pytest.mark.timeout(900)
def test_commands_do_what_the_documents_say(server, tmp_path, monkeypatch) -> None:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, text in files(*DOCUMENTS).items():
        (tmp_path / name).write_text(text)
    session = Session(tmp_path, server)
    run = [command for command in commands() if command not in RUN_ELSEWHERE]
    for command in sorted(run, key=LAST.__contains__):
        session.run(command)
    session.run("prefect deployment delete tune/healthcare")  # the server is that of all tests
    assert len(run) > 40
    assert (tmp_path / "predictions.csv").read_text().startswith("prediction,probability_no")
    assert (tmp_path / "model.pkl").exists()


def test_no_command_is_left_out_that_is_not_there() -> None:
    assert set(RUN_ELSEWHERE) | set(LAST) <= set(commands())
