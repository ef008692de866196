"""Commands on studies: `prefect-tune show`, `trials`, `report`, `study ls` and `study rm`."""

from typing import TYPE_CHECKING

import click

from prefect_tune.deployments.commands.completing import complete_files, complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE, existing_store
from prefect_tune.deployments.commands.output import (
    TABLES,
    format_from_suffix,
    print_json,
    print_summary,
    write_table,
)
from prefect_tune.deployments.views.console import echo, echo_as_is
from prefect_tune.flows.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefect_tune.flows.reading.opened_study import OpenedStudy
    from prefect_tune.flows.reading.trial_detail import ExplainedTrial
    from prefect_tune.flows.reading.trial_view import TrialView
    from prefect_tune.flows.results.built_pipeline import TrialOutput
    from prefect_tune.storage.store import ArtifactStore


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option("--trial", type=int, metavar="N", help="Explain trial N.")
@click.option("--code", is_flag=True, help="Print Python code for the pipeline of trial N.")
@click.option("--output", is_flag=True, help="Print the output of trial N (last 1 MB).")
@JSON
@STORE
@DATABASE
def show(
    study: str,
    *,
    trial: int | None,
    code: bool,
    output: bool,
    as_json: bool,
    store: str | None,
    database: str | None,
) -> None:
    """Show the best pipeline, the trials and the cache savings of STUDY; or explain one trial.

    \b
    prefect-tune show responders --trial 12
    prefect-tune show responders --trial 12 --code > pipeline.py
    prefect-tune show responders --trial 12 --output
    """  # noqa: D301 - click reads the backspace
    with reported_errors(), existing_store(store, database) as opened:
        if trial is None:
            from prefect_tune.flows.reading.study_view import read_study
            from prefect_tune.tasks.bad_input import BadInput

            if code:
                raise BadInput(
                    "code belongs to one trial",
                    option="code",
                    remedy="add --trial N",
                )
            if output:
                raise BadInput(
                    "outputs belong to one trial", option="output", remedy="add --trial N"
                )
            print_summary(read_study(opened, study), as_json=as_json, notes=True)
        elif code:
            from prefect_tune.flows.results.built_pipeline import pipeline_code

            text = pipeline_code(opened, study, trial, lambda note: echo(note, err=True))
            if as_json:
                print_json({"study": study, "trial": trial, "code": text})
            else:
                echo_as_is(text, nl=False)
        elif output:
            from prefect_tune.flows.results.built_pipeline import trial_output

            _print_output(trial_output(opened, study, trial), as_json=as_json)
        else:
            from prefect_tune.flows.reading.trial_detail import explained_trial

            _print_trial(explained_trial(opened, study, trial), as_json=as_json)


def _print_output(output: "TrialOutput", *, as_json: bool) -> None:
    """Print the output of a trial, with each state of a progress bar on its own line."""
    if as_json:
        from prefect_tune.optimizers.converter import to_document

        print_json(to_document(output))
        return
    if output.missing:
        echo(output.missing, err=True)
    if output.is_cut:
        echo("earlier output was dropped", err=True)
    if output.output:
        lines = output.output.replace("\r\n", "\n").replace("\r", "\n")
        echo_as_is(shown(lines), nl=not lines.endswith("\n"))


def _print_trial(detail: "ExplainedTrial", *, as_json: bool) -> None:
    from prefect_tune.deployments.server.task_run_page import task_run_page

    page = task_run_page(detail.moments.task_run_id if detail.moments else None)
    if as_json:
        print_json({**detail.to_json(), "task_run_url": page})
    else:
        from prefect_tune.deployments.views.trial import print_trial

        print_trial(detail, task_run=page)


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option("--failed", is_flag=True, help="List only failed trials, with their reasons.")
@click.option(
    "--out",
    metavar="FILE",
    help="Write the trials as a table (.parquet or .csv).",
    shell_complete=complete_files,
)
@JSON
@STORE
@DATABASE
def trials(
    study: str,
    *,
    failed: bool,
    out: str | None,
    as_json: bool,
    store: str | None,
    database: str | None,
) -> None:
    """List the trials of STUDY, or write them as a table.

    The table has one row per trial and the columns of Optuna's `trials_dataframe`.
    """
    with reported_errors():
        if out is not None:
            format_from_suffix(out, TABLES, "out")
        with existing_store(store, database) as opened:
            if out is not None:
                _write_trials(opened, study, out, failed=failed, as_json=as_json)
            else:
                _print_trials(opened, study, failed=failed, as_json=as_json)


