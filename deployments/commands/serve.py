"""`prefect-tune serve` and `automations`: deployments, and notifications on their events."""

import click

from prefect_tune.deployments.commands.completing import complete_files
from prefect_tune.deployments.commands.options import printing
from prefect_tune.deployments.commands.output import emit
from prefect_tune.deployments.views.console import echo


@click.command()
@click.option("--limit", default=1, show_default=True, help="Maximum number of concurrent studies.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them: prefect deployment run tune/healthcare.

    The command runs until you interrupt it. Schedules stay active or paused, as set in Prefect.
    """
    from prefect_tune.flows.interrupts import interrupts_taken

    with interrupts_taken(lambda: echo("stopping ...", err=True)):
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: echo(text, err=True))


@click.command()
@click.argument("file", required=False, shell_complete=complete_files)
@printing
def automations(*, file: str | None) -> None:
    """Deploy automations: a webhook and a mail if a champion changes or a study fails.

    The automations use the blocks webhook/prefect-tune and sendgrid-email/prefect-tune. First
    create one or both in Prefect's UI. FILE has automations of your own. Existing automations of
    the same name are updated. The private server fires them while `prefect-tune serve` runs.
    """
    from prefect_tune.deployments.automations import deploy_automations
    from prefect_tune.deployments.server.embedded import launched_server
    from prefect_tune.optimizers.converter import to_document

    with launched_server() as server:
        server.wait()
        deployed = deploy_automations(file)
    lines = []
    for automation in deployed:
        state = "" if automation.is_enabled else " (inactive)"
        lines.append(f"{automation.name}{state}: {', '.join(automation.actions)}")
        lines += [f"  left out, because there is no block {name}" for name in automation.left_out]
    emit(lambda: [*map(to_document, deployed)], "\n".join(lines))
