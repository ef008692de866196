"""`prefect-tune series`: lists series and their runs, and removes a series without its studies."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from command_line import CommandLine
from flow_studies import prepare_study, tell
from inputs import QUICK, table
from worlds import evaluation

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.series.locked import LockedSeries
from prefect_tune.flows.series.next_study import SeriesStudy
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.series import Champion, Decision

pytestmark = pytest.mark.slow


@pytest.fixture
def last(tmp_path, monkeypatch) -> Iterator[SeriesStudy]:
    """The second study of the series `n`; the first is the champion, and a run was skipped."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    for n_rows, loss in ((100, 12.0), (120, 10.0)):
        table(150)[:n_rows].to_csv(tmp_path / "t.csv", index=False)
        given = {"data": str(tmp_path / "t.csv"), "target": "target", "series": "n", **QUICK}
        prepared = prepare_study({**dict.fromkeys(OPTIONS), **given})
        with Study.opened(prepared.store, prepared.name) as study:
            tell(study, evaluation(loss))
            study.set_state("complete")
        series, is_first = prepared.locked.read(), n_rows == 100
        run = replace(
            series.runs[-1],
            loss=loss,
            test_loss=loss + 1,
            reused=replace(series.runs[-1].reused, weight=0.5),
            skipped=0 if is_first else 1,
            decision=Decision(
                promoted=is_first, outcome="first" if is_first else "never", reason="as it is so",
                model="m",
            ),
        )  # fmt: skip
        if is_first:
            series = series.with_champion(Champion("n-1", "m", "rule"))
        prepared.locked.table.save(series, run)
        prepared.release()
    yield prepared
    prepared.store.close()


def fails(run: CommandLine, *arguments: str) -> str:
    """The message of a command that is refused."""
    result = run(*arguments)
    assert result.exit_code == 2
    return result.stderr


@pytest.mark.usefixtures("last")
def test_the_runs_of_a_series_are_listed(run: CommandLine) -> None:
    (listed,) = run.json("series")
    assert listed == run.json("series", "n")
    assert (listed["series"], listed["champion"], listed["former"]) == ("n", "n-1", [])
    assert (listed["question"]["target"], listed["question"]["metric"]) == ("target", "error")
    first, second = listed["runs"]
    assert (first["study"], first["state"], first["decision"]["reason"]) == (
        "n-1", "complete", "as it is so",
    )  # fmt: skip
    assert (second["rows"], second["changes"]["rows_added"]) == (120, 20)
    assert (second["loss"], second["test_loss"], second["skipped"]) == (10.0, 11.0, 1)
    assert (second["reused"]["studies"], second["reused"]["weight"]) == (["n-1"], 0.5)
    text = run("series", "n").stdout
    for part in ("n-1", "n-2", "+20 rows", "11 %", "as it is so", "skipped", "weight 0.5"):
        assert part in text
    assert "n-2" in run("series").stdout


@pytest.mark.usefixtures("last")
def test_a_study_is_shown_and_reported_with_its_series(run: CommandLine, tmp_path) -> None:
    assert run.json("show", "n-1")["series"] == {"name": "n", "run": 1, "champion": "n-1"}
    assert "run 2 of n; champion: n-1" in run("show", "n-2").stdout
    run("report", "n-2", "--out", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "Runs of the series" in page
    assert "+20 rows" in page
    assert run.json("report", "n-2")["series"]["champions"][0]["study"] == "n-1"


@pytest.mark.usefixtures("last")
def test_studies_that_a_series_needs_stay(run: CommandLine) -> None:
    for study in ("n-1", "n-2"):
        assert "--remove" in fails(run, "study", "rm", study)
    assert run.json("series", "n", "--remove") == {"series": "n", "studies": ["n-1", "n-2"]}
    assert run.json("series") == []
    assert "series" in fails(run, "series", "n")
    run("study", "rm", "n-2")
    assert run.json("show", "n-1")["series"] is None


def test_a_removed_series_that_is_in_use_is_refused(run: CommandLine, last) -> None:
    with closing(LockedSeries(last.store, "n")):
        assert "in use" in fails(run, "series", "n", "--remove")


@pytest.mark.usefixtures("last")
def test_a_removal_names_its_series(run: CommandLine) -> None:
    assert "series" in fails(run, "series", "--remove")
