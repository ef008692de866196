"""A user's code, which travels as text and is loaded under a name made of its digest.

Every worker runs the same text. The dotted path of an estimator identifies the code behind it, so
keys never find artifacts of other code. Comments, docstrings and layout do not enter the digest. An
exception that would end the program, such as `sys.exit`, is an error of the algorithm; on a worker
it would end the worker, or leave its task unreported.
"""

import linecache
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from prefect_tune.storage.key import code_digest
from prefect_tune.tasks.bad_input import BadInput

_PREFIX = "prefect_tune_user_code_"


def read_user_code(argument: str, option: str = "space") -> str:
    """Read the text of the file in `FILE.py:NAME`.

    Raises:
        BadInput: If it cannot be read, or no name is given.
    """
    file, _, name = argument.partition(":")
    if not name.isidentifier():
        raise BadInput(f"--{option} {argument}: write {file}:NAME, with a name that is in it")
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--{option} {argument}: {file} cannot be read: {error}") from error


def is_user_code(module: str) -> bool:
    """Return whether a module of that name was loaded from a user's text."""
    return module.startswith(_PREFIX)


@cache
def load_user_code(text: str, file: str) -> ModuleType:
    """Run a text as a module, once per process.

    Args:
        text: Python source.
        file: Name of the file it comes from, for tracebacks.

    Raises:
        BadInput: If it cannot be run; says where and why.
    """
    name = _PREFIX + code_digest("user code", [text])[:32]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[name] = module  # classes are looked up here while they are made
    try:
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - what the user asks for
    except (Exception, SystemExit) as error:  # a script's sys.exit() ends the script, not us
        del sys.modules[name]
        raise BadInput(f"{file}{_line(error, file)}: {type(error).__name__}: {error}") from error
    return module


def portable_pickle(value: Any) -> bytes:
    """Pickle with the classes of users' texts, so that it can be read without them."""
    with by_value(module for name, module in sys.modules.items() if is_user_code(name)):
        return cloudpickle.dumps(value, protocol=5)


@contextmanager
def by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Pickle classes and functions of modules by value in the body."""
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
    """Return where in the file it went wrong."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = []
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            lines.append(at.tb_lineno)
        at = at.tb_next
    return f", line {lines[-1]}" if lines else ""


class ProgramExit(RuntimeError):  # noqa: N818 - it says what happened
    """An algorithm raised an exception that ends programs; the message names it."""


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Raise exceptions that are no `Exception` as errors.

    In the main thread, signals raise such exceptions, so only `SystemExit` is an error there.

    Raises:
        ProgramExit: Instead of such an exception.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and not isinstance(error, SystemExit):
            raise
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ProgramExit(f"the algorithm raised {text}, which ends programs") from error
