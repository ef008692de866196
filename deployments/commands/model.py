"""Using the final model of a study: `prefect-tune predict` and `export`."""

import click

from prefect_tune.deployments.commands.completing import complete_files, complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE
from prefect_tune.deployments.commands.output import print_json, written
from prefect_tune.deployments.commands.store import existing_store
from prefect_tune.deployments.views.plain import echo

__all__ = ["export", "predict"]


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.argument("data", shell_complete=complete_files)
@click.option(
    "--labels",
    metavar="PATH",
    help="For events: patients and prediction times.",
    shell_complete=complete_files,
)
@click.option(
    "--out",
    default="predictions.parquet",
    show_default=True,
    metavar="FILE",
    shell_complete=complete_files,
)
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

    DATA has the form of the training data and needs no target column. FILE (.parquet or .csv) gets
    the columns `prediction` and `probability_<class>`, a row for each row of DATA.
    """
    with reported_errors(), existing_store(store, database) as opened:
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
            echo(f"{len(frame)} predictions in {out}")


@click.command()
@click.argument("study", shell_complete=complete_studies)
@click.argument("file", shell_complete=complete_files)
@JSON
@STORE
@DATABASE
def export(
    study: str, file: str, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write the final model of STUDY to FILE, a pickled estimator of scikit-learn."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.study.predict import final_model
        from prefect_tune.tasks.user_code import portable_pickle

        model, about = final_model(opened, study)
        with written(file) as path:
            path.write_bytes(portable_pickle(model))
        if as_json:
            print_json({"out": file, **about})
        else:
            members = [str(member["trial"]) for member in about["members"]]
            trials = f"trial {members[0]}" if len(members) == 1 else f"trials {', '.join(members)}"
            echo(f"the model of {trials} is in {file}")
