"""Reports by the command."""

import os
import re
import sys
from html import unescape
from subprocess import run as run_process

import pandas as pd
import pytest

UNNEEDED = {"plotly", "prefect", "distributed", "prefect_tune.deployments.server.embedded"}

pytestmark = pytest.mark.usefixtures("server")


def test_a_report_is_one_file_named_after_the_study(studied, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = studied.run("report", "s")
    assert done.exit_code == 0
    assert "the report of study s is in s.html" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s.html"]
    page = (tmp_path / "s.html").read_text()
    assert "The best pipeline" in page
    assert len(page) < 5_000_000


def test_as_json_it_is_a_document_and_a_file_only_where_one_is_named(
    studied, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = studied.json("report", "s")
    assert list(tmp_path.iterdir()) == []
    assert set(found) == {
        "summary", "created", "progress", "paths", "step_times", "failures", "trade_offs",
        "fidelities", "members", "importance", "reproduction",
    }  # fmt: skip
    assert found["summary"] == studied.json("show", "s")
    assert sum(step["served"] for step in found["step_times"]) == found["summary"]["cache"]["hits"]
    assert found["reproduction"]["command"][:4] == ["prefect-tune", "run", str(studied.data),
                                                    "--target"]  # fmt: skip
    assert studied.json("report", "s", "--out", "named.html") == found
    assert [path.name for path in tmp_path.iterdir()] == ["named.html"]


def test_an_unknown_study_and_a_file_that_cannot_be_written_are_said(studied, tmp_path) -> None:
    unknown = studied.run("report", "t", "--out", tmp_path / "t.html")
    assert unknown.exit_code == 2
    assert "unknown study" in unknown.stderr
    for out in (tmp_path, tmp_path / "none" / "s.html"):
        done = studied.run("report", "s", "--out", out)
        assert done.exit_code == 2
        assert f"{out} cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_needs_no_server_and_imports_none(studied, tmp_path) -> None:
    command = ["report", "s", "--out", str(tmp_path / "s.html")]
    program = (
        "import sys; from prefect_tune.deployments.command import main\n"
        f"main({command!r}, standalone_mode=False)\n"
        f"print(sorted({UNNEEDED} & set(sys.modules)))"
    )
    done = run_process(
        [sys.executable, "-c", program],
        env={**os.environ, "PREFECT_TUNE_HOME": str(studied.run.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("[]\n"), done.stdout


def test_a_comparison_and_pooled_curves_have_a_report_too(run, studied, tmp_path) -> None:
    out, file = tmp_path / "curves.parquet", tmp_path / "compared.html"
    options = ("--target", "target", "--space", "small", "--methods", "random,tpe", "--trials", 2,
               "--repeats", 1, "--workers", 2, "--quiet")  # fmt: skip
    store = ("--store", tmp_path / "its store")
    done = run("compare", studied.data, *options, *store, "--out", out, "--report", file)
    assert done.exit_code == 0, done.output
    assert "the report of comparison" in done.stdout
    assert re.search(r"prefect-tune report \S+ --store .*/its store", unescape(file.read_text()))
    assert "Who leads" in file.read_text()
    pooled = tmp_path / "pooled.html"
    found = run.json("standings", out, "--report", pooled)
    assert found["n_blocks"] == 1
    assert "Who leads" in pooled.read_text()
    unwritable = run("standings", out, "--report", tmp_path)
    assert unwritable.exit_code == 2
    assert len(pd.read_parquet(out)) == 6
