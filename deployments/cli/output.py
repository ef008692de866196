"""Output of commands: JSON, summaries, files, folders and reports."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.views.console import echo, echo_as_is
from prefect_tune.flows.wording.text import format_bytes

if TYPE_CHECKING:
    import pandas as pd

    from prefect_tune.deployments.report.page import ReportPage
    from prefect_tune.flows.reading.study_view import StudyView


TABLES = {".csv": "csv", ".parquet": "parquet"}
"""Table formats by file suffix."""


def format_from_suffix(file: str, kinds: Mapping[str, str], option: str = "") -> str:
    """Return the format that a file's suffix stands for; raise `BadInput` for other suffixes."""
    from prefect_tune.tasks.bad_input import BadInput

    kind = kinds.get(Path(file).suffix.lower())
    if kind is not None:
        return kind
    endings = f"{', '.join(list(kinds)[:-1])} or {list(kinds)[-1]}"
    folder = "this path is a folder; " if Path(file).is_dir() else ""
    named = "" if option else f"{file}: "
    raise BadInput(f"{named}{folder}the file must end in {endings}", option=option, value=file)


def write_table(frame: "pd.DataFrame", out: str) -> None:
    """Write a table as CSV or Parquet, depending on the suffix. May raise `BadInput`."""
    with atomic_output(out) as path:
        if format_from_suffix(out, TABLES, "out") == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)


@contextmanager
def atomic_output(out: str) -> Iterator[Path]:
    """Yield a temporary path. A file written to this path becomes `out` after the `with` block."""
    from prefect_tune.storage.local_files import atomic_file

    with _writing(out, "file"), atomic_file(Path(out)) as path:
        yield path


@contextmanager
def atomic_output_folder(out: str) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `out` after the `with` block."""
    from prefect_tune.storage.local_files import atomic_folder
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{out} already exists; choose an empty or new folder")
    with _writing(out, "folder"), atomic_folder(target) as folder:
        yield folder


@contextmanager
def _writing(out: str, kind: str) -> Iterator[None]:
    from prefect_tune.tasks.bad_input import BadInput

    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"{out} cannot be written: {why}; name another {kind}") from error


def print_json(document: Any) -> None:
    """Print a value as JSON to standard output."""
    from prefect_tune.storage.masking import masked_values

    echo_as_is(json.dumps(masked_values(document), indent=2))


def wants_json() -> bool:
    """Return whether the running command was given the option --json."""
    return bool(click.get_current_context().params["as_json"])


def emit(document: Callable[[], Any], text: str | Callable[[], object]) -> None:
    """Print a result: the value of `document` with --json, and `text` without --json."""
    if wants_json():
        print_json(document())
    elif isinstance(text, str):
        echo(text)
    else:
        text()


def print_summary(view: "StudyView", *, notes: bool = False) -> None:
    """Print a study as JSON or as text, with the method's notes if `notes` is true."""
    from prefect_tune.deployments.views import study

    emit(view.to_json, lambda: study.print_summary(view, notes=notes))


def print_result(summary: dict[str, Any]) -> None:
    """Print the summary that the flow of a study returned."""
    from prefect_tune.flows.reading.study_view import StudyView
    from prefect_tune.optimizers.documents import from_document

    print_summary(from_document(StudyView, summary))


def write_page(out: str, page: "ReportPage", subject: str, *, is_silent: bool) -> None:
    """Write a report to a file; unless `is_silent`, print its path. May raise `BadInput`."""
    from prefect_tune.deployments.report.html import page_html

    text = page_html(page)
    with atomic_output(out) as path:
        path.write_text(text, encoding="utf-8")
    if not is_silent:
        size = format_bytes(len(text.encode()))
        echo(f"report of {subject}: {out} ({size})")
        echo(f"open it in a browser: {Path(out).absolute().as_uri()}")
