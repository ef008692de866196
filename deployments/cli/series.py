"""`prefect-tune series`, `promote` and `rollback`: runs and champion of a series."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_series, complete_studies
from prefect_tune.deployments.cli.options import reading_store
from prefect_tune.deployments.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefect_tune.storage.artifacts import ArtifactStore


@click.command()
@click.argument("name", required=False, shell_complete=complete_series)
@click.option("--remove", is_flag=True, help="Remove the series NAME; its studies stay.")
@reading_store
def series(opened: "ArtifactStore", name: str | None, *, remove: bool) -> None:
    """List the runs of the series NAME, or all series.

    To create a series, use `prefect-tune run ... --series NAME`. For each run, the list shows the
    number of rows, changes in the data, the loss, the loss on the test rows, the results reused
    from earlier studies, and the decision on the model.

    \b
    prefect-tune series
    prefect-tune series nightly
    """  # noqa: D301 - click reads the backspace
    from prefect_tune.deployments.views.study import print_all_series, print_series
    from prefect_tune.flows.series.view import read_series, series_json
    from prefect_tune.storage.series import SeriesTable
    from prefect_tune.tasks.bad_input import BadInput

    if name is None:
        if remove:
            raise BadInput("--remove needs a series", option="remove", remedy="name the series")
        found = [read_series(opened, one) for one in SeriesTable(opened.database).names()]
        emit(lambda: [series_json(opened, one) for one in found], lambda: print_all_series(found))
        return
    read = read_series(opened, name)
    if remove:
        from prefect_tune.flows.series.locked import LockedSeries

        with closing(LockedSeries(opened, name)) as locked:
            locked.delete()
        studies = [run.study for run in read.runs if run.state != "removed"]
        text = f"removed series {name}; its studies stay"
        emit(lambda: {"series": name, "studies": studies}, text)
    else:
        emit(lambda: series_json(opened, read), lambda: print_series(read))


@click.command()
@click.argument("series", shell_complete=complete_series)
@click.argument("study", required=False, shell_complete=complete_studies)
@reading_store
def promote(opened: "ArtifactStore", series: str, study: str | None) -> None:
    """Make the model of STUDY the champion of SERIES.

    If STUDY is omitted, the newest study with a model is used.

    \b
    prefect-tune promote nightly
    prefect-tune promote nightly nightly-3
    """  # noqa: D301 - click reads the backspace
    from prefect_tune.deployments.server.embedded import joined_server

    with joined_server():  # the server receives the event of a new champion
        from prefect_tune.flows.series.champion import promote_study

        _print(promote_study(opened, series, study))


@click.command()
@click.argument("series", shell_complete=complete_series)
@reading_store
def rollback(opened: "ArtifactStore", series: str) -> None:
    """Make the former champion of SERIES the champion again.

    The three latest former champions are kept.
    """
    from prefect_tune.deployments.server.embedded import joined_server

    with joined_server():
        from prefect_tune.flows.series.champion import roll_back

        _print(roll_back(opened, series))


def _print(change: "Mapping[str, Any]") -> None:
    former = f", in place of {change['former']}" if change["former"] else ""
    text = f"{change['champion']} is the champion of {change['series']}{former}"
    if not change["is_changed"]:
        text = f"{change['champion']} is already the champion of {change['series']}"
    emit(lambda: change, text)
