"""`prefect-tune run`, `retry` for failed trials, and `serve` for deployments."""

import json
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_studies
from prefect_tune.deployments.cli.flow_run import quick_imports, run_flow
from prefect_tune.deployments.cli.options import (
    DATABASE,
    HELP_ALL,
    KEEP_SERVER,
    QUIET,
    STORE,
    add_options,
    check_named,
    existing_store,
    grouped_by,
    printing,
)
from prefect_tune.deployments.cli.output import emit, print_result, print_summary, wants_json
from prefect_tune.flows.options.declared import OPTIONS, StudyOptions

if TYPE_CHECKING:
    from prefect_tune.flows.starting.prepare import PreparedStudy

from prefect_tune.deployments.views.console import echo, echo_as_is


@click.command(cls=grouped_by(OPTIONS))
@add_options(OPTIONS)
@printing
@click.option("--json-lines", is_flag=True, help="Print each finished trial as a line of JSON.")
@click.option("--explain-labels", is_flag=True, help="List labels that cannot be right, and exit.")
@QUIET
@KEEP_SERVER
@HELP_ALL
def run(
    *,
    json_lines: bool,
    explain_labels: bool,
    quiet: bool,
    keep_server: bool,
    **parameters: Any,
) -> None:
    """Find the best pipeline for DATA, or resume a study.

    \b
    prefect-tune run cohort:demo
    prefect-tune run patients.csv --target responder --trials 50
    prefect-tune run /data/meds --labels labels/responder --budget 1h --study responders

    You can interrupt a run at any time. To resume the study, rerun the command with --study.
    """  # noqa: D301 - click reads the backspace
    since = monotonic()
    from prefect_tune.flows.options.values import parse_assignment
    from prefect_tune.tasks.bad_input import BadInput

    try:
        parameters["option"] = dict(map(parse_assignment, parameters["option"]))
    except ValueError as error:
        raise BadInput(f"--option {error}") from None
    options = StudyOptions.parse(parameters)
    if options.study is None and options.series is None:  # an existing study has a copy
        check_named(options)
    if explain_labels:
        from prefect_tune.tasks.data.reading import explained_labels

        faults = explained_labels(options.source)
        emit(
            lambda: json.loads(faults.to_json(orient="records", date_format="iso")),
            lambda: echo_as_is(faults.to_csv(index=False)),
        )
        return

    def prepare_study() -> "PreparedStudy":
        from prefect_tune.flows.series.next_study import prepare_run
        from prefect_tune.flows.starting.study_input import StudyRequest

        request = StudyRequest.of(options)
        return prepare_run(request, request.open_store())

    def tune_study(prepared: "PreparedStudy") -> dict[str, Any]:
        with quick_imports():
            from prefect_tune.flows.starting.prepare import HANDOVER
            from prefect_tune.flows.tune import tune

        given = prepared.named(parameters)
        # Notes were already shown, and the budget counts from the start of the command.
        with HANDOVER.offered(given, replace(prepared, has_shown_notes=True, since=since)):
            summary: dict[str, Any] = tune(**given)
        return summary

    summary = run_flow(
        prepare_study, tune_study, quiet=quiet, json_lines=json_lines, keep_server=keep_server
    )
    if not json_lines or wants_json():
        print_result(summary)


def _of_study(name: str) -> str:
    """Return the help text of an option that defaults to the study's value."""
    return replace(OPTIONS[name], default_text="the study's").help


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option("--trial", type=int, multiple=True, help="Number of a failed trial (repeatable).")
@click.option("--workers", type=int, metavar="N", help=OPTIONS["workers"].help)
@click.option("--dask", metavar="ADDRESS", help=OPTIONS["dask"].help)
@click.option("--task-runs", metavar="WHICH", help=OPTIONS["task_runs"].help)
@click.option("--trial-timeout", metavar="TIME", help=_of_study("trial_timeout"))
@click.option("--trial-memory", metavar="SIZE", help=_of_study("trial_memory"))
@STORE
@DATABASE
@printing
@QUIET
@KEEP_SERVER
def retry(
    study: str,
    *,
    trial: tuple[int, ...],
    quiet: bool,
    keep_server: bool,
    **where: Any,
) -> None:
    """Rerun failed trials of STUDY.

    Steps that finished before the failure are reused. If STUDY is the name of a series, the newest
    study of the series is used.
    """
    numbers = list(trial) or None
    with existing_store(where["store"], where["database"]) as opened:
        from prefect_tune.flows.reading.opened_study import study_or_newest
        from prefect_tune.flows.reading.study_view import read_study

        found = study_or_newest(opened, study)
        study = found.name
        if numbers is None and not found.failed():
            echo(f"study {study} has no failed trials", err=True)
            print_summary(read_study(opened, study), notes=True)
            return

    def prepare_study() -> "PreparedStudy":
        from prefect_tune.flows.starting.prepare import prepare_retry

        return prepare_retry(study, numbers, where)

    def retry_study(prepared: "PreparedStudy") -> dict[str, Any]:
        with quick_imports():
            from prefect_tune.flows.starting.prepare import HANDOVER
            from prefect_tune.flows.tune import retry as retry_flow

        given = {"study": study, "trial": numbers, **where}
        with HANDOVER.offered(given, prepared):
            summary: dict[str, Any] = retry_flow(**given)
        return summary

    summary = run_flow(
        prepare_study, retry_study, quiet=quiet, json_lines=False, keep_server=keep_server
    )
    print_result(summary)


@click.command()
@click.option("--limit", default=1, show_default=True, help="Maximum number of concurrent studies.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them.

    \b
    prefect deployment run tune/healthcare

    The deployments are served until you interrupt the command. Schedules stay active or paused, as
    set in Prefect.
    """  # noqa: D301 - click reads the backspace
    from prefect_tune.flows.running.interrupts import interrupts_taken

    with interrupts_taken(lambda: echo("stopping ...", err=True)):
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: echo(text, err=True))
