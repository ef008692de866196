"""Looking at studies: `prefect-tune show`, `trials`, `study ls`; and `study rm`."""

from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE
from prefect_tune.deployments.commands.output import print_json, print_summary
from prefect_tune.deployments.commands.store import existing_store
from prefect_tune.deployments.views.plain import echo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prefect_tune.storage.store import ArtifactStore

__all__ = ["show", "study", "trials"]


@click.command()
@click.argument("study")
@JSON
@STORE
@DATABASE
def show(study: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show STUDY: its best pipeline, its trials, and what the cache saved."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.summary import summarize

        print_summary(summarize(opened, study), as_json=as_json, notes=True)


@click.command()
@click.argument("study")
@click.option("--failed", is_flag=True, help="List only failed trials, with their reasons.")
@JSON
@STORE
@DATABASE
def trials(
    study: str, *, failed: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """List the trials of STUDY."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.lookup import list_trials

        rows = list_trials(opened, study)
        shown = [row for row in rows if row["state"] == "failed"] if failed else rows
        if as_json:
            print_json(shown)
            return
        from prefect_tune.deployments.views.trials import first_trials, print_trials
        from prefect_tune.flows.study.lookup import find_study
        from prefect_tune.flows.study.plan import StudyPlan

        plan = StudyPlan.from_stored(find_study(opened, study))
        print_trials(
            shown,
            plan.folds,
            plan.epochs,
            first=first_trials(rows),
            links=_task_run_links(opened, study, shown) if failed else {},
        )


def _task_run_links(
    opened: "ArtifactStore", study: str, rows: "Sequence[Mapping[str, Any]]"
) -> dict[int, str]:
    """Return where Prefect shows the task runs of trials, if a server is known."""
    from prefect_tune.deployments.server import known_ui
    from prefect_tune.flows.following.task_runs import task_runs_of
    from prefect_tune.storage.ledger import Ledger

    if not rows or (ui := known_ui()) is None:
        return {}
    found = task_runs_of(Ledger(opened.database), study, {row["number"] for row in rows})
    return {number: f"{ui}/runs/task-run/{task_run}" for number, task_run in found.items()}


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
@click.argument("name")
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
