"""What all commands share: common options, errors told plainly, an opened store, JSON."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.flows.preparation.options import OPTIONS

if TYPE_CHECKING:
    from prefect_tune.storage.store import ArtifactStore

__all__ = [
    "DATABASE",
    "JSON",
    "STORE",
    "existing_store",
    "is_of_server",
    "print_json",
    "told_plainly",
    "written",
    "written_folder",
]

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")
STORE = click.option("--store", metavar="URL", help=OPTIONS["store"].help)
DATABASE = click.option("--database", metavar="URL", help=OPTIONS["database"].help)


@contextmanager
def told_plainly() -> Iterator[None]:
    """A user's own mistakes as one message and exit code 2, failures as one and exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        from prefect_tune.deployments.server import ServerFailed
        from prefect_tune.flows.study.study import StudyFailed
        from prefect_tune.optimizers.space.naming import UnknownName
        from prefect_tune.storage.database import StoreLost
        from prefect_tune.storage.lease import LeaseLost
        from prefect_tune.storage.store import StoreRefused
        from prefect_tune.tasks.bad_input import BadInput

        if isinstance(error, BadInput | UnknownName | StoreRefused):
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)
        if isinstance(error, StudyFailed | ServerFailed | StoreLost | LeaseLost):
            click.echo(f"Failed: {error}", err=True)
            sys.exit(1)
        if is_of_server(error):
            click.echo(f"Failed: the Prefect server does not answer: {error!r}", err=True)
            sys.exit(1)
        raise


def is_of_server(error: Exception) -> bool:
    """Whether an error came from talking to the Prefect server."""
    return type(error).__module__.split(".")[0] in ("httpx", "httpcore")


@contextmanager
def existing_store(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """An existing store; looking never makes one."""
    from prefect_tune.flows.preparation.settings import store_address
    from prefect_tune.storage.store import ArtifactStore
    from prefect_tune.tasks.bad_input import BadInput

    address = store_address(store, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"there is no store at {address.url}; `prefect-tune run` makes one")
    opened = ArtifactStore(address)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def written(out: str) -> Iterator[Path]:
    """A path to write to, which becomes `out` when all is written."""
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    temporary = target.with_name(f".{target.name}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder")
        temporary.touch()
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another file") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def written_folder(out: str) -> Iterator[Path]:
    """A folder to write to, which becomes `out` when all is written."""
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{out} is there already; name a folder that is empty or not there")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            folder = Path(temporary) / target.name
            folder.mkdir()
            yield folder
            folder.replace(target)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another folder") from error


def print_json(document: Any) -> None:
    """JSON to standard output."""
    click.echo(json.dumps(document, indent=2))
