"""Options that commands share, options made from a flow's parameters, and the store to open."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from os.path import exists, expanduser
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_files, values_of
from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.optimizers.options import Option

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore


_TYPES: dict[str, Any] = {"whole": int, "number": float}
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")
STORE = click.option(
    "--store", metavar="URL", help=OPTIONS["store"].help, shell_complete=complete_files
)
DATABASE = click.option("--database", metavar="URL", help=OPTIONS["database"].help)
QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
KEEP_SERVER = click.option(
    "--keep-server", is_flag=True, help="Keep the embedded Prefect server running."
)


def printing(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json to a command that prints its result with `emit`."""

    @wraps(command)
    def printed(*, as_json: bool, **given: Any) -> None:  # noqa: ARG001 - `emit` reads it
        command(**given)

    return JSON(printed)


def reading_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json, --store and --database to a command, and pass the open store to it first."""

    @wraps(command)
    def opened(*, store: str | None, database: str | None, **given: Any) -> None:
        with existing_store(store, database) as found:
            command(found, **given)

    return printing(STORE(DATABASE(opened)))


def grouped_by(options: Mapping[str, Option]) -> type[click.Command]:
    """Return a command class whose help shows these options under their group headings."""

    class Grouped(click.Command):
        def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            headings: dict[str, list[tuple[str, str]]] = {}
            for parameter in self.get_params(ctx):
                name = parameter.name or ""
                if isinstance(parameter, click.Option) and name in options:
                    parameter.help = options[name].help  # read late: plugins may register methods
                row = parameter.get_help_record(ctx)
                if row is not None:
                    heading = options[name].group if name in options else "Output"
                    headings.setdefault(heading, []).append(row)
            for heading, rows in headings.items():
                with formatter.section(heading):
                    formatter.write_dl(rows)

    return Grouped


def add_options(
    options: Mapping[str, Option],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds these options to a command, in order."""

    def added(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(tuple(options.values())):
            flag, more = option.flag, dict[str, Any](help=option.help)
            if option.kind == "switch":
                more |= {"is_flag": True}
            elif option.kind == "choice":
                flag, more["default"] = f"{flag}/--no-{flag.removeprefix('--')}", None
            else:
                more |= {"metavar": option.metavar, "shell_complete": values_of(option)}
                more["type"] = _TYPES.get(option.kind, str)
                more["multiple"] = option.kind in ("texts", "assignments")
            if option.is_argument:
                del more["help"], more["multiple"]
                command = click.argument(option.name, **more)(command)
            else:
                command = click.option(flag, option.name, **more)(command)
        return command

    return added


def check_data(options: StudyOptions) -> None:
    """Raise BadInput if the local file or folder of a new study is missing.

    The same check follows when the data is read, seconds after the imports for it.
    """
    from prefect_tune.tasks.bad_input import BadInput

    for file in options.source.files[:1]:
        # Unlike a Path, `exists` takes names that no file can have.
        if "://" not in file and "::" not in file and not exists(expanduser(file)):  # noqa: PTH110, PTH111
            raise BadInput(f"there is no file or folder {file}")


@contextmanager
def existing_store(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """Open an existing store; raises BadInput rather than create one."""
    from prefect_tune.flows.options.store_location import existing_store as address_of
    from prefect_tune.storage.artifacts import ArtifactStore

    opened = ArtifactStore(address_of(store, database), is_read=True)
    gc.freeze()  # excludes imported objects: reading many trials is a fifth faster
    try:
        yield opened
    finally:
        opened.close()
