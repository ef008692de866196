"""`prefect-tune serve`: deployments."""

import click

from prefect_tune.deployments.views.console import echo


@click.command()
@click.option("--limit", default=1, show_default=True, help="Maximum number of concurrent studies.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them: prefect deployment run tune/healthcare.

    The command runs until you interrupt it. Schedules stay active or paused, as set in Prefect.
    """
    from prefect_tune.flows.running.interrupts import interrupts_taken

    with interrupts_taken(lambda: echo("stopping ...", err=True)):
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: echo(text, err=True))
