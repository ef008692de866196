"""`prefect-tune series`: lists series and runs, and removes a series without its studies."""

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
    """The second study of the series `n`; the first is the champion, and one run was skipped."""
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    for n_rows, loss in ((100, 12.0), (120, 10.0)):
        table(150)[:n_rows].to_csv(tmp_path / "t.csv", index=False)
        given = {"data": str(tmp_path / "t.csv"), "target": "target", "series": "n", **QUICK}
        prepared = prepare_study({**dict.fromkeys(OPTIONS), **given})
        with Study.opened(prepared.store, prepared.name) as study:
            tell(study, evaluation(loss))
            study.set_state("complete")
        series, is_first = prepared.locked.read(), n_rows == 100
        outcome = "first" if is_first else "never"
        run = replace(
            series.runs[-1],
            loss=loss,
            test_loss=loss + 1,
            reused=replace(series.runs[-1].reused, weight=0.5),
            skipped=0 if is_first else 1,
            decision=Decision(promoted=is_first, outcome=outcome, reason="as it is so", model="m"),
        )
        if is_first:
            series = series.with_champion(Champion("n-1", "m", "rule"))
        prepared.locked.table.save(series, run)
        prepared.release()
    yield prepared
    prepared.store.close()


@pytest.mark.usefixtures("last")
def test_runs_of_a_series_are_listed(
    run: CommandLine, tmp_path, check_printed, check_fields
) -> None:
    (listed,) = run.json("series")
    assert listed == run.json("series", "n")
    first, second = listed["runs"]
    assert (first["study"], second["changes"]["rows_added"]) == ("n-1", 20)
    check_fields({"series": listed}, "series_fields")
    assert run.json("show", "n-1")["series"] == {"name": "n", "run": 1, "champion": "n-1"}
    commands = ("series", "series n", "show n-2")
    text = "\n".join(run(*command.split()).stdout for command in commands)
    check_printed(text, "series", tmp_path)


def test_studies_of_a_series_cannot_be_removed(
    run: CommandLine, last, tmp_path, check_printed
) -> None:
    refused = ["study rm n-1", "study rm n-2", "series --remove"]
    said = [run(*command.split()) for command in refused]
    with closing(LockedSeries(last.store, "n")):  # it is in use
        said.append(run("series", "n", "--remove"))
    assert run.json("series", "n", "--remove") == {"series": "n", "studies": ["n-1", "n-2"]}
    assert run.json("series") == []
    said.append(run("series", "n"))
    assert [done.exit_code for done in said] == [2] * 5
    check_printed("\n".join(done.stderr for done in said), "refused", tmp_path)
    run("study", "rm", "n-2")
    assert run.json("show", "n-1")["series"] is None
