"""Registries of declarations, which users choose by name.

A declaration is built in, registered by the running program, or declared by a plugin: an entry
point of another distribution, in a group such as `prefect_tune.methods`. A declaration is imported
on first lookup. Looking up a built-in or registered name reads no entry points. `METHODS` lists the
search methods.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.declarations import (
    ADMM,
    BAPI,
    BOHB,
    ERS,
    ESMBO,
    FLASH,
    HALVING,
    HYPERBAND,
    JOPT,
    RANDOM_SEARCH,
    SMAC,
    STEPWISE,
    TPE,
)
from prefect_tune.optimizers.methods.fabolas.rules import EI, ES, FABOLAS, MTBO

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from prefect_tune.optimizers.optimizer import Optimizer
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.optimizers.trials.objective import Objective


class Named(Protocol):
    """A declaration with a name."""

    @property
    def name(self) -> str:
        """Name by which users choose the declaration."""


Declared = TypeVar("Declared", bound=Named)

REFERENCE = re.compile(r"[\w.]+:[\w.]+")
"""Pattern of a reference `module:attribute`, as in entry points."""


class UnusablePlugin(UnknownName):
    """A plugin cannot be used. The message gives the reason and the remedy."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        super().__init__(kind, name, ())
        self.args = (f"{kind} {name!r} {reason}",)


class Registry(Mapping[str, Declared], Generic[Declared]):
    """Declarations of one kind by name: first built-in, then registered, then plugins.

    A registry lists names without importing declarations. `get` returns None for a plugin that
    cannot be used.

    Args:
        kind: Kind of the declarations. For example, plugins of kind `method` are entry points in
            the group `prefect_tune.methods`.
        declares: Class of the declarations, or a reference to the class as `module:Class`.
        built_in: Built-in declarations by name, or references to them as `module:attribute`.
    """

    def __init__(
        self, kind: str, declares: type[Declared] | str, built_in: Mapping[str, Declared | str]
    ) -> None:
        self.kind, self.group, self._declares = kind, f"prefect_tune.{kind}s", declares
        self._known: dict[str, Declared | str] = dict(built_in)

    @property
    def _installed(self) -> "Mapping[str, tuple[EntryPoint, ...]]":
        return _installed(self.group, tuple(sys.path))

    @property
    def own(self) -> tuple[str, ...]:
        """The names of built-in and registered declarations, without plugins."""
        return tuple(self._known)

    def without_plugins(self) -> Iterator[Declared]:
        """Yield the built-in and registered declarations."""
        return map(self.named, self.own)

    def usable(self) -> Iterator[Declared]:
        """Yield all declarations except plugins that cannot be used."""
        return (found for found in map(self.get, self) if found is not None)

    def unusable(self) -> Iterator[UnusablePlugin]:
        """Yield the errors of plugins that cannot be used."""
        for name in self:
            try:
                self.named(name)
            except UnusablePlugin as error:
                yield error

    def named(self, name: str) -> Declared:
        """Return the declaration with a name, or raise UnknownName or UnusablePlugin."""
        if name in self._known:
            known = self._known[name]
            return loaded(known) if isinstance(known, str) else known
        entry = self.plugin(name)
        if entry is None:
            raise UnknownName(self.kind, name, self)
        where = _distribution(entry)
        try:
            found = entry.load()
        except (Exception, SystemExit) as error:
            reason = f"of {where} cannot be used: {type(error).__name__}: {error}"
            remedy = f"repair or uninstall {where}"
            raise UnusablePlugin(self.kind, name, f"{reason}; {remedy}") from error
        declares = loaded(self._declares) if isinstance(self._declares, str) else self._declares
        if not isinstance(found, declares) or found.name != name:
            wanted = f"must be a {declares.__name__} named {name!r}; correct the entry point"
            reason = f"of {where} cannot be used: {entry.value} {wanted}"
            raise UnusablePlugin(self.kind, name, reason)
        return found

    def plugin(self, name: str) -> "EntryPoint | None":
        """Return the plugin's entry point; None if the name is built in, registered or unknown.

        Raises UnusablePlugin if two distributions declare the name.
        """
        entries = () if name in self._known else self._installed.get(name, ())
        if len(entries) > 1:
            declaring = " and ".join(map(_distribution, entries))
            reason = f"is declared by {declaring}; uninstall all but one of them"
            raise UnusablePlugin(self.kind, name, reason)
        return entries[0] if entries else None

    def register(self, declared: Declared) -> None:
        """Add a declaration for this process, or raise ValueError if its name is taken."""
        if self._known.setdefault(declared.name, declared) is not declared:
            raise ValueError(f"a {self.kind} named {declared.name!r} exists already; rename yours")

    def __getitem__(self, name: str) -> Declared:
        try:
            return self.named(name)
        except UnknownName as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._installed

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._known, *self._installed])

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def loaded(reference: str) -> Any:
    """Return the object behind a reference `module:attribute`, importing the module."""
    module, _, attribute = reference.partition(":")
    return attrgetter(attribute)(import_module(module))


@cache
def _installed(group: str, path: tuple[str, ...]) -> "Mapping[str, tuple[EntryPoint, ...]]":  # noqa: ARG001
    """Return the entry points of a group by name, cached until sys.path changes."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - help and most commands need none

    found = entry_points(group=group)
    return {name: tuple(found.select(name=name)) for name in sorted(found.names)}


def _distribution(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a file"


METHODS: Registry[Method] = Registry(
    "method",
    Method,
    {
        method.name: method
        for method in (
            FLASH,
            ADMM,
            FABOLAS,
            BAPI,
            ESMBO,
            SMAC,
            TPE,
            BOHB,
            HYPERBAND,
            HALVING,
            JOPT,
            STEPWISE,
            EI,
            ES,
            MTBO,
            ERS,
            RANDOM_SEARCH,
        )
    },
)
"""Methods by name, in display order. `register` adds methods."""

DEFAULT_METHOD = FLASH.name


def register(method: Method) -> None:
    """Add a method for this process, or raise ValueError if its name is taken."""
    METHODS.register(method)


def method_named(name: str) -> Method:
    """Return the method with a name, or raise UnknownName if the name is unknown or unusable."""
    if name not in METHODS:
        synonyms = {other: m.name for m in METHODS.without_plugins() for other in m.synonyms}
        raise UnknownName(METHODS.kind, name, METHODS, synonyms.get(name.lower(), ""))
    return METHODS.named(name)


def make_optimizer(
    method: str,
    space: "Space",
    seed: int,
    objective: "Objective | None" = None,
    options: Mapping[str, Any] | None = None,
) -> "Optimizer":
    """Return a new optimizer, or raise UnknownName if the method or an option is unknown."""
    implementation = loaded(method_named(method).implementation)
    return implementation(space, seed, objective, **(options or {}))
