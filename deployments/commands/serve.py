"""`prefect-tune serve` and `automations`: deployments, and notifications on their events."""

import click

from prefect_tune.deployments.commands.completing import complete_files
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import JSON
from prefect_tune.deployments.commands.output import print_json
from prefect_tune.deployments.views.console import echo


@click.command()
@click.option("--limit", default=1, show_default=True, help="Maximum number of concurrent studies.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them: prefect deployment run tune/healthcare.

    The command runs until you interrupt it. Schedules stay active or paused, as set in Prefect.
    """
    from prefect_tune.flows.interrupts import interrupts_taken

    with reported_errors(), interrupts_taken(lambda: echo("stopping ...", err=True)):
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: echo(text, err=True))


@click.command()
@click.argument("file", required=False, shell_complete=complete_files)
@JSON
def automations(*, file: str | None, as_json: bool) -> None:
    """Deploy automations: a webhook and a mail if a champion changes or a study fails.

    The automations use the blocks webhook/prefect-tune and sendgrid-email/prefect-tune. First
    create one or both in Prefect's UI. FILE has automations of your own. Existing automations of
    the same name are updated. The private server fires them while `prefect-tune serve` runs.
    """
    with reported_errors():
        from prefect_tune.deployments.automations import deploy_automations
        from prefect_tune.deployments.server.embedded import launched_server
        from prefect_tune.optimizers.converter import to_document

        with launched_server() as server:
            server.wait()
            deployed = deploy_automations(file)
        if as_json:
            print_json([to_document(automation) for automation in deployed])
            return
        for automation in deployed:
            state = "" if automation.is_enabled else " (inactive)"
            echo(f"{automation.name}{state}: {', '.join(automation.actions)}")
            for block in automation.left_out:
                echo(f"  left out, because there is no block {block}")
