"""Commands on studies: `prefect-tune show`, `trials`, `report`, `study ls` and `study rm`."""

from sys import maxsize
from typing import TYPE_CHECKING

import click

from prefect_tune.deployments.cli.completing import complete_files, complete_studies
from prefect_tune.deployments.cli.options import RARE_VALUES, reading_store
from prefect_tune.deployments.cli.output import (
    TABLES,
    emit,
    format_from_suffix,
    print_json,
    print_summary,
    wants_json,
    write_page,
    write_table,
)
from prefect_tune.deployments.views.console import echo, echo_as_is
from prefect_tune.flows.wording.text import counted, printable

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore


@click.command()
@click.argument("study", required=False, shell_complete=complete_studies)
@click.option("--trial", type=int, metavar="N", help="Explain trial N.")
@click.option("--code", is_flag=True, help="Print Python code for the pipeline of trial N.")
@click.option("--output", is_flag=True, help="Print the output of trial N (last 1 MB).")
@reading_store
def show(
    store: "ArtifactStore", study: str | None, *, trial: int | None, code: bool, output: bool
) -> None:
    """Show the results of STUDY, or list the newest studies.

    If STUDY is the name of a series, the newest study of the series is used. --trial explains a
    single trial. `prefect-tune study ls` lists all studies.

    \b
    prefect-tune show responders --trial 12
    prefect-tune show responders --trial 12 --code > pipeline.py
    prefect-tune show responders --trial 12 --output
    """  # noqa: D301 - click reads the backspace
    if study is None:
        if trial is not None or code or output:
            raise click.UsageError("Missing argument 'STUDY'.")
        _list_studies(store, most=10)
        return
    from prefect_tune.flows.reading.opened_study import explained_trial, study_or_newest

    study = study_or_newest(store, study).name
    if trial is None:
        from prefect_tune.flows.reading.study_view import read_study
        from prefect_tune.tasks.bad_input import BadInput

        if code or output:
            option = "code" if code else "output"
            raise BadInput("the option needs a trial number", option=option, remedy="add --trial N")
        print_summary(read_study(store, study), notes=True)
    elif code:
        from prefect_tune.flows.results.built_pipeline import pipeline_code

        text = pipeline_code(store, study, trial, lambda note: echo(note, err=True))
        document = {"study": study, "trial": trial, "code": text}
        emit(lambda: document, lambda: echo_as_is(text, nl=False))
    elif output:
        from prefect_tune.flows.results.built_pipeline import trial_output
        from prefect_tune.optimizers.documents import to_document

        found = trial_output(store, study, trial)
        if wants_json():
            print_json(to_document(found))
            return
        if found.missing:
            echo(found.missing, err=True)
        if found.is_cut:
            echo("earlier output was dropped", err=True)
        if found.output:  # puts each state of a progress bar on a separate line
            lines = found.output.replace("\r\n", "\n").replace("\r", "\n")
            echo_as_is(printable(lines), nl=not lines.endswith("\n"))
    else:
        from prefect_tune.deployments.server.embedded import task_run_page
        from prefect_tune.deployments.views.trial import print_trial

        explained = explained_trial(store, study, trial)
        moments = explained.moments
        page = task_run_page(moments.task_run_id if moments else None)
        document = {**explained.to_json(), "task_run_url": page}
        emit(lambda: document, lambda: print_trial(explained, task_run=page))


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option("--failed", is_flag=True, help="List only failed trials, with their reasons.")
@click.option(
    "--out",
    metavar="FILE",
    help="Write the trials as a table (.parquet or .csv).",
    shell_complete=complete_files,
)
@reading_store
def trials(store: "ArtifactStore", study: str, *, failed: bool, out: str | None) -> None:
    """List the trials of STUDY, or write the trials to a file.

    If STUDY is the name of a series, the newest study of the series is used. The file is a table
    with one row per trial and the columns of Optuna's `trials_dataframe`.
    """
    from prefect_tune.flows.reading.opened_study import study_or_newest

    opened = study_or_newest(store, study)
    study = opened.name
    if out is None:
        from prefect_tune.deployments.views.trial import first_trials, print_trials
        from prefect_tune.flows.study.plan import documents_of

        with documents_of(study):
            every = list(opened.trials())
            listed = [trial for trial in every if trial.state == "failed"] if failed else every
            empty = "no failed trials" if failed else "no trials"
            emit(
                lambda: [trial.to_json() for trial in listed],
                lambda: print_trials(listed, opened.plan, first_trials(every), empty=empty),
            )
        return
    from prefect_tune.flows.results.trial_table import trial_table, writable
    from prefect_tune.flows.starting.output_files import check_output

    format_from_suffix(out, TABLES, "out")
    check_output(out, store=store, studies=[study])
    table = trial_table(store, study)
    if failed:
        table = table[table["state"] == "FAIL"]
    write_table(writable(table), out)
    emit(
        lambda: {"study": study, "out": out, "rows": len(table), "columns": list(table)},
        f"wrote {len(table)} trials of {study} to {out}",
    )


