"""Options that commands share, options made from a flow's parameters, and the store to open."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_files, values_of
from prefect_tune.flows.options.declared import OPTIONS
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
            if option.is_argument:
                command = click.argument(
                    option.name,
                    metavar=option.metavar,
                    shell_complete=values_of(option),
                )(command)
            else:
                command = _click_option(option)(command)
        return command

    return added


def _click_option(option: Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    if option.kind == "switch":
        return click.option(option.flag, option.name, is_flag=True, help=option.help)
    if option.kind == "choice":
        either = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        return click.option(either, option.name, default=None, help=option.help)
    return click.option(
        option.flag,
        option.name,
        type=_TYPES.get(option.kind, str),
        multiple=option.kind in ("texts", "assignments"),
        metavar=option.metavar,
        help=option.help,
        shell_complete=values_of(option),
    )


@contextmanager
def existing_store(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """Open an existing store; raises BadInput rather than create one."""
    from prefect_tune.flows.options.store_location import store_address
    from prefect_tune.storage.artifacts import ArtifactStore
    from prefect_tune.tasks.bad_input import BadInput

    address = store_address(store, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"no store at {address.url}; `prefect-tune run` creates one")
    opened = ArtifactStore(address, is_read=True)
    gc.freeze()  # excludes imported objects: reading many trials is a fifth faster
    try:
        yield opened
    finally:
        opened.close()
