"""Looking at studies: `prefect-tune show`, `trials`, `study ls`; and `study rm`."""

import click

from prefect_tune.deployments.commands.completing import complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE
from prefect_tune.deployments.commands.output import print_json, print_summary
from prefect_tune.deployments.commands.store import existing_store
from prefect_tune.deployments.views.plain import echo

__all__ = ["show", "study", "trials"]


@click.command()
@click.argument("study", shell_complete=complete_studies)
@JSON
@STORE
@DATABASE
def show(study: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show STUDY: its best pipeline, its trials, and what the cache saved."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.summary import summarize

        print_summary(summarize(opened, study), as_json=as_json, notes=True)


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.option("--failed", is_flag=True, help="List only failed trials, with their reasons.")
@JSON
@STORE
@DATABASE
def trials(
    study: str, *, failed: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """List the trials of STUDY."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.trials import print_trials
        from prefect_tune.flows.study.lookup import find_study, list_trials
        from prefect_tune.flows.study.plan import StudyPlan

        rows = list_trials(opened, study, failed_only=failed)
        plan = StudyPlan.from_stored(find_study(opened, study))
        print_json(rows) if as_json else print_trials(rows, plan.folds, plan.epochs)


@click.group()
def study() -> None:
    """Manage studies."""


@study.command("ls")
@JSON
@STORE
@DATABASE
def study_ls(*, as_json: bool, store: str | None, database: str | None) -> None:
    """List studies, newest first."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.study import print_studies
        from prefect_tune.flows.study.summary import summarize
        from prefect_tune.storage.ledger import Ledger

        rows = [summarize(opened, name) for name in Ledger(opened.database).study_names()]
        print_json(rows) if as_json else print_studies(rows)


@study.command("rm")
@click.argument("name", shell_complete=complete_studies)
@JSON
@STORE
@DATABASE
def study_rm(name: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Remove a study: its trials, and the records that no other study uses."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.remove import remove_study

        records = remove_study(opened, name)
        if as_json:
            print_json({"study": name, "records": records})
        else:
            echo(f"removed study {name} and {len(records)} records that only it used")