@click.group()
def study() -> None:
    """List and remove studies."""


@study.command("ls")
@reading_store
def study_ls(store: "ArtifactStore") -> None:
    """List studies, newest first. Damaged studies are reported on standard error."""
    _list_studies(store)


def _list_studies(store: "ArtifactStore", most: int = maxsize) -> None:
    from prefect_tune.deployments.views.study import print_studies
    from prefect_tune.flows.reading.study_view import read_study
    from prefect_tune.storage.database import DatabaseDamaged
    from prefect_tune.storage.ledger import Ledger

    views, names = [], Ledger(store.database).study_names()
    for name in names[:most]:
        try:
            views.append(read_study(store, name))
        except DatabaseDamaged as error:  # all other studies are listed
            echo(f"{error}", err=True)
    emit(lambda: [v.to_json() for v in views], lambda: print_studies(views, len(names[most:])))


@study.command("rm")
@click.argument("name", shell_complete=complete_studies)
@reading_store
def study_rm(store: "ArtifactStore", name: str) -> None:
    """Remove a study, its trials, and the records that only this study uses."""
    from prefect_tune.flows.reading.lookup import remove_study

    records = remove_study(store, name)
    emit(
        lambda: {"study": name, "records": records},
        f"removed study {name} and {counted(len(records), 'record')} that no other study uses",
    )


@click.command(short_help="Write a report of STUDY: one HTML file that needs no network.")
@click.argument("study", shell_complete=complete_studies)
@click.option(
    "--out",
    metavar="FILE",
    help="HTML file to write.  [default: STUDY.html]",
    shell_complete=complete_files,
)
@RARE_VALUES
@reading_store
def report(store: "ArtifactStore", study: str, *, out: str | None, rare_values: bool) -> None:
    """Write a report of STUDY: one HTML file that needs no network.

    If STUDY is the name of a series, the newest study of the series is used. The first screen shows
    the result and useful commands. The sections below show the quality of the model on the test
    rows, the columns or codes that the model uses, the data, the members of the model, the search,
    times of steps and failures, and commands that reproduce the study.

    With --json, the same tables are printed as JSON, and a file is written only if --out is given.
    """
    from prefect_tune.flows.reading.opened_study import study_or_newest
    from prefect_tune.flows.starting.output_files import check_output

    study = study_or_newest(store, study).name
    file = out or (None if wants_json() else f"{study}.html")
    if file is not None:
        check_output(file, store=store, studies=[study])
    from prefect_tune.deployments.report.study_page import study_page
    from prefect_tune.deployments.report.study_report import study_report

    found = study_report(store, study, rare_values=rare_values)
    if file is not None:
        write_page(file, study_page(found), f"study {study}", is_silent=wants_json())
    if wants_json():
        print_json(found.to_json())
