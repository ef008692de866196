"""`prefect-tune compare`, and `standings` for the curves that it writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.completing import complete_files
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.flow_run import quick_imports, run_flow
from prefect_tune.deployments.commands.options import (
    JSON,
    KEEP_SERVER,
    QUIET,
    add_options,
    grouped_by,
)
from prefect_tune.deployments.commands.output import print_json, write_page
from prefect_tune.flows.options.declared import (
    COMPARE_OPTIONS,
    OPTIONS,
    CompareOptions,
    StudyOptions,
)

if TYPE_CHECKING:
    from prefect_tune.flows.comparison.comparison import Comparison
    from prefect_tune.flows.comparison.standings import ComparisonOutcome


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
    """Compare search methods on DATA, or resume a comparison.

    Each method runs --repeats times with its own --budget or --trials, on one worker and with an
    empty cache. All methods of a repeat share test rows, folds and seed.

    \b
    prefect-tune compare patients.csv --target responder --methods flash,tpe,random --budget 5m
    prefect-tune compare patients.csv --target responder --methods flash,flash:variant=paper --trials 50

    At the end, the pipelines that were best after 1/8, 1/4, 1/2, 3/4 and all of the budget are
    fitted on all training rows and scored on the test rows. You can interrupt the comparison at any
    time; rerun the command with the same --name to resume it.
    """  # noqa: D301, E501 - click reads the backspace; a command is one line
    with reported_errors():  # before a server starts
        if report is not None:
            from prefect_tune.flows.output_files import check_output, input_files

            check_output(report, [*input_files(parameters), parameters["out"]])
        for name in (name for name, one in COMPARE_OPTIONS.items() if one.kind == "texts"):
            parameters[name] = list(parameters[name]) or None
        CompareOptions.parse(parameters)
        StudyOptions.parse({name: parameters.get(name) for name in OPTIONS})

    def prepare() -> "Comparison":
        from prefect_tune.flows.comparison.prepare import prepare_comparison

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
    with reported_errors():
        from prefect_tune.flows.comparison.standings import ComparisonOutcome
        from prefect_tune.flows.store_location import store_address, store_options

        outcome = ComparisonOutcome.from_json(document)
        words = store_options(store_address(parameters["store"], parameters["database"]))
        _print(outcome, report, [document["out"]], words, as_json=as_json)


@click.command()
@click.argument("curves", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@_REPORT
@JSON
def standings(curves: Sequence[str], *, report: str | None, as_json: bool) -> None:
    """Rank the methods of a comparison whose curves are in FILE. Several files are pooled.

    \b
    prefect-tune standings vehicle.parquet wind.parquet

    Methods are ranked within each data set and repeat. All files must have the same methods.
    """  # noqa: D301 - click reads the backspace
    with reported_errors():
        from prefect_tune.flows.comparison.curves import pooled_standings
        from prefect_tune.flows.output_files import check_output

        if report is not None:
            check_output(report, curves)
        _print(pooled_standings(curves), report, curves, (), as_json=as_json)


def _print(
    outcome: "ComparisonOutcome",
    report: str | None,
    files: Sequence[str],
    store_options: Sequence[str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json(outcome.to_json())
    else:
        from prefect_tune.deployments.views.comparison import print_comparison

        print_comparison(outcome)
    if report is None:
        return
    from prefect_tune.deployments.report.comparison_data import comparison_report
    from prefect_tune.deployments.report.comparison_page import comparison_page
    from prefect_tune.flows.comparison.curves import read_curves

    found = comparison_report(outcome.to_json(), read_curves(files))
    page = comparison_page(outcome, found, store_options)
    write_page(report, page, f"{page.kind.lower()} {page.title}", is_silent=as_json)
