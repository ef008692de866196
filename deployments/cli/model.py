"""Commands on a study's final model: `prefect-tune predict` and `prefect-tune export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefect_tune.deployments.cli.completing import (
    complete_files,
    complete_series,
    complete_studies,
)
from prefect_tune.deployments.cli.options import RARE_VALUES, reading_store
from prefect_tune.deployments.cli.output import (
    TABLES,
    atomic_output,
    emit,
    format_from_suffix,
    write_table,
)
from prefect_tune.deployments.views.console import echo

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore

_SERIES = click.option(
    "--series",
    metavar="NAME",
    help="Use the champion of this series, in place of STUDY.",
    shell_complete=complete_series,
)
_MODELS = {".pkl": "pickle", ".pickle": "pickle", ".skops": "skops"}
"""Formats of models by file suffix."""


@click.command()
@click.argument("study", required=False, shell_complete=complete_studies)
@click.argument("data", required=False, metavar="DATA", shell_complete=complete_files)
@_SERIES
@click.option(
    "--labels",
    metavar="PATH",
    help="Patients and prediction times (events only).",
    shell_complete=complete_files,
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="COLUMN",
    help="Column of DATA to write beside the predictions (tables only). Can be repeated.",
)
@click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave predictions empty for rows with unreadable cells.",
)
@click.option(
    "--out",
    default="predictions.parquet",
    show_default=True,
    metavar="FILE",
    shell_complete=complete_files,
)
@reading_store
def predict(
    store: "ArtifactStore",
    study: str | None,
    data: str | None,
    *,
    series: str | None,
    labels: str | None,
    ids: tuple[str, ...],
    skip_bad_rows: bool,
    out: str,
) -> None:
    """Predict the target for rows of DATA with the final model of STUDY.

    DATA has the form of the training data and needs no target column. Each row is read according to
    the schema of the training data, independently of other rows. FILE (.parquet or .csv) gets one
    row for each row of DATA, in the same order. The columns are the --id columns, `prediction` and,
    if available, `probability_<class>`. Values that never occur in the training rows are counted by
    column. For patient events, --labels names the rows to predict:

        prefect-tune predict icu events_of_may --labels labels_of_may.parquet
        prefect-tune predict --series nightly events_of_may --labels labels_of_may.parquet
    """
    study, data = _arguments(series, study, data, "DATA")
    format_from_suffix(out, TABLES, "out")
    from prefect_tune.flows.results.predict import UNSEEN
    from prefect_tune.flows.results.predict import predict as predict_rows
    from prefect_tune.flows.starting.output_files import check_output

    study, record = _model(store, series, study)
    check_output(out, [data, labels], store, [study])
    frame = predict_rows(
        store, study, data, labels, skip_bad_rows=skip_bad_rows, record=record, ids=ids
    )
    unseen = frame.attrs.pop(UNSEEN)
    write_table(frame, out)
    n_predicted = int(frame.prediction.notna().sum())
    counts = {"rows": len(frame), "predicted": n_predicted, UNSEEN: unseen}
    by = f" by {study}, the champion of {series}" if series else ""
    emit(
        lambda: {"study": study, **counts, "columns": list(frame.columns), "out": out},
        f"wrote {n_predicted} predictions{by} to {out}",
    )


def _arguments(
    series: str | None, first: str | None, second: str | None, name: str
) -> tuple[str, str]:
    """Return study and file. If a series is given, the first argument is the file."""
    if series is None and first is not None and second is not None:
        return first, second
    if series is not None and first is not None and second is None:
        return "", first
    if series is not None and second is not None:
        raise click.UsageError("--series names the model, so leave out STUDY.")
    missing = f"'{name}'" if first is not None or series is not None else "'STUDY'"
    raise click.UsageError(f"Missing argument {missing}.")


def _model(store: "ArtifactStore", series: str | None, study: str) -> tuple[str, str | None]:
    """Return the study and, for the champion of a series, the record id of the model.

    Warns if the model of a study is useless.
    """
    if series is None:
        from prefect_tune.flows.reading.study_view import read_study

        if useless := read_study(store, study).uselessness:
            echo(f"warning: {useless}", err=True)
        return study, None
    from prefect_tune.flows.reading.lookup import champion_of

    champion = champion_of(store, series)
    return champion.study, champion.record


@click.command()
@click.argument("study", required=False, shell_complete=complete_studies)
@click.argument("file", required=False, metavar="FILE", shell_complete=complete_files)
@_SERIES
@click.option(
    "--matrix",
    is_flag=True,
    help="Omit the first step, which reads rows by the schema of the training data.",
)
@click.option("--no-card", is_flag=True, help="Write no model card.")
@RARE_VALUES
@reading_store
def export(
    store: "ArtifactStore",
    study: str | None,
    file: str | None,
    *,
    series: str | None,
    matrix: bool,
    no_card: bool,
    rare_values: bool,
) -> None:
    """Write the final model of STUDY to FILE, with a model card.

    FILE is a pickle (.pkl) or a skops file (.skops) of a scikit-learn estimator. Loading a skops
    file runs no code. A pickle loads without prefect-tune, unless the rows are patient events. A
    model trained on a table accepts DataFrames, and treats them as `prefect-tune predict` treats
    files. The first step of the model reads rows by the schema of the training data. A pickle
    contains the code of the first step. With --matrix, the model omits the first step, and takes
    numbers and pandas categories. The pickle then contains code of prefect-tune only if another
    step is a class of prefect-tune.

    The model card is a Markdown file (.md) with the name of FILE. If a file with the card's name
    exists and is not a model card, nothing is written.
    """
    study, file = _arguments(series, study, file, "FILE")
    file_format, card_file = format_from_suffix(file, _MODELS), Path(file).with_suffix(".md")
    use, card = "", None
    from prefect_tune.deployments.views.exported import print_exported
    from prefect_tune.flows.results.exported import export as export_model
    from prefect_tune.flows.starting.output_files import check_output

    study, record = _model(store, series, study)
    for output in [file, *([] if no_card else [str(card_file)])]:
        check_output(output, store=store, studies=[study])
    if not no_card:
        from prefect_tune.flows.results.model_card import card_facts, model_card, written_use

        use = written_use(card_file)
    exported = export_model(store, study, file_format, of_matrix=matrix, record=record)
    if not no_card:
        facts = card_facts(store, exported, rare_values=rare_values)
        card = model_card(facts, Path(file).name, use)
    with atomic_output(file) as path:
        path.write_bytes(exported.data)
    if card is not None:
        with atomic_output(str(card_file)) as path:
            path.write_text(card, encoding="utf-8")
    named = None if card is None else str(card_file)
    emit(
        lambda: {"out": file, "card": named, **exported.to_json()},
        lambda: print_exported(exported, file, named),
    )
