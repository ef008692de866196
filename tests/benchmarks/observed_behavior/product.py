"""The product at the observed revision: its command line, and its dataclasses."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

__all__ = ["in_home", "made", "printed", "printed_json"]

RENAMED: Mapping[str, str] = {}
"""New names of fields that a later revision renamed, by `Class.old_name`."""


def printed(*arguments: object) -> str:
    """Return the standard output of `prefect-tune`.

    Raises:
        RuntimeError: If the command exits with an error.
    """
    (script,) = entry_points(group="console_scripts", name="prefect-tune")
    output, words = StringIO(), [str(argument) for argument in arguments]
    with redirect_stdout(output):
        try:
            script.load().main(args=words, prog_name="prefect-tune")
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(
                    f"prefect-tune {' '.join(words)} exits with {ended.code}"
                ) from None
    return output.getvalue()


def printed_json(*arguments: object) -> Any:
    """Return the output of `prefect-tune ... --json`."""
    return json.loads(printed(*arguments, "--json"))


@contextmanager
def in_home(home: Path) -> Iterator[None]:
    """Use a separate home with a separate server."""
    before = os.environ.get("PREFECT_TUNE_HOME")
    os.environ["PREFECT_TUNE_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("PREFECT_TUNE_HOME")
        if before is not None:
            os.environ["PREFECT_TUNE_HOME"] = before


def made(cls: type[Any], /, **values: Any) -> Any:
    """Make a dataclass of the product, with the field names of this revision."""
    known = {field.name for field in fields(cls)}
    renamed = {name: RENAMED.get(f"{cls.__name__}.{name}", name) for name in values}
    return cls(**{n if n in known else renamed[n]: value for n, value in values.items()})
