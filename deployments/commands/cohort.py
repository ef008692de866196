"""`prefect-tune cohort`: a synthetic cohort as files."""

import click

from prefect_tune.deployments.commands.completing import complete_files
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import JSON
from prefect_tune.deployments.commands.output import atomic_output_folder, print_json
from prefect_tune.deployments.views.console import echo


@click.command()
@click.argument("name")
@click.option(
    "--out",
    required=True,
    metavar="FOLDER",
    help="Folder to write to; it must be empty or new.",
    shell_complete=complete_files,
)
@JSON
def cohort(name: str, *, out: str, as_json: bool) -> None:
    """Write the synthetic cohort NAME to FOLDER as MEDS data, and its planted signal to truth.json.

    NAME is demo or paper, optionally with options, such as demo?family=sum&seed=3. `run` takes a
    cohort as DATA with the prefix cohort:, such as cohort:demo.

    \b
    prefect-tune cohort demo --out meds
    prefect-tune run meds --labels labels/case
    """  # noqa: D301 - click reads the backspace
    with reported_errors():
        from prefect_tune.tasks.data.cohort import LABELS, cohort_named, generate, write_meds

        name = name.removeprefix("cohort:")
        spec = cohort_named(name)
        with atomic_output_folder(out) as folder:
            made = generate(spec)
            write_meds(made, f"cohort:{name}", folder)
        if as_json:
            counts = {"patients": len(made.labels), "events": len(made.events)}
            print_json({"out": out, "labels": LABELS, **counts, "truth": dict(made.truth)})
        else:
            echo(f"{len(made.labels)} patients with {len(made.events)} events in {out}")
            echo(f"tune on them: prefect-tune run {out} --labels {LABELS}")
