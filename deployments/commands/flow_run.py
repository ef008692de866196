"""Commands that run a flow: their options from where they are stated, and the flow followed."""

from collections.abc import Callable, Mapping
from signal import SIGINT, signal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from prefect_tune.deployments.commands.parts import is_of_server, told_plainly
from prefect_tune.flows.preparation.options import Option

if TYPE_CHECKING:
    from prefect_tune.flows.preparation.settings import TuneSettings

__all__ = ["Preparation", "add_options", "grouped_by", "run_flow"]

_TYPES: dict[str, Any] = {"whole": int, "number": float}


class Preparation(Protocol):
    """What is checked and ready to run."""

    @property
    def settings(self) -> "TuneSettings":
        """What it was started with."""

    @property
    def title(self) -> str:
        """What is run, for people."""

    @property
    def again(self) -> str:
        """The option that continues it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the data and of what was decided."""

    def finished(self) -> dict[str, Any] | None:
        """What came of it, if nothing is left to do."""


Prepared = TypeVar("Prepared", bound=Preparation)


def grouped_by(options: Mapping[str, Option]) -> type[click.Command]:
    """A command whose help shows these options under their headings."""

    class Grouped(click.Command):
        def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            headings: dict[str, list[tuple[str, str]]] = {}
            for parameter in self.get_params(ctx):
                row = parameter.get_help_record(ctx)
                if row is not None:
                    name = parameter.name or ""
                    heading = options[name].group if name in options else "Output"
                    headings.setdefault(heading, []).append(row)
            for heading, rows in headings.items():
                with formatter.section(heading):
                    formatter.write_dl(rows)

    return Grouped


def add_options(
    options: Mapping[str, Option],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, in their order."""

    def added(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(tuple(options.values())):
            if option.kind == "argument":
                command = click.argument(option.name, metavar=option.metavar)(command)
            else:
                command = _click_option(option)(command)
        return command

    return added


def _click_option(option: Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    if option.kind == "switch":
        return click.option(option.flag, option.name, is_flag=True, help=option.help)
    return click.option(
        option.flag,
        option.name,
        type=_TYPES.get(option.kind, str),
        multiple=option.kind in ("texts", "assignments"),
        metavar=option.metavar,
        help=option.help,
    )


def run_flow(
    prepare: Callable[[], Prepared],
    run: Callable[[Prepared], dict[str, Any]],
    *,
    quiet: bool,
    json_lines: bool,
    keep_server: bool,
) -> dict[str, Any]:
    """Check the input while server and workers start, then run a flow and show how it goes."""
    from prefect_tune.flows.workers.local_workers import warmed_up

    with told_plainly(), warmed_up():
        from prefect_tune.deployments.server import launched_server

        with launched_server(keep=keep_server) as server:
            preparation = prepare()
            from prefect_tune.deployments.views.live import observer_for
            from prefect_tune.flows.progress import observed_by
            from prefect_tune.flows.workers.clusters import workers_started_early

            with (
                observer_for(quiet=quiet, json_lines=json_lines) as observer,
                workers_started_early(preparation.settings),
                observed_by(observer),
            ):
                observer.note(preparation.title)
                for note in preparation.notes:
                    observer.note(note)
                observer.note(f"Prefect shows it at {server.url.removesuffix('/api')}")
                server.wait()
                former = signal(SIGINT, _interrupt)
                try:
                    return run(preparation)
                except KeyboardInterrupt:
                    again = f"the same command with {preparation.again}"
                    observer.note(f"{again} goes on where it was")
                    raise
                except Exception as error:
                    summary = preparation.finished() if is_of_server(error) else None
                    if summary is None:
                        raise
                    observer.note(f"the Prefect server went away; {preparation.title} is complete")
                    return summary
                finally:
                    signal(SIGINT, former)


def _interrupt(*_: object) -> None:
    """Say at once that the signal has come; what follows takes some seconds."""
    click.echo("interrupted: ending the trials under way ...", err=True)
    raise KeyboardInterrupt
