"""Options that commands share, options for the parameters of flows, and opening of the store."""

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import wraps
from os.path import exists, expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import complete_files, values_of
from prefect_tune.deployments.cli.output import emit
from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.options.store_location import default_store
from prefect_tune.optimizers.options import Option
from prefect_tune.optimizers.registry import method_named
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.objective.metric import metric_named

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore


_TYPES: dict[str, Any] = {"whole": int, "number": float}
_OFTEN = {"data", "target", "labels", "test", "group", "time", "drop", "metric", "trials",
          "budget", "methods", "repeats", "study", "name", "workers"}  # fmt: skip
"""Options that are used often."""
_HELP_ALL = "--help-all"
_LATER_SENTENCES = re.compile(r"(?<=\.) (?! ).*?(?=  \[|$)")
"""All sentences of an option's help after the first sentence, without the default."""
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")
STORE = click.option(
    "--store", metavar="URL", help=OPTIONS["store"].help, shell_complete=complete_files
)
DATABASE = click.option("--database", metavar="URL", help=OPTIONS["database"].help)
QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
KEEP_SERVER = click.option("--keep-server", is_flag=True, help="Keep the private server running.")
HELP_ALL = click.help_option(_HELP_ALL, help="Show all options, in full.")


def printing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option --json to a command that prints its result with `emit`."""

    @wraps(command)
    def printed(*, as_json: bool, **given: Any) -> None:  # noqa: ARG001 - `emit` reads it
        command(**given)

    return JSON(printed)


RARE_VALUES = click.option(
    "--rare-values",
    is_flag=True,
    help="Also name values of fewer than ten rows, which may identify people.",
)


def reading_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json, --store and --database to a command, and pass it the open store."""

    @wraps(command)
    def opened(*, store: str | None, database: str | None, **given: Any) -> None:
        is_list = click.get_current_context().info_name in ("show", "ls")
        if is_list and not any((store, database, *given.values(), Path(default_store()).exists())):
            emit(list, "no studies yet; to start one: prefect-tune run cohort:demo")
            return
        with existing_store(store, database) as found:
            command(found, **given)

    return printing(STORE(DATABASE(opened)))


def grouped_by(options: Mapping[str, Option]) -> type[click.Command]:
    """Return a command class whose help shows only the most used options, each with one sentence.

    With the option `HELP_ALL`, the help shows all options with full texts, under group headings.
    """

    class Grouped(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            ctx.meta[_HELP_ALL] = _HELP_ALL in args
            return super().parse_args(ctx, args)

        def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            in_full, headings = ctx.meta.get(_HELP_ALL), dict[str, list[tuple[str, str]]]()
            for parameter in self.get_params(ctx):
                heading, name = "Output", parameter.name or ""
                flags, text = parameter.get_help_record(ctx) or (name.upper(), "")
                if (option := options.get(name)) is not None:
                    heading, text = option.group, option.help  # late, for methods of plugins
                    if not in_full:
                        sometimes = "Sometimes used" if option.group == "Search" else ""
                        heading = "Often used" if name in _OFTEN else sometimes
                        text = _LATER_SENTENCES.sub("", text)
                headings.setdefault(heading, []).append((flags, text))
            headings.pop("", None)
            for heading, rows in headings.items():
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=24)  # longer flags get a separate line

    return Grouped


def add_options(
    options: Mapping[str, Option],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options to a command, in the given order."""

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
            if option.kind == "texts":
                more["callback"] = lambda _, __, given: list(given) or None
            if option.is_argument:
                del more["help"], more["multiple"]
                command = click.argument(option.name, **more)(command)
            else:
                command = click.option(flag, option.name, **more)(command)
        return command

    return added


def check_named(options: StudyOptions) -> None:
    """Raise BadInput or UnknownName if the options name a missing file, metric or method.

    Reading the data repeats these checks, but only after imports that take seconds.
    """
    if options.method is not None:
        method_named(options.method)
    if (name := options.metric) is not None:
        if ":" in name:
            raise BadInput("a metric of your own must be in a plugin", option="metric", value=name)
        metric_named(name)
    for file in options.source.files[:1]:
        # Unlike Path, `exists` accepts invalid file names.
        if "://" not in file and "::" not in file and not exists(expanduser(file)):  # noqa: PTH110, PTH111
            raise BadInput(f"there is no file or folder {file}")
    target, table = options.target or "", Path(options.data).expanduser()
    is_plain = target.isascii() and target.isidentifier() and table.suffix == ".csv"
    if is_plain and not options.labels and table.is_file():
        with suppress(OSError), table.open(encoding="utf-8", errors="replace") as opened:
            head = opened.read(1_000_000)
            if target not in head and "\0" not in head:  # UTF-16 has zeros
                names = re.split('"?[,;|\t]"?', head.partition("\n")[0].strip('"'))
                need_column(target, names, options.data)


@contextmanager
def existing_store(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """Open an existing store; raise `BadInput` if the store does not exist."""
    from prefect_tune.flows.options.store_location import existing_store as address_of
    from prefect_tune.storage.artifacts import ArtifactStore

    with closing(ArtifactStore(address_of(store, database), is_read=True)) as opened:
        gc.freeze()  # without imported objects, reading many trials is a fifth faster
        yield opened
