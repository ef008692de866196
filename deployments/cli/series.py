"""`prefect-tune series`, `promote` and `rollback`: the runs of a series and its champion."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_series, complete_studies
from prefect_tune.deployments.cli.errors import reported_errors
from prefect_tune.deployments.cli.options import DATABASE, JSON, STORE, existing_store
from prefect_tune.deployments.cli.output import print_json
from prefect_tune.deployments.views.console import echo

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@click.argument("name", required=False, shell_complete=complete_series)
@click.option("--remove", is_flag=True, help="Remove the series NAME; its studies stay.")
@JSON
@STORE
@DATABASE
def series(
    name: str | None, *, remove: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """List the runs of the series NAME, or all series.

    A series is made by `prefect-tune run ... --series NAME`. Each run has its number of rows, the
    changes of the data, its loss, its loss on the test rows, what it reused from earlier studies,
    and the decision on its model.

    \b
    prefect-tune series
    prefect-tune series nightly
    """  # noqa: D301 - click reads the backspace
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.series import print_all_series, print_series
        from prefect_tune.flows.series.view import read_series, series_json
        from prefect_tune.storage.series import SeriesTable
        from prefect_tune.tasks.bad_input import BadInput

        if name is None:
            if remove:
                raise BadInput("--remove needs a series", option="remove", remedy="name the series")
            found = [read_series(opened, one) for one in SeriesTable(opened.database).names()]
            if as_json:
                print_json([series_json(opened, one) for one in found])
            else:
                print_all_series(found)
            return
        read = read_series(opened, name)
        if remove:
            from prefect_tune.flows.series.held import HeldSeries

            with closing(HeldSeries(opened, name)) as held:
                held.delete()
            studies = [run.study for run in read.runs if run.state != "removed"]
            if as_json:
                print_json({"series": name, "studies": studies})
            else:
                echo(f"removed series {name}; its {len(studies)} studies stay")
        elif as_json:
            print_json(series_json(opened, read))
        else:
            print_series(read)


@click.command()
@click.argument("series", shell_complete=complete_series)
@click.argument("study", required=False, shell_complete=complete_studies)
@JSON
@STORE
@DATABASE
def promote(
    series: str, study: str | None, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """Make the model of STUDY, or of the newest study with a model, the champion of SERIES.

    \b
    prefect-tune promote nightly
    prefect-tune promote nightly nightly-3
    """  # noqa: D301 - click reads the backspace
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.server.embedded import joined_server

        with joined_server():  # which receives the event of a new champion
            from prefect_tune.flows.series.champion import promote_study

            _print(promote_study(opened, series, study), as_json=as_json)


@click.command()
@click.argument("series", shell_complete=complete_series)
@JSON
@STORE
@DATABASE
def rollback(series: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Make the former champion of SERIES its champion again.

    The last three former champions are kept.
    """
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.server.embedded import joined_server

        with joined_server():
            from prefect_tune.flows.series.champion import roll_back

            _print(roll_back(opened, series), as_json=as_json)


def _print(change: "Mapping[str, Any]", *, as_json: bool) -> None:
    if as_json:
        print_json(change)
    elif not change["is_changed"]:
        echo(f"{change['champion']} already is the champion of {change['series']}")
    else:
        former = f", in place of {change['former']}" if change["former"] else ""
        echo(f"{change['champion']} is the champion of {change['series']}{former}")
