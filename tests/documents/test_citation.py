"""The citation file is valid, and has the version of the project and the papers."""

import subprocess
import sys
import tomllib

import pytest
import yaml
from documents.pages import DOCS
from source_tree import ROOT

CITATION = DOCS / "CITATION.cff"


@pytest.mark.tools
def test_citation_file_is_valid_and_up_to_date() -> None:
    command = ("check_jsonschema", "--builtin-schema", "vendor.citation-file-format", CITATION)
    subprocess.run([sys.executable, "-m", *command], check=True)
    cited = yaml.safe_load(CITATION.read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    notes = {paper["notes"] for paper in cited["references"]}
    assert notes == {f"--method {m}" for m in ("flash", "admm", "fabolas", "bapi", "esmbo")}
