"""A user's code, which travels as text and is loaded under a name derived from its digest.

Every worker runs the same text. The dotted path of an estimator identifies the code behind it, so
keys never match artifacts of other code. Comments, docstrings and layout do not enter the digest.

Modules that the file imports and that were not installed from a wheel (see `code_behind`) are
loaded below the file's name, so studies with different versions of a module can share a process.

An exception that would end the worker, such as `sys.exit`, becomes an error of the algorithm.
"""

import builtins
import io
import linecache
import signal
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from prefect_tune.storage.code_digest import code_digest
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.code_behind import MAIN, NO_CODE_BEHIND, CodeBehind, UserModule

_PREFIX = "prefect_tune_user_code_"


def read_user_code(argument: str, option: str = "space") -> str:
    """Read the text of the file in `FILE.py:NAME`; BadInput if unreadable or without a name."""
    file, _, name = argument.partition(":")
    if not name.isidentifier():
        raise BadInput(f"--{option} {argument}: write {file}:NAME, with a name defined in the file")
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--{option} {argument}: {file} cannot be read: {error}") from error


def is_user_code(module: str) -> bool:
    """Return whether a module was loaded from a user's text."""
    return module.startswith(_PREFIX)


def plain_module(module: str) -> str:
    """Return the name under which users import a travelling module; empty for a file itself."""
    return module.partition(".")[2]


@cache
def load_user_code(text: str, file: str, behind: CodeBehind = NO_CODE_BEHIND) -> ModuleType:
    """Run a text as a module, once per process; BadInput has the line in `file` and the error."""
    salt = [behind.nonce] if behind.nonce else []
    name = _PREFIX + code_digest("user code", [text, *behind.texts, *salt])[:32]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    if behind.modules or behind.unfollowed:
        module.__path__, module.__package__ = [], name
        _BEHIND.setdefault(name, {one.name: one for one in behind.modules})
        if behind.main:
            sys.modules[f"{name}.{MAIN}"] = program = ModuleType(f"{name}.{MAIN}")
            vars(program).update(cloudpickle.loads(b64decode(behind.main)))
        if behind.folder and behind.folder not in sys.path:
            sys.path.append(behind.folder)  # for modules that cannot travel
    sys.modules[name] = module  # class definitions look their module up here
    try:
        _run(module, text, file)
    except (Exception, SystemExit) as error:  # a script's sys.exit() must not end this process
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise BadInput(f"{file}{_line(error, file)}: {type(error).__name__}: {error}") from error
    return module


def _run(module: ModuleType, text: str, file: str) -> None:
    root = module.__name__.partition(".")[0]
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    if root in _BEHIND:
        vars(module)["__builtins__"] = _builtins_of(root)
    exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - the user's own code


_BEHIND: dict[str, Mapping[str, UserModule]] = {}
"""Travelling modules by dotted name, by the name of the file that imports them."""


@cache
def _builtins_of(root: str) -> dict[str, Any]:
    """Return builtins whose `__import__` looks for a file's travelling modules first."""
    packages = {name.partition(".")[0] for name in _BEHIND[root]}
    packages |= {MAIN} if f"{root}.{MAIN}" in sys.modules else set()
    usual: Callable[..., Any] = builtins.__import__

    def find_travelling(
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - Python's name
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        package = name.partition(".")[0]
        if level or package not in packages:
            return usual(name, globals, locals, fromlist, level)
        if fromlist:
            return usual(f"{root}.{name}", globals, locals, fromlist, 0)
        import_module(f"{root}.{name}")
        return sys.modules[f"{root}.{package}"]

    return {**vars(builtins), "__import__": find_travelling}


class _TravellingModules(MetaPathFinder, Loader):
    """Imports, from source text, the modules that are sent along with a user's file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        found = self._module(fullname)
        if found is None:
            return None
        spec = ModuleSpec(fullname, self, origin=found.file, is_package=found.is_package)
        spec.has_location = bool(found.file)
        return spec

    def exec_module(self, module: ModuleType) -> None:
        found = self._module(module.__name__)
        assert found is not None  # noqa: S101 - `find_spec` found it
        _run(module, found.text, found.file or f"<{found.name}>")

    def get_code(self, fullname: str) -> CodeType | None:
        found = self._module(fullname)
        return None if found is None else compile(found.text, found.file, "exec")

    def get_source(self, fullname: str) -> str | None:
        found = self._module(fullname)
        return None if found is None else found.text

    @staticmethod
    def _module(fullname: str) -> UserModule | None:
        root, _, name = fullname.partition(".")
        return _BEHIND.get(root, {}).get(name)


sys.meta_path.append(_TravellingModules())


def portable_pickle(value: Any) -> bytes:
    """Pickle a value with the classes of users' texts, so that reading does not need the texts."""
    return pickle_by_value(value, is_user_code)


def pickle_by_value(value: Any, is_carried: Callable[[str], bool]) -> bytes:
    """Pickle a value with code of some modules by value, chosen by name with `is_carried`."""
    written = io.BytesIO()
    carried = [m for name, m in [*sys.modules.items()] if is_carried(name) and m.__name__ == name]
    with by_value(carried):
        _Pickler(written, protocol=5).dump(value)
    return written.getvalue()


_OF_IMPORTS = frozenset({"__builtins__", "__spec__", "__loader__", "__cached__"})


class _Pickler(cloudpickle.Pickler):
    """Pickles a travelling module by value even if modules import each other in a circle."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild a user's module; defer to cloudpickle for everything else."""
        if not isinstance(obj, ModuleType) or not is_user_code(obj.__name__):
            return super().reducer_override(obj)
        state = {name: value for name, value in vars(obj).items() if name not in _OF_IMPORTS}
        return ModuleType, (obj.__name__,), state


@contextmanager
def by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Pickle classes and functions of modules by value during the body."""
    known = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in modules if module.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _line(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = []
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            lines.append(at.tb_lineno)
        at = at.tb_next
    return f", line {lines[-1]}" if lines else ""


class ProgramExit(RuntimeError):  # noqa: N818 - reads as an outcome
    """An algorithm raised an exception that ends programs; the message names it."""


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Turn exceptions that are no `Exception` into ProgramExit.

    In the main thread, signals raise such exceptions, so there only `SystemExit` is converted,
    unless the process ignores signals of the terminal, as a sandbox does.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        may_be_signal = is_main and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
        if may_be_signal and not isinstance(error, SystemExit):
            raise
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ProgramExit(f"the algorithm raised {text}, which ends programs") from error
