"""`prefect-tune cohort`: writes a synthetic cohort to files."""

import click

from prefect_tune.deployments.cli.completing import complete_files
from prefect_tune.deployments.cli.options import printing
from prefect_tune.deployments.cli.output import atomic_output_folder, emit


@click.command()
@click.argument("name")
@click.option(
    "--out",
    required=True,
    metavar="FOLDER",
    help="Folder to write to; it must be empty or new.",
    shell_complete=complete_files,
)
@printing
def cohort(name: str, *, out: str) -> None:
    """Write the synthetic cohort NAME to FOLDER as MEDS data.

    The file truth.json describes the signal that is planted in the data. NAME is demo or paper,
    optionally with options, such as demo?family=sum&seed=3. You can also pass a cohort to `run` as
    DATA, with the prefix cohort:, such as cohort:demo.

    \b
    prefect-tune cohort demo --out meds
    prefect-tune run meds --labels labels/case
    """  # noqa: D301 - click reads the backspace
    from prefect_tune.tasks.data.cohort import LABELS, cohort_named, generate, write_meds

    name = name.removeprefix("cohort:")
    spec = cohort_named(name)
    with atomic_output_folder(out) as folder:
        made = generate(spec)
        write_meds(made, f"cohort:{name}", folder)
    counts = {"patients": len(made.labels), "events": len(made.events)}
    emit(
        lambda: {"out": out, "labels": LABELS, **counts, "truth": dict(made.truth)},
        f"{len(made.labels)} patients with {len(made.events)} events in {out}\n"
        f"tune on them: prefect-tune run {out} --labels {LABELS}",
    )
