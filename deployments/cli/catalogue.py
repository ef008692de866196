"""Lists of spaces and methods: `prefect-tune spaces` and `prefect-tune methods`."""

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.cli.completing import (
    complete_methods,
    complete_spaces,
    method_options,
    option_text,
    values_text,
)
from prefect_tune.deployments.cli.options import printing
from prefect_tune.deployments.cli.output import emit
from prefect_tune.deployments.views.console import echo
from prefect_tune.optimizers.documents import choices_of, plain_value, value_document, value_text

if TYPE_CHECKING:
    from prefect_tune.optimizers.method import Method
    from prefect_tune.optimizers.registry import Registry
    from prefect_tune.optimizers.space.algorithm import Step
    from prefect_tune.optimizers.space.space import Space


@click.command()
@click.argument("name", required=False, shell_complete=complete_spaces)
@printing
def spaces(name: str | None) -> None:
    """List the spaces of pipelines, or show the space NAME in full.

    To show and check a space in a Python file, give FILE.py:NAME.
    """
    if name is None:
        from prefect_tune.tasks.catalogue.spaces import SPACES

        listed = [_space(space) for space in SPACES.usable()]
        emit(lambda: listed, lambda: _print_spaces(listed))
        _report_unusable(SPACES)
        return
    from prefect_tune.tasks.user_space import find_space

    document = _space(find_space(name)[0])
    emit(lambda: document, lambda: _print_space(document))


@click.command()
@click.argument("name", required=False, shell_complete=complete_methods)
@printing
def methods(name: str | None) -> None:
    """List the search methods, or explain the options of method NAME."""
    from prefect_tune.optimizers.registry import METHODS, method_named

    if name is not None:
        method = method_named(name)
        emit(lambda: _method(method), lambda: _print_method(method, is_explained=True))
        return
    _report_unusable(METHODS)
    listed = list(METHODS.usable())

    def print_all() -> None:
        for method in listed:
            _print_method(method, is_explained=False)

    emit(lambda: [*map(_method, listed)], print_all)


def _print_method(method: "Method", *, is_explained: bool) -> None:
    echo(f"{method.name:<12}{method.purpose}")
    if is_explained and method.honors_constraints:
        echo(f"{'':<12}searches within constraints")
    if is_explained and method.fidelities:
        echo(f"{'':<12}can evaluate partially, by {', '.join(sorted(method.fidelities))}")
    if is_explained and method.draws_on_cost:
        echo(f"{'':<12}uses the costs of trials, so two runs may differ in their trials")
    indent = " " * 16
    for one in method_options(method.options):
        assigned = f"{'':<12}--option {one.name}={option_text(one.default)}"
        values = values_text(one) if is_explained else ""
        echo(f"{assigned}  ({values})" if values else assigned)
        if is_explained and one.help:
            echo(fill(one.help, 96, initial_indent=indent, subsequent_indent=indent))


def _report_unusable(registry: "Registry[Any]") -> None:
    for error in registry.unusable():
        echo(f"Warning: {error}", err=True)


def _method(method: "Method") -> dict[str, Any]:
    return {
        "name": method.name,
        "purpose": method.purpose,
        "honours_constraints": method.honors_constraints,
        "fidelities": sorted(method.fidelities),
        "draws_on_cost": method.draws_on_cost,
        "compared_by_default": method.compared_by_default,
        "options": [
            {
                "name": one.name,
                "default": one.default,
                "meaning": one.help,
                "choices": one.known,
                "bounds": one.bounds,
            }
            for one in method_options(method.options)
        ],
    }


def _space(space: "Space") -> dict[str, Any]:
    """Return the part of a space that this machine can use, and missing packages, as JSON."""
    from prefect_tune.tasks.catalogue.spaces import (
        algorithms_of,
        missing_libraries,
        usable_part,
    )

    missing = missing_libraries(algorithms_of(space))
    space = usable_part(space)
    return {
        "name": space.name,
        "data": space.data,
        "target": space.target,
        "n_paths": space.n_paths,
        "n_feasible_paths": space.n_feasible_paths,
        "n_hyperparameters": space.n_hyperparameters,
        "steps": [_step(step) for step in space.searched],
        "missing_libraries": [library.package for library in missing],
    }


def _step(step: "Step") -> dict[str, Any]:
    from ConfigSpace.hyperparameters import Constant, NumericalHyperparameter

    algorithms, hyperparameters = step.algorithms, dict[str, list[dict[str, Any]]]()
    for a in algorithms:
        documents = hyperparameters[a.id] = []
        for h in a.hyperparameters.values():
            document: dict[str, Any] = {"name": h.name, "default": value_document(h.default_value)}
            if isinstance(h, NumericalHyperparameter):
                document |= {"range": [plain_value(h.lower), plain_value(h.upper)], "log": h.log}
            elif not isinstance(h, Constant):
                document["choices"] = [*map(value_document, choices_of(h) or ())]
            if len(document) > 2:
                documents.append(document)
    return {
        "name": step.name,
        "algorithms": [a.id for a in algorithms],
        "hyperparameters": hyperparameters,
        "ignores": {a.id: list(a.ignores) for a in algorithms if a.ignores},
        "only_ignored": [a.id for a in algorithms if a.only_ignored],
    }


def _print_spaces(listed: Sequence[dict[str, Any]]) -> None:
    form = "{:<29}{:<9}{:<15}{:>6}{:>10}{:>17}  {}"
    headings = ("space", "data", "predicts", "paths", "can run", "hyperparameters", "steps")
    echo(form.format(*headings))
    names = ("name", "data", "target", "n_paths", "n_feasible_paths", "n_hyperparameters")
    for space in listed:
        steps = " x ".join(str(len(step["algorithms"])) for step in space["steps"])
        echo(form.format(*(space[name] for name in names), steps))
    _print_missing(package for space in listed for package in space["missing_libraries"])


def _print_missing(packages: Iterable[str]) -> None:
    from prefect_tune.tasks.catalogue.spaces import missing_library

    for package in dict.fromkeys(packages):
        if missing := missing_library(package):
            echo(str(missing))


def _print_space(space: dict[str, Any]) -> None:
    echo(
        f"{space['name']}: {space['target']} on {space['data']}; {space['n_paths']:,} paths, "
        f"{space['n_feasible_paths']:,} of them can run; {space['n_hyperparameters']} "
        "hyperparameters"
    )
    for step in space["steps"]:
        echo(f"\n{step['name']}")
        for algorithm, hyperparameters in step["hyperparameters"].items():
            ignored = ", ".join(step["ignores"].get(algorithm, ()))
            notes = [f"ignores {ignored}"] if ignored else []
            if algorithm in step["only_ignored"]:
                notes.append("only before algorithms that ignore this step")
            echo(f"  {algorithm}" + (f"  ({'; '.join(notes)})" if notes else ""))
            for h in hyperparameters:
                if "range" in h:
                    low, high = h["range"]
                    values = f"{low:g} to {high:g}" + (" (log)" if h["log"] else "")
                else:
                    values = value_text(", ".join(map(str, h["choices"])))
                echo(f"    {h['name']:<24}{values}  [default: {value_text(str(h['default']))}]")
    _print_missing(space["missing_libraries"])
