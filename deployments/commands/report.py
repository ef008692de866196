"""`prefect-tune report`: a study as one HTML file."""

import click

from prefect_tune.deployments.commands.completing import complete_files, complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE
from prefect_tune.deployments.commands.output import print_json
from prefect_tune.deployments.commands.store import existing_store

__all__ = ["report"]


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option(
    "--out",
    metavar="FILE",
    help="The HTML file.  [default: STUDY.html]",
    shell_complete=complete_files,
)
@JSON
@STORE
@DATABASE
def report(
    study: str, *, out: str | None, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write a report of STUDY: one HTML file that needs no network.

    It says what was found, how good that is, what failed and why, what the cache saved, and how to
    go on; then how the loss fell, what was tried, what mattered, where the time went, limits,
    trainings, the method's decisions, and how to have the study again.

    With --json the same is printed as a document, and a file is written only where --out names one.
    """
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.commands.written_page import check_page, write_page
        from prefect_tune.flows.study.lookup import find_study

        find_study(opened, study)
        file = out or f"{study}.html"
        if out or not as_json:
            check_page(file)
        from prefect_tune.deployments.report.study_page import study_page
        from prefect_tune.flows.reporting.study_report import study_report

        found = study_report(opened, study)
        if out or not as_json:
            write_page(file, study_page(found), f"study {study}", is_silent=as_json)
        if as_json:
            print_json(found.to_json())
