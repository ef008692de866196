"""`prefect-tune compare`, and `standings` for the curves that `compare` writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_files
from prefect_tune.deployments.cli.flow_run import quick_imports, run_flow
from prefect_tune.deployments.cli.options import (
    HELP_ALL,
    JSON,
    KEEP_SERVER,
    QUIET,
    add_options,
    check_named,
    grouped_by,
)
from prefect_tune.deployments.cli.output import print_json, write_page
from prefect_tune.flows.options.declared import (
    COMPARE_OPTIONS,
    OPTIONS,
    CompareOptions,
    StudyOptions,
)

if TYPE_CHECKING:
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
@HELP_ALL
def compare(
    *, report: str | None, as_json: bool, quiet: bool, keep_server: bool, **parameters: Any
) -> None:
    """Compare search methods on DATA, or resume a comparison.

    Each method runs --repeats times, each time as a separate study with its own --budget or
    --trials, one worker and an empty cache. In each repeat, all methods share test rows, folds and
    seed.

    \b
    prefect-tune compare patients.csv --target responder --methods flash,tpe,random --budget 5m
    prefect-tune compare patients.csv --target responder --methods flash,flash:variant=paper --trials 50

    Methods are ranked by the test losses of their final models. You can interrupt the comparison at
    any time. To resume the comparison, rerun the command with the same --name.
    """  # noqa: D301, E501 - click reads the backspace; a command is one line
    if report is not None:
        from prefect_tune.flows.starting.output_files import check_output, input_files

        check_output(report, [*input_files(parameters), parameters["out"]])
    CompareOptions.parse(parameters)
    options = StudyOptions.parse({name: parameters.get(name) for name in OPTIONS})
    if parameters["name"] is None:
        check_named(options)

    def prepare() -> "Comparison":
        from prefect_tune.flows.comparison.comparison import prepare_comparison

        return prepare_comparison(parameters)

    def run(comparison: "Comparison") -> dict[str, Any]:
        with quick_imports():
            from prefect_tune.flows.compare import compare as compare_flow
            from prefect_tune.flows.comparison.comparison import HANDOVER

        given = {**parameters, "name": comparison.name}
        with HANDOVER.offered(given, comparison):
            outcome: dict[str, Any] = compare_flow(**given)
        return outcome

    document = run_flow(prepare, run, quiet=quiet, json_lines=False, keep_server=keep_server)
    from prefect_tune.flows.options.store_location import store_address, store_options

    words = store_options(store_address(parameters["store"], parameters["database"]))
    _print([document["out"]], report, words, document if as_json else None)


@click.command()
@click.argument("curves", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@_REPORT
@JSON
def standings(curves: Sequence[str], *, report: str | None, as_json: bool) -> None:
    """Rank the methods of a comparison by the curves in FILE. Several files are pooled.

    \b
    prefect-tune standings vehicle.parquet wind.parquet

    Methods are ranked within each data set and repeat. All files must have the same methods.
    """  # noqa: D301 - click reads the backspace
    _print(curves, report, (), {"files": curves} if as_json else None)


def _print(
    files: Sequence[str],
    report: str | None,
    store_options: Sequence[str],
    document: dict[str, Any] | None,
) -> None:
    """Print the standings from files of curves. With --json, add the standings to `document`."""
    from prefect_tune.flows.comparison.curves import read_curves
    from prefect_tune.flows.comparison.standings import standings as standings_of
    from prefect_tune.flows.starting.output_files import check_output

    if report is not None:
        check_output(report, files)
    curves = read_curves(files)
    found = standings_of(curves)
    if document is not None:
        print_json({**found.to_json(), **document})
    else:
        from prefect_tune.deployments.views.comparison import print_comparison

        print_comparison(found, files)
    if report is not None:
        from prefect_tune.deployments.report.comparison_page import comparison_page

        page = comparison_page(found, curves, files, store_options)
        write_page(
            report, page, f"{page.kind.lower()} {page.title}", is_silent=document is not None
        )
