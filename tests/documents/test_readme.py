"""README is short and quotes its chart, the reference is complete, and templates are valid."""

import re
import subprocess
import sys

import pytest
from documents.pages import DOCS, DOCUMENTS
from source_tree import ROOT

import prefect_tune


def test_readme_is_short_and_quotes_the_figures_of_the_chart() -> None:
    readme = DOCUMENTS[0].text
    assert readme.count("\n") < 150
    chart = (DOCS / "pages" / "pictures" / "benchmark.svg").read_text()
    (description,) = re.findall(r"!\[([^]]*)\]\S*benchmark.svg", readme)
    assert re.findall(r"\d+%", description) == re.findall(r">\+(\d+%)<", chart)[-4:]


def test_reference_lists_every_public_name() -> None:
    reference = (DOCS / "pages" / "reference" / "python.md").read_text()
    names = {f"prefect_tune.{name}" for name in prefect_tune.__all__}
    assert names <= set(re.findall(r"prefect_tune\.\w+", reference))


@pytest.mark.tools
def test_issue_templates_are_valid() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    schemas = {"config": "issue-config", "bug": "issue-forms", "wish": "issue-forms"}
    assert {path.stem for path in folder.iterdir()} == set(schemas)
    for name, schema in schemas.items():
        command = ("check_jsonschema", "--builtin-schema", f"vendor.github-{schema}")
        subprocess.run([sys.executable, "-m", *command, folder / f"{name}.yml"], check=True)
