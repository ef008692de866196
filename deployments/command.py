"""The command line `prefect-tune`.

Nothing heavy is imported before a command runs, so that help comes at once. With `--json` standard
output holds the result and nothing else; what is said along the way goes to standard error.
"""

import json
import re
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.artifacts import artifacts
from prefect_tune.deployments.commands.catalogue import methods, spaces
from prefect_tune.deployments.commands.compare import compare, standings
from prefect_tune.deployments.commands.flow_run import add_options, grouped_by, run_flow
from prefect_tune.deployments.commands.parts import (
    DATABASE,
    JSON,
    STORE,
    existing_store,
    print_json,
    told_plainly,
    written,
    written_folder,
)
from prefect_tune.deployments.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.preparation.options import OPTIONS

if TYPE_CHECKING:
    from prefect_tune.flows.preparation.plan import Prepared

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="prefect-tune")
def main() -> None:
    """Tune whole data-analytic pipelines on Prefect: which algorithm at each step, and how set.

    Start with `prefect-tune run cohort:demo`, then `prefect-tune run table.csv --target COLUMN`.
    """
    set_defaults(QUIET_CONSOLE)


@main.command(cls=grouped_by(OPTIONS))
@add_options(OPTIONS)
@JSON
@click.option("--json-lines", is_flag=True, help="Print each trial as a line of JSON as it ends.")
@click.option("--quiet", is_flag=True, help="Say nothing along the way.")
@click.option("--keep-server", is_flag=True, help="Leave the embedded Prefect server up.")
def run(
    *, as_json: bool, json_lines: bool, quiet: bool, keep_server: bool, **parameters: Any
) -> None:
    """Tune a pipeline on DATA, or continue a study.

    DATA is a table as CSV(.gz), Parquet or ARFF (name the column to predict with --target); patient
    events as a table or as a folder of MEDS, OMOP or Synthea (name the labels with --labels);
    sklearn:NAME for a set that scikit-learn brings; or cohort:demo. What it is taken for is said.

    \b
    prefect-tune run cohort:demo
    prefect-tune run patients.csv --target responder --trials 50
    prefect-tune run /data/meds --labels labels/responder --budget 1h --study responders

    Shown as it goes: the best trial, trials done and failed, the budget left, and what the cache
    saved. Interrupt it at any time; the same command with the same --study goes on where it was.
    """  # noqa: D301 - click reads the backspace

    def prepare_study() -> "Prepared":
        from prefect_tune.flows.preparation.plan import prepare
        from prefect_tune.flows.preparation.settings import TuneSettings

        parameters["option"] = _assignments(parameters["option"])
        for name in ("drop", "categorical", "constraint"):
            parameters[name] = list(parameters[name]) or None
        return prepare(TuneSettings.parse(parameters))

    def tune_study(preparation: "Prepared") -> dict[str, Any]:
        from prefect_tune.flows.preparation.plan import prepared
        from prefect_tune.flows.tuning import tune

        with prepared(preparation):
            summary: dict[str, Any] = tune(**{**parameters, "study": preparation.study})
        return summary

    summary = run_flow(
        prepare_study, tune_study, quiet=quiet, json_lines=json_lines, keep_server=keep_server
    )
    _print_summary(summary, as_json=as_json, silent=json_lines)


