"""Every command of README and pages, each run once as written, in order."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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
    "deployments/nights": "test_demo.py",
    "pip install .": "project/test_distribution.py",
    "prefect-tune run cohort:demo": "test_demo.py",
    "uvx --from dist/*.whl prefect-tune run cohort:demo --trials 2": "project/test_distribution.py",
    'pip install ".[cluster]"': "the lock file has it, and tests/storage uses it",
    "prefect-tune serve": "deployments/test_serve.py",
    "prefect deployment run tune/healthcare --param trials=40 --watch": "deployments/test_serve.py",
    "prefect worker start --pool local": "deployments/test_work_pool.py",
    "prefect automation create --from-file automations.yaml": "deployments/test_automations.py",
}
LAST = ("prefect-tune study rm responders",)
"""Commands after which others would miss something."""
HERE = sorted((c for c in commands() if c not in RUN_ELSEWHERE), key=LAST.__contains__)


class Session:
    """The commands that a reader has typed so far, in one folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self.prefect_tune = CommandLine(folder / "home")
        self.environment = environment(folder / "home", server)
        self.trials: Counter[str] = Counter()

    def run(self, command: str) -> None:
        """Run a command of `prefect-tune`, or of Prefect in the repository."""
        program, *arguments = shlex.split(command)
        if program == "prefect":
            prefect = [Path(sys.executable).with_name("prefect"), *arguments]
            subprocess.run(prefect, cwd=ROOT, env=self.environment, check=True)
            return
        assert program == "prefect-tune", command
        came = self.prefect_tune(*self.made_short(arguments))
        assert came.exit_code == 0, f"{command}: {came.output}"

    def made_short(self, arguments: list[str]) -> list[str]:
        """Return the command with few trials, a lenient latency limit, and a key for KEY."""
        arguments = [re.sub(r"(?<=latency_us<=)\d+", "60000000", a) for a in arguments]
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


@pytest.fixture(scope="module")
def session(server, tmp_path_factory) -> Iterator[Session]:
    """A session in which one command follows another."""
    folder = tmp_path_factory.mktemp("session")
    write_inputs(folder)
    for name, text in files(*DOCUMENTS).items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        opened = Session(folder, server)
        yield opened
        # The server is that of all tests.
        for name in ("tune/healthcare", "retry/retry", "compare/compare", "promote/promote"):
            opened.run(f"prefect deployment delete {name}")
        opened.run("prefect --no-prompt work-pool delete local")


@pytest.mark.full
@pytest.mark.parametrize("command", HERE)
def test_command_runs_as_documented(session, command) -> None:
    session.run(command)


def test_every_skipped_command_is_documented() -> None:
    assert set(RUN_ELSEWHERE) | set(LAST) <= set(commands())
