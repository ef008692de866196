"""Listing what a study can be made of: `prefect-tune spaces` and `prefect-tune methods`."""

from collections.abc import Iterable, Iterator, Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.commands.completing import (
    complete_methods,
    complete_spaces,
    method_options,
    values_text,
    written,
)
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import JSON
from prefect_tune.deployments.commands.output import print_json

if TYPE_CHECKING:
    from prefect_tune.optimizers.method import Method
    from prefect_tune.optimizers.plugins import Registry
    from prefect_tune.optimizers.space.algorithm import Algorithm
    from prefect_tune.optimizers.space.space import Space

from prefect_tune.deployments.views.console import echo


@click.command()
@click.argument("name", required=False, shell_complete=complete_spaces)
@JSON
def spaces(name: str | None, *, as_json: bool) -> None:
    """List the spaces of pipelines, or show the space NAME in full.

    NAME may also be FILE.py:NAME, a space of your own, which is thereby checked.
    """
    with reported_errors():
        if name is None:
            from prefect_tune.tasks.catalogue.spaces import SPACES

            rows = [_space(space) for space in SPACES.usable()]
            print_json(rows) if as_json else _print_spaces(rows)
            _report_unusable(SPACES)
            return
        from prefect_tune.tasks.catalogue.libraries import usable_part
        from prefect_tune.tasks.user_space import find_space

        space, _ = find_space(name)
        document = _space(space)
        for step, shown in zip(usable_part(space).searched, document["steps"], strict=True):
            shown["hyperparameters"] = {
                algorithm.id: _hyperparameters(algorithm) for algorithm in step.algorithms
            }
            shown["ignores"] = {a.id: list(a.ignores) for a in step.algorithms if a.ignores}
            shown["only_ignored"] = [a.id for a in step.algorithms if a.only_ignored]
        print_json(document) if as_json else _print_space(document)


@click.command()
@click.argument("name", required=False, shell_complete=complete_methods)
@JSON
def methods(name: str | None, *, as_json: bool) -> None:
    """List the search methods and what each is for, or explain the options of method NAME."""
    with reported_errors():
        from prefect_tune.optimizers.registry import METHODS, method_named

        shown = METHODS.usable() if name is None else [method_named(name)]
        if name is None:
            _report_unusable(METHODS)
        if as_json:
            rows = [_method(method) for method in shown]
            print_json(rows if name is None else rows[0])
            return
        for method in shown:
            _print_method(method, is_explained=name is not None)


def _print_method(method: "Method", *, is_explained: bool) -> None:
    echo(f"{method.name:<12}{method.purpose}")
    for line in _properties(method) if is_explained else ():
        echo(f"{'':<12}{line}")
    indent = " " * 16
    for one in method_options(method.options):
        assigned = f"{'':<12}--option {one.name}={written(one.default)}"
        values = values_text(one) if is_explained else ""
        echo(f"{assigned}  ({values})" if values else assigned)
        if is_explained and one.help:
            echo(fill(one.help, 96, initial_indent=indent, subsequent_indent=indent))


def _report_unusable(registry: "Registry[Any]") -> None:
    """Report plugins that cannot be used to standard error."""
    for error in registry.unusable():
        echo(f"Warning: {error}", err=True)


def _method(method: "Method") -> dict[str, Any]:
    return {
        "name": method.name,
        "purpose": method.purpose,
        "honours_constraints": method.honours_constraints,
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


def _properties(method: "Method") -> Iterator[str]:
    """Return what sets a method apart, a line each."""
    if method.honours_constraints:
        yield "searches inside of constraints"
    if method.fidelities:
        yield f"evaluates at less than all {', '.join(sorted(method.fidelities))}"
    if method.draws_on_cost:
        yield "asks by what trials cost: of two runs, the trials may differ"


def _space(space: "Space") -> dict[str, Any]:
    from prefect_tune.tasks.catalogue.libraries import (
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
        "steps": [
            {"name": step.name, "algorithms": [a.id for a in step.algorithms]}
            for step in space.searched
        ],
        "missing_libraries": [library.package for library in missing],
    }


def _hyperparameters(algorithm: "Algorithm") -> list[dict[str, Any]]:
    """Name, default, and either choices or range and scale."""
    from ConfigSpace.hyperparameters import (
        CategoricalHyperparameter,
        Constant,
        NumericalHyperparameter,
    )

    rows: list[dict[str, Any]] = []
    for h in algorithm.hyperparameters.values():
        if isinstance(h, Constant):
            continue
        row: dict[str, Any] = {"name": h.name, "default": _plain(h.default_value)}
        if isinstance(h, CategoricalHyperparameter):
            row["choices"] = [_plain(choice) for choice in h.choices]
        elif isinstance(h, NumericalHyperparameter):
            row |= {"range": [_plain(h.lower), _plain(h.upper)], "log": h.log}
        else:
            row["choices"] = [_plain(value) for value in getattr(h, "sequence", ())]
        rows.append(row)
    return rows


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _print_spaces(rows: list[dict[str, Any]]) -> None:
    form = "{:<29}{:<9}{:<9}{:>7}{:>10}{:>17}  {}"
    headings = ("space", "data", "predicts", "paths", "can run", "hyperparameters", "steps")
    echo(form.format(*headings))
    for row in rows:
        steps = " x ".join(str(len(step["algorithms"])) for step in row["steps"])
        counts = (row["n_paths"], row["n_feasible_paths"], row["n_hyperparameters"])
        echo(form.format(row["name"], row["data"], row["target"], *counts, steps))
    _print_missing(package for row in rows for package in row["missing_libraries"])


def _print_missing(packages: Iterable[str]) -> None:
    """Say which libraries would add algorithms, and how to get them."""
    from prefect_tune.tasks.catalogue.libraries import missing_library

    for package in dict.fromkeys(packages):
        if missing := missing_library(package):
            echo(str(missing))


def _print_space(document: dict[str, Any]) -> None:
    echo(
        f"{document['name']} takes {document['data']} and predicts {document['target']}: "
        f"{document['n_paths']:,} paths, of which {document['n_feasible_paths']:,} can run, and "
        f"{document['n_hyperparameters']} hyperparameters"
    )
    for step in document["steps"]:
        echo(f"\n{step['name']}")
        for algorithm, hyperparameters in step["hyperparameters"].items():
            notes = _notes(step, algorithm)
            echo(f"  {algorithm}" + (f"  ({'; '.join(notes)})" if notes else ""))
            for h in hyperparameters:
                values = (
                    ", ".join(map(str, h["choices"]))
                    if "choices" in h
                    else f"{h['range'][0]:g} to {h['range'][1]:g}" + (" (log)" if h["log"] else "")
                )
                echo(f"    {h['name']:<24}{values}  [default: {h['default']}]")
    _print_missing(document["missing_libraries"])


def _notes(step: Mapping[str, Any], algorithm: str) -> list[str]:
    """Return what binds an algorithm to other steps."""
    notes = []
    if algorithm in step["ignores"]:
        notes.append(f"nothing in {', '.join(step['ignores'][algorithm])} before it")
    if algorithm in step["only_ignored"]:
        notes.append("only before algorithms to which the step means nothing")
    return notes