def _write_trials(
    store: "ArtifactStore", study: str, out: str, *, failed: bool, as_json: bool
) -> None:
    from prefect_tune.flows.output_files import check_output
    from prefect_tune.flows.results.trial_table import trial_table, writable

    check_output(out, store=store, studies=[study])
    table = trial_table(store, study)
    if failed:
        table = table[table["state"] == "FAIL"]
    write_table(writable(table), out)
    if as_json:
        print_json({"study": study, "out": out, "rows": len(table), "columns": list(table)})
    else:
        echo(f"{len(table)} trials of {study} in {out}")


def _print_trials(store: "ArtifactStore", study: str, *, failed: bool, as_json: bool) -> None:
    from prefect_tune.flows.reading.opened_study import open_study
    from prefect_tune.flows.study.plan import documents_of

    opened = open_study(store, study)
    with documents_of(study):
        trials = [trial.checked() for trial in opened.trials()]
    shown = [trial for trial in trials if trial.state == "failed"] if failed else trials
    if as_json:
        print_json([trial.to_json() for trial in shown])
        return
    from prefect_tune.deployments.views.trial import first_trials, print_trials

    print_trials(
        shown,
        opened.plan.whole,
        first=first_trials(trials),
        links=_task_run_links(opened, shown) if failed else {},
        empty="no failed trials" if failed else "no trials",
    )


def _task_run_links(study: "OpenedStudy", trials: "Sequence[TrialView]") -> dict[int, str]:
    from prefect_tune.deployments.server.task_run_page import task_run_page

    moments = study.moments() if trials else {}
    pages = {t.number: task_run_page(moments[t.number].task_run_id) for t in trials}
    return {number: page for number, page in pages.items() if page}


@click.group()
def study() -> None:
    """Manage studies."""


@study.command("ls")
@JSON
@STORE
@DATABASE
def study_ls(*, as_json: bool, store: str | None, database: str | None) -> None:
    """List studies, newest first. Damaged studies are reported on standard error."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.study import print_studies
        from prefect_tune.flows.reading.study_view import read_study
        from prefect_tune.storage.database import DatabaseDamaged
        from prefect_tune.storage.ledger import Ledger

        views = []
        for name in Ledger(opened.database).study_names():
            try:
                views.append(read_study(opened, name))
            except DatabaseDamaged as error:  # the others are listed
                echo(f"{error}", err=True)
        print_json([view.to_json() for view in views]) if as_json else print_studies(views)


@study.command("rm")
@click.argument("name", shell_complete=complete_studies)
@JSON
@STORE
@DATABASE
def study_rm(name: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Remove a study, its trials, and the records that no other study uses."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.reading.lookup import remove_study

        records = remove_study(opened, name)
        if as_json:
            print_json({"study": name, "records": records})
        else:
            echo(f"removed study {name} and {len(records)} records that no other study uses")


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option(
    "--out",
    metavar="FILE",
    help="HTML file to write.  [default: STUDY.html]",
    shell_complete=complete_files,
)
@JSON
@STORE
@DATABASE
def report(
    study: str, *, out: str | None, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write a report of STUDY: one HTML file that needs no network.

    The first screen shows the best pipeline, its loss, failures with reasons, cache savings, and
    the next commands. The sections below show the loss over time, the quality of the model on the
    test rows, the model's codes, tried combinations of algorithms, the importance of choices,
    times of steps, constraints, partial evaluations, the method's decisions, and a reproduction.

    --json prints the same contents as JSON. A file is then written only with --out.
    """
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.commands.output import write_page
        from prefect_tune.flows.output_files import check_output
        from prefect_tune.flows.reading.opened_study import open_study

        open_study(opened, study)
        file = out or f"{study}.html"
        if out or not as_json:
            check_output(file, store=opened, studies=[study])
        from prefect_tune.deployments.report.study_page import study_page, study_report
        from prefect_tune.optimizers.converter import to_document

        found = study_report(opened, study)
        if out or not as_json:
            write_page(file, study_page(found), f"study {study}", is_silent=as_json)
        if as_json:
            print_json({**to_document(found), "summary": found.summary.to_json()})
