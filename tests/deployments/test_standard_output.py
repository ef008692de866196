"""Standard output contains only the result, whatever algorithms, spaces and libraries print."""

import json
import subprocess
from pathlib import Path

import pytest
from inputs import write_table
from processes import COMMAND, environment, run, run_python
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
        return super().fit(X, y)

    def predict(self, X):
        shout("PREDICTING")
        return super().predict(X)


space = models(one("shouts", Shouts, SMOOTHING))
"""
)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_table(tmp_path_factory.mktemp("shouting"))


@pytest.fixture(scope="module")
def own_home(data) -> Path:
    return data.parent / "home"


@pytest.fixture(scope="module")
def studied(server, data, own_home) -> subprocess.CompletedProcess[str]:
    """A study of one trial, run with `--json`."""
    (data.parent / "shouting.py").write_text(SPACE)
    return run(
        "run", data, "--target", "target", "--space", f"{data.parent}/shouting.py:space",
        "--method", "random", "--study", "s", "--trials", 1, "--workers", 1, "--json",
        home=own_home, server=server,
    )  # fmt: skip


def test_run_writes_only_the_result_to_standard_output(server, own_home, studied) -> None:
    assert json.loads(studied.stdout)["study"] == "s"
    assert "IMPORTED" in studied.stderr  # by the command itself, to who wrote the space
    assert not {"FITTING", "PREDICTING"} & set(studied.stderr.split())
    shown = run("show", "s", "--trial", 0, "--output", home=own_home, server=server).stdout
    for text in ("FITTING", "PREDICTING"):
        assert {text, f"{text} in C", f"{text} in a child"} <= set(shown.splitlines())
    assert "postgresql://me:***@host/db \\x1b[31m" in shown
    outputs = (own_home / "store" / "records" / "output").rglob("*")
    (file,) = [path for path in outputs if path.is_file()]
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"geheim" not in file.read_bytes()


@pytest.mark.full
@pytest.mark.usefixtures("studied")
def test_commands_except_run_write_only_results_to_standard_output(server, data, own_home) -> None:
    program = """
import os, sys
from prefect_tune.deployments.cli.command import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print("end", end.code, flush=True)
os.write(1, b"mine")
"""
    for words in (
        ("predict", "s", data, "--out", data.with_name("out.csv")),
        ("export", "s", data.with_name("out.pkl")),
        ("report", "s", "--out", data.with_name("out.html")),
        ("study", "rm", "s"),
    ):
        printed = run_python(program, *words, "--json", env=environment(own_home, server))
        document, end = printed.split("end 0\n")
        assert json.loads(document)
        assert end.startswith("mine")  # and what the space prints at the end
    assert not any(
        path.is_file() for path in (own_home / "store" / "records" / "output").rglob("*")
    )


def test_closed_standard_output_stops_no_command(tmp_path) -> None:
    command = 'exec "$0" "$1" "$2" study ls --store "$3" >&-'
    done = subprocess.run(
        ["sh", "-c", command, *COMMAND, tmp_path], env=environment(tmp_path),
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert str(tmp_path) in done.stderr
