"""The notebook that comes with it, run by a kernel."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from processes import environment

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cells(home: Path, server: str, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of code with their outputs."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(ROOT / "deployments" / "pipeline_search.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}})
    folders = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
    done = client.execute(env={**environment(home, server), **folders})
    return [cell for cell in done.cells if cell.cell_type == "code"]


def test_progress_is_one_line_that_came_to_its_end(cells) -> None:
    (shown,) = cells[1].outputs
    assert shown.output_type == "display_data"
    (line,) = shown.data["text/plain"].splitlines()
    assert re.match(r"best error [\d.]+ % · 8/8 .*final model", line)


def test_the_search_can_be_used(cells) -> None:
    assert float(cells[2].outputs[-1].data["text/plain"]) > 0.9
    assert "'fit model':" in cells[3].outputs[0].data["text/plain"]
    assert "mean_test_score" in cells[4].outputs[0].data["text/plain"]
    assert "dataframe-tpe-" in cells[5].outputs[0].data["text/plain"]


def test_nothing_is_committed_but_what_was_written(cells) -> None:
    kept = nbformat.read(ROOT / "deployments" / "pipeline_search.ipynb", as_version=4)
    assert [cell.outputs for cell in kept.cells if cell.cell_type == "code"] == [[]] * len(cells)
