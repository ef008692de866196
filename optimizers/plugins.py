"""Registries: the names that users choose, and the declarations behind them.

A declaration is built in, registered by the running program, or an entry point of another
distribution, a plugin. The group of methods is `prefect_tune.methods`, and so on. Only declarations
that are looked up are imported. Entry points are read for names that are not built in, and to list
all names.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from prefect_tune.optimizers.space.wording import UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Named(Protocol):
    """A declaration with a name."""

    @property
    def name(self) -> str:
        """Name by which users choose it."""


Declared = TypeVar("Declared", bound=Named)

REFERENCE = re.compile(r"[\w.]+:[\w.]+")
"""`module:attribute`, as entry points write it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A declaration of another distribution, with its module and that distribution's version."""

    kind: str
    name: str
    distribution: str
    version: str
    module: str


class UnusablePlugin(UnknownName):
    """An entry point whose declaration cannot be used, with the reason and the remedy."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        super().__init__(kind, name, ())
        self.args = (reason,)


class Registry(Mapping[str, Declared], Generic[Declared]):
    """Declarations of one kind by name: built-in ones first, then registered, then installed ones.

    As a mapping, a registry lists names without importing anything, and imports declarations that
    are looked up. `get` returns None for a plugin that cannot be used. The `kind` "method" reads
    the entry points `prefect_tune.methods`; `built_in` may refer to declarations as `module:Class`.
    """

    def __init__(
        self, kind: str, declares: type[Declared] | str, built_in: Mapping[str, Declared | str]
    ) -> None:
        self.kind, self.group = kind, f"prefect_tune.{kind}s"
        self._declares, self._built_in = declares, dict(built_in)
        self._registered: dict[str, Declared] = {}

    @property
    def own(self) -> tuple[str, ...]:
        """The names of built-in and registered declarations, known without entry points."""
        return (*self._built_in, *self._registered)

    def built_in(self) -> Iterator[Declared]:
        """Yield the built-in declarations."""
        return map(self.named, self._built_in)

    def without_plugins(self) -> Iterator[Declared]:
        """Yield the built-in and registered declarations."""
        return map(self.named, self.own)

    def usable(self) -> Iterator[Declared]:
        """Yield all declarations, without plugins that cannot be used."""
        for name in self:
            found = self.get(name)
            if found is not None:
                yield found

    def unusable(self) -> Iterator[UnusablePlugin]:
        """Yield the errors of plugins that cannot be used."""
        for name, entries in _installed(self.group).items():
            if name in self._built_in:
                yield UnusablePlugin(
                    self.kind,
                    name,
                    f"{_distributions(entries)} declares a {self.kind} {name!r}, which is built in;"
                    " the built-in one is used",
                )
                continue
            try:
                self.named(name)
            except UnusablePlugin as error:
                yield error

    def named(self, name: str) -> Declared:
        """Return the declaration of that name, or raise `UnknownName` or `UnusablePlugin`."""
        if name in self._registered:
            return self._registered[name]
        if name in self._built_in:
            built_in = self._built_in[name]
            return loaded(built_in) if isinstance(built_in, str) else built_in
        entries = _installed(self.group).get(name, ())
        if not entries:
            raise UnknownName(self.kind, name, self)
        return self._of_plugin(name, entries)

    def plugin(self, name: str) -> Plugin | None:
        """Return the plugin that declares a name; None if it is built in, registered or unknown."""
        if name in self._built_in or name in self._registered:
            return None
        entries = _installed(self.group).get(name, ())
        if not entries:
            return None
        found = entries[0].dist
        if found is None:
            raise UnusablePlugin(
                self.kind, name, f"{self.kind} {name!r} is of no installed distribution"
            )
        return Plugin(self.kind, name, found.name, found.version, entries[0].module)

    def register(self, declared: Declared) -> None:
        """Add a declaration for this process, or raise `ValueError` if its name is taken."""
        name = declared.name
        known = self._registered.get(name)
        if known is declared or self._built_in.get(name) is declared:
            return
        if known is not None or name in self._built_in:
            raise ValueError(f"there is a {self.kind} {name!r} already; choose another name")
        self._registered[name] = declared

    def forget(self, name: str) -> None:
        """Remove a registered declaration, if any."""
        self._registered.pop(name, None)

    def __getitem__(self, name: str) -> Declared:
        try:
            return self.named(name)
        except UnknownName as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        known = name in self._built_in or name in self._registered
        return known or name in _installed(self.group)

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.own, *_installed(self.group)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _of_plugin(self, name: str, entries: "tuple[EntryPoint, ...]") -> Declared:
        if len(entries) > 1:
            raise UnusablePlugin(
                self.kind,
                name,
                f"{self.kind} {name!r} is declared by {_distributions(entries)}; "
                "uninstall all but one of these",
            )
        entry = entries[0]
        where = f"{self.kind} {name!r} of {_distributions(entries)}"
        try:
            found = loaded(entry.value.partition("[")[0].strip())
        except (Exception, SystemExit) as error:
            raise UnusablePlugin(
                self.kind,
                name,
                f"{where} cannot be used: {type(error).__name__}: {error}; "
                f"repair or uninstall {_distributions(entries)}",
            ) from error
        declares: type[Any] = (
            loaded(self._declares) if isinstance(self._declares, str) else self._declares
        )
        if not isinstance(found, declares):
            raise UnusablePlugin(
                self.kind,
                name,
                f"{where} cannot be used: {entry.value} is a {type(found).__name__}, "
                f"expected a {declares.__name__}",
            )
        if found.name != name:
            raise UnusablePlugin(
                self.kind,
                name,
                f"{where} cannot be used: {entry.value} is named {found.name!r}, "
                "and an entry point has the name of its declaration",
            )
        return found


@cache
def loaded(reference: str) -> Any:
    """Import the object of a reference `module:attribute`."""
    module, _, attribute = reference.partition(":")
    return attrgetter(attribute)(import_module(module))


def _installed(group: str) -> "Mapping[str, tuple[EntryPoint, ...]]":
    """Entry points of a group by name, cached until sys.path changes."""
    return _entry_points(group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> "Mapping[str, tuple[EntryPoint, ...]]":  # noqa: ARG001
    from importlib.metadata import entry_points  # noqa: PLC0415 - help and most commands need none

    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry in entry_points(group=group):
        found[entry.name].append(entry)
    return {name: tuple(entries) for name, entries in sorted(found.items())}


def _distributions(entries: "tuple[EntryPoint, ...]") -> str:
    names = [f"{e.dist.name} {e.dist.version}" if e.dist else "a file" for e in entries]
    return " and ".join(names)
