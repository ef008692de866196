"""A model as a pickle that carries what it has of our code and of users', and what that needs.

Classes and functions of prefect-tune and of users' files go by value, as bytecode of this version
of Python; all others are found by name where the pickle is read.
"""

import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import cloudpickle

from prefect_tune.tasks.user_code import is_user_code

OURS = "prefect_tune"
_READ_BY = "cloudpickle"


@dataclass(frozen=True, slots=True)
class Pickled:
    """A model as a pickle.

    Attributes:
        data: The pickle.
        model: The model as it is read from it.
        packages: Packages that reading imports, sorted; none of the standard library.
    """

    data: bytes
    model: Any
    packages: tuple[str, ...]

    @property
    def carries_code(self) -> bool:
        """Whether it has code by value, which only this version of Python reads."""
        return _READ_BY in self.packages


def portable(model: Any) -> Pickled:
    """Pickle a model with our classes and users' by value, and read it back."""
    carried = [m for name, m in sys.modules.items() if is_ours(name) or is_user_code(name)]
    with _by_value(carried):
        data: bytes = cloudpickle.dumps(model, protocol=5)
    reader = _Reader(data)
    read = reader.load()
    return Pickled(data, read, tuple(sorted(reader.packages - sys.stdlib_module_names)))


def _cached(function: Callable[[Any], Any], name: str) -> cached_property[Any]:
    """Return the cached property that a class has under a name."""
    made = cached_property(function)
    made.attrname = name
    return made


# Until Python 3.12 they hold a lock, so classes that have any would not go by value.
copyreg.pickle(cached_property, lambda it: (_cached, (it.func, it.attrname)))


def is_ours(module: str) -> bool:
    """Return whether a module of that name is prefect-tune's."""
    return module.partition(".")[0] == OURS


@contextmanager
def _by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    known = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in modules if module.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


class _Reader(pickle.Unpickler):
    """Reads a pickle and notes the packages of all that it imports."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.packages: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Import a class or function, as reading a pickle does."""
        self._note(module)
        found = super().find_class(module, name)
        return self._noted(found) if (module, name) == _IMPORT else found

    def _noted(self, imports: Callable[[str], ModuleType]) -> Callable[[str], ModuleType]:
        def noted(module: str) -> ModuleType:
            self._note(module)
            return imports(module)

        return noted

    def _note(self, module: str) -> None:
        self.packages.add(module.partition(".")[0])


_IMPORT = ("cloudpickle.cloudpickle", "subimport")
"""By which code that goes by value imports the modules that it uses."""
