"""The notebook of the package, run by a kernel."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from processes import environment

ROOT = Path(__file__).parents[3]


@pytest.mark.full
def test_notebook_is_committed_without_outputs_and_runs(
    home: Path, server: str, tmp_path: Path
) -> None:
    notebook = nbformat.read(ROOT / "deployments" / "pipeline_search.ipynb", as_version=4)
    assert not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    client = NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}})
    folders = {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = client.execute(env={**environment(home, server), **folders})
    _, searched, *looks = [cell.outputs for cell in done.cells if cell.cell_type == "code"]
    (shown,) = searched
    assert shown.output_type == "display_data"
    (line,) = shown.data["text/plain"].splitlines()  # progress is one line that came to its end
    assert re.match(r"best error [\d.]+% · 8 of 8 .*final model", line)
    score, pipeline, results, studies = [outputs[-1].data["text/plain"] for outputs in looks[:4]]
    assert float(score) > 0.9
    assert "'fit model':" in pipeline
    assert "mean_test_score" in results
    assert "dataframe-tpe-" in studies
