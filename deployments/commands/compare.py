"""`prefect-tune compare`, and `standings` of the curves that it writes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.completing import complete_files
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.flow_run import run_flow
from prefect_tune.deployments.commands.options import (
    JSON,
    KEEP_SERVER,
    QUIET,
    add_options,
    grouped_by,
)
from prefect_tune.deployments.commands.output import check_page, print_json, write_page
from prefect_tune.flows.options.declared import COMPARE_OPTIONS
from prefect_tune.tasks.worker.start_log import quick_imports

if TYPE_CHECKING:
    import pandas as pd

    from prefect_tune.flows.comparison.comparison import Comparison


_REPORT = click.option(
    "--report",
    metavar="FILE",
    help="Also write a report, an HTML file.",
    shell_complete=complete_files,
)


@click.command(cls=grouped_by(COMPARE_OPTIONS))
@add_options(COMPARE_OPTIONS)
@_REPORT
@JSON
@QUIET
@KEEP_SERVER
def compare(
    *, report: str | None, as_json: bool, quiet: bool, keep_server: bool, **parameters: Any
) -> None:
    """Compare search methods on DATA, or continue a comparison.

    Each method runs with --budget or --trials of its own, --repeats times, on one worker and with
    an empty cache of its own. All methods of a repeat have the same test part, folds and seed.

    \b
    prefect-tune compare patients.csv --target responder --methods flash,tpe,random --budget 5m
    prefect-tune compare patients.csv --target responder --methods flash,flash:variant=paper --trials 50

    The best pipelines of an eighth, a quarter, half, three quarters and all of the budget are
    fitted on all training rows and scored on the test rows, after the budget. Interrupt it at any
    time; the same command with the same --name continues it.
    """  # noqa: D301, E501 - click reads the backspace; a command is one line

    def prepare() -> "Comparison":
        from prefect_tune.flows.comparison.prepare import prepare_comparison

        if report is not None:
            check_page(report)
        for name in (name for name, one in COMPARE_OPTIONS.items() if one.kind == "texts"):
            parameters[name] = list(parameters[name]) or None
        return prepare_comparison(parameters)

    def run(comparison: "Comparison") -> dict[str, Any]:
        with quick_imports():
            from prefect_tune.flows.comparing import compare as compare_flow
            from prefect_tune.flows.comparison.prepare import HANDOVER

        given = {**parameters, "name": comparison.name}
        with HANDOVER.offered(given, comparison):
            outcome: dict[str, Any] = compare_flow(**given)
        return outcome

    document = run_flow(prepare, run, quiet=quiet, json_lines=False, keep_server=keep_server)
    _print(document, as_json=as_json)
    if report is not None:
        with reported_errors():
            from prefect_tune.flows.comparison.curves import read_curves
            from prefect_tune.flows.store_location import store_address, store_options

            words = store_options(store_address(parameters["store"], parameters["database"]))
            _write(report, document, read_curves([document["out"]]), words, is_silent=as_json)


@click.command()
@click.argument("curves", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@_REPORT
@JSON
def standings(curves: Sequence[str], *, report: str | None, as_json: bool) -> None:
    """Rank the methods in FILE, the curves of a comparison; pool them over several files.

    \b
    prefect-tune standings vehicle.parquet wind.parquet

    Methods are ranked within each data set and repeat; all files must have the same methods.
    """  # noqa: D301 - click reads the backspace
    with reported_errors():
        from prefect_tune.flows.comparison.curves import pooled_standings, read_curves

        if report is not None:
            check_page(report)
        document = pooled_standings(curves)
        _print(document, as_json=as_json)
        if report is not None:
            _write(report, document, read_curves(curves), (), is_silent=as_json)


def _print(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        from prefect_tune.deployments.views.comparison import print_comparison

        print_comparison(document)


def _write(
    out: str,
    document: Mapping[str, Any],
    curves: "pd.DataFrame",
    store_options: Sequence[str],
    *,
    is_silent: bool,
) -> None:
    """Write the report of a comparison, or of several that are pooled, in stores not known."""
    from prefect_tune.deployments.report.comparison_page import comparison_page
    from prefect_tune.flows.reporting.comparison_report import comparison_report

    page = comparison_page(comparison_report(document, curves), store_options)
    write_page(out, page, f"{page.kind.lower()} {page.title}", is_silent=is_silent)
