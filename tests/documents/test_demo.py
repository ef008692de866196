"""The first command of README, from the checkout."""

import os
import re
import subprocess

import pytest
from documents.pages import DOCUMENTS
from processes import environment
from source_tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.full]


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
    assert re.search(r"best(: trial| single trial) \d", done.stdout)  # alone or with others
    shown = DOCUMENTS[0].text.split("The first command ends like this:")[1].split("```")[1].strip()
    number = r"(?:\d+m)?\d[\d.]*"  # 1m37s stands for 5.2s too
    line = shown.splitlines()[1]  # the README shows what is printed, with other numbers
    assert re.search(number.join(map(re.escape, re.split(number, line.strip()))), done.stdout)
    assert "Prefect shows it at http://127.0.0.1:" in done.stderr
