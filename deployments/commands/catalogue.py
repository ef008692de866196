"""Catalogues of spaces and methods: `prefect-tune spaces` and `prefect-tune methods`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self

import click

from prefect_tune.deployments.commands.completing import (
    complete_methods,
    complete_spaces,
    method_options,
    option_text,
    values_text,
)
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import JSON
from prefect_tune.deployments.commands.output import print_json
from prefect_tune.optimizers.space.value_documents import choices_of, plain_value, value_document
from prefect_tune.optimizers.space.wording import value_text

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

    NAME may also be FILE.py:NAME. The command then also checks that space.
    """
    with reported_errors():
        if name is None:
            from prefect_tune.tasks.catalogue.spaces import SPACES

            listed = [_Listed.of(space) for space in SPACES.usable()]
            print_json([one.to_json() for one in listed]) if as_json else _print_spaces(listed)
            _report_unusable(SPACES)
            return
        from prefect_tune.tasks.user_space import find_space

        found = _Listed.of(find_space(name)[0])
        print_json(found.in_full()) if as_json else _print_space(found)


@click.command()
@click.argument("name", required=False, shell_complete=complete_methods)
@JSON
def methods(name: str | None, *, as_json: bool) -> None:
    """List the search methods and their purpose, or explain the options of method NAME."""
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
    if method.honours_constraints:
        yield "searches within constraints"
    if method.fidelities:
        yield f"evaluates at less than all {', '.join(sorted(method.fidelities))}"
    if method.draws_on_cost:
        yield "uses the costs of trials, so two runs may differ in their trials"


@dataclass(frozen=True)
class _Listed:
    """A space restricted to the installed libraries, and packages that would add algorithms."""

    space: "Space"
    missing: tuple[str, ...]

    @classmethod
    def of(cls, space: "Space") -> Self:
        from prefect_tune.tasks.catalogue.libraries import (
            algorithms_of,
            missing_libraries,
            usable_part,
        )

        missing = missing_libraries(algorithms_of(space))
        return cls(usable_part(space), tuple(library.package for library in missing))

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"name": step.name, "algorithms": [a.id for a in step.algorithms]}
            for step in self.space.searched
        ]
        return self._document(steps)

    def in_full(self) -> dict[str, Any]:
        """Return `to_json` with hyperparameters and conditions between steps."""
        steps = [
            {
                "name": step.name,
                "algorithms": [a.id for a in step.algorithms],
                "hyperparameters": {
                    a.id: [_hyperparameter(h) for h in _searched(a)] for a in step.algorithms
                },
                "ignores": {a.id: list(a.ignores) for a in step.algorithms if a.ignores},
                "only_ignored": [a.id for a in step.algorithms if a.only_ignored],
            }
            for step in self.space.searched
        ]
        return self._document(steps)

    def _document(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        space = self.space
        return {
            "name": space.name,
            "data": space.data,
            "target": space.target,
            "n_paths": space.n_paths,
            "n_feasible_paths": space.n_feasible_paths,
            "n_hyperparameters": space.n_hyperparameters,
            "steps": steps,
            "missing_libraries": list(self.missing),
        }


def _searched(algorithm: "Algorithm") -> Iterator[Any]:
    from ConfigSpace.hyperparameters import Constant

    hyperparameters = algorithm.hyperparameters.values()
    yield from (h for h in hyperparameters if not isinstance(h, Constant))


def _hyperparameter(h: Any) -> dict[str, Any]:
    document = {"name": h.name, "default": value_document(h.default_value)}
    if hasattr(h, "lower"):
        return {**document, "range": [plain_value(h.lower), plain_value(h.upper)], "log": h.log}
    return {**document, "choices": _choices(h)}


def _choices(h: Any) -> list[Any]:
    return [*map(value_document, choices_of(h) or ())]


def _print_spaces(listed: Sequence[_Listed]) -> None:
    form = "{:<29}{:<9}{:<9}{:>7}{:>10}{:>17}  {}"
    headings = ("space", "data", "predicts", "paths", "can run", "hyperparameters", "steps")
    echo(form.format(*headings))
    for space in (one.space for one in listed):
        steps = " x ".join(str(len(step.algorithms)) for step in space.searched)
        counts = (space.n_paths, space.n_feasible_paths, space.n_hyperparameters)
        echo(form.format(space.name, space.data, space.target, *counts, steps))
    _print_missing(package for one in listed for package in one.missing)


def _print_missing(packages: Iterable[str]) -> None:
    from prefect_tune.tasks.catalogue.libraries import missing_library

    for package in dict.fromkeys(packages):
        if missing := missing_library(package):
            echo(str(missing))


def _print_space(listed: _Listed) -> None:
    space = listed.space
    echo(
        f"{space.name} takes {space.data} and predicts {space.target}: "
        f"{space.n_paths:,} paths, {space.n_feasible_paths:,} of them can run, and "
        f"{space.n_hyperparameters} hyperparameters"
    )
    for step in space.searched:
        echo(f"\n{step.name}")
        for algorithm in step.algorithms:
            notes = _notes(algorithm)
            echo(f"  {algorithm.id}" + (f"  ({'; '.join(notes)})" if notes else ""))
            for h in _searched(algorithm):
                if hasattr(h, "lower"):
                    values = f"{h.lower:g} to {h.upper:g}" + (" (log)" if h.log else "")
                else:
                    values = value_text(", ".join(map(str, _choices(h))))
                default = value_text(str(value_document(h.default_value)))
                echo(f"    {h.name:<24}{values}  [default: {default}]")
    _print_missing(listed.missing)


def _notes(algorithm: "Algorithm") -> list[str]:
    notes = []
    if algorithm.ignores:
        notes.append(f"requires the identity in {', '.join(algorithm.ignores)}")
    if algorithm.only_ignored:
        notes.append("only before algorithms that ignore this step")
    return notes
