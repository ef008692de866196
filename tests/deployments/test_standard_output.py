"""Standard output is the result of a command, whatever algorithms, spaces and libraries print."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from inputs import write_table
from processes import COMMAND, environment, run, run_json, run_python
from user_spaces import PRELUDE

SPACE = (
    PRELUDE
    + """
import atexit
import subprocess


def shout(text):
    print(text)
    ctypes.CDLL(None).printf(b"%s in C\\n", text.encode())  # held back until the process ends
    subprocess.run(["echo", text, "in a child"])


shout("IMPORTED")
atexit.register(shout, "EXITING")


class Shouts(GaussianNB):
    def fit(self, X, y):
        shout("FITTING")
        for percent in range(0, 101, 50):
            print(f"\\r{percent} %", end="", flush=True)
        print("\\nto postgresql://me:geheim@host/db \\x1b[31m")
        os.write(2, b"\\xff\\x00\\n")
        self.go_wrong()
        return super().fit(X, y)

    def predict(self, X):
        shout("PREDICTING")
        return super().predict(X)

    def go_wrong(self):
        pass


class Fails(Shouts):
    def go_wrong(self):
        for number in range(1000):
            print("step", number)
        raise ValueError("no luck")


class Dies(Shouts):
    def go_wrong(self):
        os.write(1, b"LAST WORDS")
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(Shouts):
    def go_wrong(self):
        print("HANGING")
        ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock


shouts = one("shouts", Shouts, SMOOTHING)
others = [one(c.__name__.lower(), c) for c in (Fails, Dies, Hangs)]
space = models(one("silent", GaussianNB, SMOOTHING), shouts, *others)
shouting = models(shouts)
"""
)

pytestmark = pytest.mark.slow


class Studied:
    """A finished study of the space, of which `--json` was printed."""

    def __init__(self, folder: Path, server: str, space: str, *options: object) -> None:
        self.home, self.server = folder / "home", server
        (folder / "shouting.py").write_text(SPACE)
        self.data = write_table(folder)
        self.whole = self.run(
            "run", self.data, "--target", "target", "--space", f"{folder / 'shouting.py'}:{space}",
            "--method", "random", "--study", "s", "--json", *options,
        )  # fmt: skip
        self.trials: dict[str, Any] = {
            row["query"]["configuration"]["fit model"]["algorithm"]: row
            for row in self.json("trials", "s")
        }

    def run(self, *arguments: object) -> Any:
        return run(*arguments, home=self.home, server=self.server)

    def json(self, *arguments: object) -> Any:
        return run_json(*arguments, home=self.home, server=self.server)

    def output(self, algorithm: str) -> str:
        """What `show --output` prints of the last trial of an algorithm."""
        done = self.run("show", "s", "--trial", self.trials[algorithm]["number"], "--output")
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture(scope="module")
def studied(server, tmp_path_factory) -> Studied:
    options = ("--workers", 2, "--trials", 14, "--seed", 5, "--trial-timeout", "10s")
    return Studied(tmp_path_factory.mktemp("shouting"), server, "space", *options)


def test_of_a_run_standard_output_is_the_result_and_nothing_else(server, tmp_path) -> None:
    studied = Studied(tmp_path, server, "shouting", "--trials", 1, "--workers", 1)
    assert json.loads(studied.whole.stdout)["study"] == "s"
    assert "IMPORTED" in studied.whole.stderr  # by the command itself, to who wrote the space
    assert not {"FITTING", "PREDICTING"} & set(studied.whole.stderr.split())
    shown = studied.output("shouts")
    for text in ("FITTING", "PREDICTING"):
        assert {text, f"{text} in C", f"{text} in a child"} <= set(shown.splitlines())
    assert "postgresql://me:***@host/db \\x1b[31m" in shown


@pytest.mark.full
def test_other_commands_do_too(studied, tmp_path) -> None:
    for command in (
        ("predict", "s", studied.data, "--out", tmp_path / "out.csv"),
        ("export", "s", tmp_path / "out.pkl"),
        ("report", "s", "--out", tmp_path / "out.html"),
    ):
        studied.json(*command)


@pytest.mark.full
def test_a_failure_quotes_the_last_lines(studied) -> None:
    listed = studied.run("trials", "s", "--failed").stdout
    for algorithm, last in (("fails", "step 999"), ("dies", "LAST WORDS"), ("hangs", "HANGING")):
        failure = studied.trials[algorithm]["failure"]
        assert failure["output"].splitlines()[-1] == last
        assert len(failure["output"].splitlines()) < 20
        assert studied.output(algorithm).splitlines()[-1] == last
        assert last in listed
    number = studied.trials["silent"]["number"]
    silent = studied.run("show", "s", "--trial", number, "--output")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert "printed nothing" in silent.stderr


@pytest.mark.full
def test_outputs_are_private_files_that_go_with_their_study(studied, tmp_path) -> None:
    home = tmp_path / "home"
    shutil.copytree(studied.home, home)
    files = [path for path in (home / "store" / "records" / "output").rglob("*") if path.is_file()]
    assert len(files) > 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not [path for path in files if b"geheim" in path.read_bytes()]
    run_json("study", "rm", "s", home=home, server=studied.server)
    assert not [path for path in files if path.exists()]


@pytest.mark.full
def test_a_program_that_calls_a_command_has_its_standard_output_back(studied) -> None:
    program = """
import os
from prefect_tune.deployments.cli.command import main
try:
    main(["show", "s", "--json"])
except SystemExit as end:
    print("end", end.code, flush=True)
os.write(1, b"mine")
"""
    printed = run_python(program, env=environment(studied.home, studied.server))
    document, end = printed.split("end 0\n")
    assert json.loads(document)["study"] == "s"
    assert end == "mine"


def test_a_closed_standard_output_stops_no_command(tmp_path) -> None:
    command = 'exec "$0" "$1" "$2" study ls --store "$3" >&-'
    done = subprocess.run(
        ["sh", "-c", command, *COMMAND, tmp_path], env=environment(tmp_path),
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert str(tmp_path) in done.stderr
