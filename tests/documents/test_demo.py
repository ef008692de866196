"""The first command of README, from the checkout."""

import os
import re
import subprocess

import pytest
from documents.pages import DOCUMENTS
from processes import environment
from source_tree import ROOT


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
    shown = DOCUMENTS[0].text.split("The first command ends like this:")[1].split("```")[1].strip()
    for line in shown.splitlines()[1:3]:  # the README shows what is printed, with other numbers
        parts = re.split(r"(?:\d+m)?\d[\d.]*", line.strip())  # 1m37s stands for 5.2s too
        assert re.search(r"(?:\d+m)?\d[\d.]*".join(map(re.escape, parts)), done.stdout)
    assert "Prefect shows it at http://127.0.0.1:" in done.stderr