@main.command()
@click.argument("study")
@JSON
@STORE
@DATABASE
def show(study: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show what came of STUDY: its best pipeline, its trials, and what the cache saved."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.summary import summarize

        _print_summary(summarize(opened, study), as_json=as_json)


@main.command()
@click.argument("study")
@click.option("--failed", is_flag=True, help="Only failed trials, with their reasons.")
@JSON
@STORE
@DATABASE
def trials(
    study: str, *, failed: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """List the trials of STUDY."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.study import print_trials
        from prefect_tune.flows.study.summary import list_trials

        rows = list_trials(opened, study, failed_only=failed)
        print_json(rows) if as_json else print_trials(rows)


def _of_study(name: str) -> str:
    """Help of an option whose default is what the study was run with."""
    return OPTIONS[name].help.partition("  [default")[0] + "  [default: the study's]"


@main.command()
@click.argument("study")
@click.option("--trial", type=int, multiple=True, help="Number of a failed trial (repeatable).")
@click.option("--workers", type=int, metavar="N", help=OPTIONS["workers"].help)
@click.option("--dask", metavar="ADDRESS", help=OPTIONS["dask"].help)
@click.option("--task-runs", metavar="WHICH", help=OPTIONS["task_runs"].help)
@click.option("--trial-timeout", metavar="TIME", help=_of_study("trial_timeout"))
@click.option("--trial-memory", metavar="SIZE", help=_of_study("trial_memory"))
@STORE
@DATABASE
@JSON
@click.option("--quiet", is_flag=True, help="Say nothing along the way.")
@click.option("--keep-server", is_flag=True, help="Leave the embedded Prefect server up.")
def retry(
    study: str,
    *,
    trial: tuple[int, ...],
    as_json: bool,
    quiet: bool,
    keep_server: bool,
    **where: Any,
) -> None:
    """Run failed trials of STUDY again; steps that were done before the failure are not redone."""
    numbers = list(trial) or None
    with told_plainly(), existing_store(where["store"], where["database"]) as opened:
        from prefect_tune.flows.study.summary import failed_trials, summarize

        if numbers is None and not failed_trials(opened, study):
            click.echo(f"no trial of study {study} has failed", err=True)
            _print_summary(summarize(opened, study), as_json=as_json)
            return

    def prepare_study() -> "Prepared":
        from prefect_tune.flows.preparation.plan import prepare_retry

        return prepare_retry(study, numbers, **where)

    def retry_study(preparation: "Prepared") -> dict[str, Any]:
        from prefect_tune.flows.preparation.plan import prepared
        from prefect_tune.flows.retrying import retry as retry_flow

        with prepared(preparation):
            summary: dict[str, Any] = retry_flow(study, numbers, **where)
        return summary

    summary = run_flow(
        prepare_study, retry_study, quiet=quiet, json_lines=False, keep_server=keep_server
    )
    _print_summary(summary, as_json=as_json)


main.add_command(artifacts)
main.add_command(spaces)
main.add_command(methods)
main.add_command(compare)
main.add_command(standings)


@main.group()
def study() -> None:
    """Manage studies."""


@study.command("ls")
@JSON
@STORE
@DATABASE
def study_ls(*, as_json: bool, store: str | None, database: str | None) -> None:
    """List studies, newest first."""
    with told_plainly(), existing_store(store, database) as opened:
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
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.remove import remove_study

        records = remove_study(opened, name)
        if as_json:
            print_json({"study": name, "records": records})
        else:
            click.echo(f"study {name} is gone, and {len(records)} records that only it used")


@main.command()
@click.argument("study")
@click.argument("data")
@click.option("--labels", metavar="PATH", help="For events: patients and prediction times.")
@click.option("--out", default="predictions.parquet", show_default=True, metavar="FILE")
@JSON
@STORE
@DATABASE
def predict(
    study: str,
    data: str,
    *,
    labels: str | None,
    out: str,
    as_json: bool,
    store: str | None,
    database: str | None,
) -> None:
    """Predict the rows of DATA with the final model of STUDY.

    DATA has the form of the training data; a target column is not needed. FILE (.parquet or .csv)
    gets the columns `prediction` and `probability_<class>`, one row per row.
    """
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.predict import predict as predict_rows

        frame = predict_rows(opened, study, data, labels)
        with written(out) as path:
            if out.endswith(".csv"):
                frame.to_csv(path, index=False)
            else:
                frame.to_parquet(path, index=False)
        if as_json:
            print_json({"rows": len(frame), "columns": list(frame.columns), "out": out})
        else:
            click.echo(f"{len(frame)} predictions in {out}")


@main.command()
@click.argument("study")
@click.argument("file")
@JSON
@STORE
@DATABASE
def export(
    study: str, file: str, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write the final model of STUDY to FILE, a pickled Pipeline of scikit-learn."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.predict import final_model
        from prefect_tune.tasks.user_code import portable_pickle

        model, about = final_model(opened, study)
        with written(file) as path:
            path.write_bytes(portable_pickle(model))
        if as_json:
            print_json({"out": file, **about})
        else:
            click.echo(f"the model of trial {about['trial']} is in {file}")


@main.command()
@click.argument("name")
@click.option("--out", required=True, metavar="FOLDER", help="A folder that is empty or not there.")
@JSON
def cohort(name: str, *, out: str, as_json: bool) -> None:
    """Write the synthetic cohort NAME to FOLDER as a MEDS data set, with what was planted in it.

    NAME is demo or paper, with options if you like: demo?family=sum&seed=3. The same with cohort:
    before it is the DATA of `run`.

    \b
    prefect-tune cohort demo --out meds
    prefect-tune run meds --labels labels/case
    """  # noqa: D301 - click reads the backspace
    with told_plainly():
        from prefect_tune.tasks.data.cohort import cohort_named, generate
        from prefect_tune.tasks.data.cohort_meds import LABELS, write_meds

        name = name.removeprefix("cohort:")
        spec = cohort_named(name)
        with written_folder(out) as folder:
            made = generate(spec)
            write_meds(made, f"cohort:{name}", folder)
        if as_json:
            counts = {"patients": len(made.labels), "events": len(made.events)}
            print_json({"out": out, "labels": LABELS, **counts, "truth": dict(made.truth)})
        else:
            click.echo(f"{len(made.labels)} patients with {len(made.events)} events in {out}")
            click.echo(f"tune on them: prefect-tune run {out} --labels {LABELS}")


@main.command()
@click.option("--limit", default=1, show_default=True, help="Studies at the same time.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them: prefect deployment run tune/healthcare.

    Runs until interrupted. Schedules keep running or resting as they are set in Prefect.
    """
    with told_plainly():
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: click.echo(text, err=True))


def _assignments(texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of a method from `NAME=VALUE`; values are JSON where they can be."""
    from prefect_tune.tasks.bad_input import BadInput

    options: dict[str, Any] = {}
    for text in texts:
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text)
        if match is None:
            raise BadInput(f"--option {text}: write NAME=VALUE")
        try:
            options[match[1]] = json.loads(match[2])
        except ValueError:
            options[match[1]] = match[2]
    return options


def _print_summary(summary: dict[str, Any], *, as_json: bool, silent: bool = False) -> None:
    if as_json:
        print_json(summary)
    elif not silent:
        from prefect_tune.deployments.views.study import print_summary

        print_summary(summary)
