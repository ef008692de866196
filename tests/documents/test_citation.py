"""The citation file is valid, and cites what the methods are made of."""

import subprocess
import sys
import tomllib

import pytest
import yaml
from documents.pages import DOCS
from source_tree import ROOT

CITATION = DOCS / "CITATION.cff"


@pytest.mark.tools
def test_it_is_valid() -> None:
    command = ("check_jsonschema", "--builtin-schema", "vendor.citation-file-format")
    done = subprocess.run(
        [sys.executable, "-m", *command, CITATION], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_it_has_the_version_and_the_five_papers() -> None:
    cited = yaml.safe_load(CITATION.read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    notes = {paper["notes"] for paper in cited["references"]}
    assert notes == {f"--method {m}" for m in ("flash", "admm", "fabolas", "bapi", "esmbo")}
    for method in ("flash", "admm", "fabolas", "bapi", "esmbo"):
        page = (DOCS / "pages" / "methods" / f"{method}.md").read_text()
        (title,) = (r["title"] for r in cited["references"] if r["notes"].endswith(method))
        assert title in page
