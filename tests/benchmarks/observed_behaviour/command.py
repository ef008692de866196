"""The command line of the revision under observation, run in this process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path

__all__ = ["command_output", "in_home"]


def command_output(*arguments: str) -> str:
    """Return what `prefect-tune` prints on standard output.

    Raises:
        RuntimeError: If it exits with an error.
    """
    (script,) = entry_points(group="console_scripts", name="prefect-tune")
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            script.load().main(args=list(arguments), prog_name="prefect-tune")
        except SystemExit as ended:
            if ended.code:
                message = f"prefect-tune {' '.join(arguments)} exits with {ended.code}"
                raise RuntimeError(message) from None
    return printed.getvalue()


@contextmanager
def in_home(home: Path) -> Iterator[None]:
    """Have the product use a home of its own, with a server of its own."""
    before = os.environ.get("PREFECT_TUNE_HOME")
    os.environ["PREFECT_TUNE_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("PREFECT_TUNE_HOME")
        if before is not None:
            os.environ["PREFECT_TUNE_HOME"] = before
