"""Shell completion: values of options and arguments, and the script that a shell needs.

A shell asks at each press of a key, so nothing heavy is imported. If anything fails, there are no
values.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from click import Context, Parameter
from click.shell_completion import CompletionItem

from prefect_tune.deployments.views.console import echo_as_is
from prefect_tune.flows.preparation.options import Option
from prefect_tune.flows.store_location import BLOCK, default_store
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS


def method_options(options: type) -> list[dict[str, Any]]:
    """Return name, default and meaning of each option in the dataclass of a method's options."""
    if not is_dataclass(options) or not fields(options):
        return []
    meanings, defaults = _meanings(options), options()
    if hasattr(defaults, "resolved"):
        defaults = defaults.resolved()  # what the default variant has
    return [
        {"name": name, "default": default, "meaning": meanings[name]}
        for name, default in asdict(defaults).items()
    ]


def _meanings(options: type) -> dict[str, str]:
    """Return the text of each attribute in a docstring."""
    listed = cleandoc(options.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def written(default: Any) -> str:
    """Return a default as one writes it on the command line."""
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)


Completed = Callable[[Context, Parameter, str], list[CompletionItem]]

HEAVY: Mapping[str, tuple[str, ...]] = {
    "space": (
        "modern", "modern_regression", "events", "healthcare", "modern_healthcare", "flash",
        "regression", "small", "admm", "admm_large", "svm", "svr", "random_forest",
        "random_forest_regressor", "gradient_boosting", "gradient_boosting_regressor", "mlp",
    ),
    "format": ("table", "events", "meds", "omop", "synthea"),
}  # fmt: skip
"""Choices of options whose own lists load pandas or scikit-learn."""
_MOST_STUDIES = 200
_LOCKED_SECONDS = 0.2


def complete_studies(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of studies in the store that the command would open, newest first."""
    return _beginning(_study_names(ctx.params.get("store")), incomplete)


def complete_methods(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of methods, with what each is for."""
    return [
        CompletionItem(method.name, help=method.purpose)
        for method in METHODS.values()
        if method.name.startswith(incomplete)
    ]


def complete_spaces(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of spaces, and files, which may hold one."""
    return _beginning(HEAVY["space"], incomplete) or _files(incomplete)


def complete_files(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell to complete the name of a file or folder."""
    return _files(incomplete)


def _data(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    cohorts = _beginning(("cohort:demo", "cohort:paper"), incomplete) if incomplete else []
    return cohorts or _files(incomplete)


def _compared(_: Context, __: Parameter, incomplete: str) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    return _beginning((f"{before}{comma}{name}" for name in METHODS), before + comma + last)


def _options_of_method(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
    method = METHODS.get(ctx.params.get("method") or DEFAULT_METHOD)
    options = method_options(method.options) if method else []
    return [
        CompletionItem(assigned, help=option["meaning"])
        for option in options
        if (assigned := f"{option['name']}={written(option['default'])}").startswith(incomplete)
    ]


_BY_NAME: Mapping[str, Completed] = {
    "data": _data,
    "method": complete_methods,
    "methods": _compared,
    "option": _options_of_method,
    "space": complete_spaces,
    "store": complete_files,
    "study": complete_studies,
}


def values_of(option: Option) -> Completed | None:
    """Return what completes the values of an option: its choices, studies or files, if any."""
    kinds = set(option.metavar.split("|"))
    is_file = not kinds.isdisjoint({"FILE", "PATH"})

    def complete(ctx: Context, _: Parameter, incomplete: str) -> list[CompletionItem]:
        words = HEAVY.get(option.name) or option.known
        studies = _study_names(ctx.params.get("store")) if "STUDY" in kinds else []
        found = _beginning((*words, *studies), incomplete)
        return found or (_files(incomplete) if is_file else [])

    return _BY_NAME.get(option.name, complete if option.choices or is_file else None)


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _files(incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _study_names(store: str | None) -> list[str]:
    """Return names of the studies in a local store; none where there is none, or it is busy."""
    if store is not None and ("://" in store or store.startswith(BLOCK)):
        return []  # it is no folder, and may take long to answer
    index = Path(store or default_store()).expanduser() / "index.sqlite"
    try:
        uri = f"{index.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED_SECONDS)) as connection:
            newest = "SELECT name FROM studies ORDER BY created DESC LIMIT ?"
            return [name for (name,) in connection.execute(newest, (_MOST_STUDIES,))]
    except (OSError, ValueError, sqlite3.Error):
        return []


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete `prefect-tune`.

    It completes commands and options, and of their values the names of studies in the default
    store, methods and their options, spaces, metrics and files. To have it in each new shell:

    \b
    prefect-tune completion bash >> ~/.bashrc
    prefect-tune completion zsh >> ~/.zshrc
    prefect-tune completion fish > ~/.config/fish/completions/prefect-tune.fish
    """  # noqa: D301 - click reads the backspace
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click has all three
    main = click.get_current_context().find_root().command
    echo_as_is(script(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE").source())
