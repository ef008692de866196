"""Results on standard output, whatever its encoding."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.deployments.views.console import echo
from prefect_tune.deployments.views.result_stream import result_apart

with result_apart():
    echo("café ▁█")
    CONSOLE.print("café ▁█")
"""


@pytest.mark.parametrize(
    ("encoding", "line"), [("ascii", b"caf? ??"), ("utf-8", "café ▁█".encode())]
)
def test_characters_that_the_encoding_lacks_become_question_marks(encoding, line) -> None:
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [line, line]), done.stderr
