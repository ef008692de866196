"""`prefect-tune promote` and `rollback`: the champion of a series, set by hand."""

from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.completing import complete_series, complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE, existing_store
from prefect_tune.deployments.commands.output import print_json
from prefect_tune.deployments.views.console import echo

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@click.argument("series", shell_complete=complete_series)
@click.argument("study", required=False, shell_complete=complete_studies)
@JSON
@STORE
@DATABASE
def promote(
    series: str, study: str | None, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """Make the model of STUDY the champion of SERIES; by default that of its newest study.

    \b
    prefect-tune promote nightly
    prefect-tune promote nightly nightly-3
    """  # noqa: D301 - click reads the backspace
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.server.embedded import joined_server

        with joined_server():  # which receives the event of a new champion
            from prefect_tune.flows.promoting import promote_study

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
            from prefect_tune.flows.promoting import roll_back

            _print(roll_back(opened, series), as_json=as_json)


def _print(change: "Mapping[str, Any]", *, as_json: bool) -> None:
    if as_json:
        print_json(change)
    elif not change["is_changed"]:
        echo(f"{change['champion']} already is the champion of {change['series']}")
    else:
        former = f", in place of {change['former']}" if change["former"] else ""
        echo(f"{change['champion']} is the champion of {change['series']}{former}")
