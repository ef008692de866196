"""Shell completion: values of options and arguments, and a completion script for each shell.

The shell runs this code whenever the user presses the completion key, so nothing heavy is imported.
If an error occurs, completion offers no values.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click import Context, Parameter
from click.shell_completion import CompletionItem

from prefect_tune.deployments.views.console import echo_as_is
from prefect_tune.flows.options.store_location import BLOCK, default_store
from prefect_tune.optimizers.options import Option, options_of
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.tasks.catalogue.spaces import SPACES


def method_options(options: type) -> list[Option]:
    """Return the options that a method declares."""
    return list(options_of(options).values())


def values_text(option: Option) -> str:
    """Return the choices or bounds of an option as text; empty if the option has neither."""
    return " or ".join(option.known) or option.limits_text


def option_text(default: Any) -> str:
    """Return a default value in the form written on the command line."""
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)


Completed = Callable[[Context, Parameter, str], list[CompletionItem]]

_MOST_NAMES = 200
_LOCKED_SECONDS = 0.2


def complete_studies(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of studies in the store that the command opens, newest first."""
    return _beginning(_names("studies", ctx.params.get("store")), incomplete)


def complete_series(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of series in the store that the command opens, newest first."""
    return _beginning(_names("series", ctx.params.get("store")), incomplete)


def complete_methods(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names and purposes of methods."""
    described = {method.name: method.purpose for method in METHODS.without_plugins()}
    return [
        CompletionItem(name, help=described.get(name))
        for name in METHODS
        if name.startswith(incomplete)
    ]


def complete_spaces(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of spaces, and the names of files that may declare a space."""
    return _beginning(SPACES, incomplete) or _files(incomplete)


def complete_files(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file or folder."""
    return _files(incomplete)


_BY_NAME: Mapping[str, Completed] = {
    "data": complete_files,
    "method": complete_methods,
    "methods": complete_methods,
    "series": complete_series,
    "space": complete_spaces,
    "store": complete_files,
    "study": complete_studies,
}


def values_of(option: Option) -> Completed | None:
    """Return the function that completes the values of an option; None if there is none."""
    kinds = set(option.metavar.split("|"))
    is_file = not kinds.isdisjoint({"FILE", "PATH"})

    def complete(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
        studies = _names("studies", ctx.params.get("store")) if "STUDY" in kinds else []
        found = _beginning((*option.known, *studies), incomplete)
        return found or (_files(incomplete) if is_file else [])

    return _BY_NAME.get(option.name, complete if option.choices or is_file else None)


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _files(incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _names(table: str, store: str | None) -> list[str]:
    """Return names of studies or series in a local store; empty if it is missing or busy."""
    if store is not None and ("://" in store or store.startswith(BLOCK)):
        return []  # remote stores may be slow
    index = Path(store or default_store()).expanduser() / "index.sqlite"
    try:
        uri = f"{index.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED_SECONDS)) as connection:
            newest = f"SELECT name FROM {table} ORDER BY created DESC LIMIT ?"  # noqa: S608
            return [name for (name,) in connection.execute(newest, (_MOST_NAMES,))]
    except (OSError, ValueError, sqlite3.Error):
        return []


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands.

    The script completes commands, options and option values such as methods, spaces, metrics,
    files, and studies in the default store. To enable completion in new shells:

    \b
    prefect-tune completion bash >> ~/.bashrc
    prefect-tune completion zsh >> ~/.zshrc
    prefect-tune completion fish > ~/.config/fish/completions/prefect-tune.fish
    """  # noqa: D301 - click reads the backspace
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click supports all three shells
    main = click.get_current_context().find_root().command
    echo_as_is(script(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE").source())
