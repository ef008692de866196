"""A user's file and imported modules, sent to workers as source, and versions of other code.

Modules next to the file, or on the import path without an installed distribution, are identified by
content and sent to workers. Distributions installed in editable mode, from a folder or from a
repository are also identified by content and sent. All other distributions are identified by
version and must be installed on workers.

The dotted path of a user's estimator contains the digest of the code. Therefore cache keys never
match results of other code, and studies with different versions of a module can share a process.
Comments, docstrings and layout do not affect the digest. Modules are found by following the imports
in source code. Modules without source, such as compiled modules, are not sent.

Exceptions that would end the worker, such as `SystemExit`, become errors of the algorithm.
"""

import ast
import builtins
import io
import json
import linecache
import signal
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, distribution, distributions, version
from pathlib import Path
from platform import python_version
from types import ModuleType
from typing import Any
from uuid import uuid4

from prefect_tune.storage.code_digest import code_digest, parsed
from prefect_tune.storage.keys import content_digest, file_digest
from prefect_tune.tasks.bad_input import BadInput

_PREFIX = "prefect_tune_user_code_"
_OURS = "prefect_tune"
_SCIKIT_LEARN = "sklearn"
_NUMERIC = ("numpy", "scipy")
"""Packages whose solvers affect the results of all other packages."""
_ALWAYS = ("prefect-tune", "scikit-learn", *_NUMERIC, "pandas", "prefect", "dask", "ConfigSpace")
"""Distributions that every study depends on."""
_CODE = (".py", ".pyc", ".so", ".pyd")
_REPAIRS = "prefect_tune.tasks.catalogue.construction.REPAIRS"
_LOADERS = frozenset(
    {"import_module", "spec_from_file_location", "SourceFileLoader", "run_path", "run_module"}
)
"""Functions that load code not named by an import in the caller's source."""
_LOADS_CODE = frozenset({"exec", "eval", "__import__", *_LOADERS, *(f".{n}" for n in _LOADERS)})
"""Names and attributes that load code; `eval` only as a name, because `model.eval()` is unrelated.
"""
_BUILTINS = frozenset({".exec", ".eval", ".__import__"})
"""Attributes that load code in a source that imports `builtins`."""


@dataclass(frozen=True, slots=True)
class UserModule:
    """A module as it was when the study started.

    Attributes:
        name: Dotted import name.
        text: Python source; empty for a package without `__init__.py`.
        file: Path of the module's file; empty if the module has no file.
    """

    name: str
    text: str
    file: str = ""
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of an algorithm: declared path, absolute path, and original digest."""

    path: str
    file: str
    digest: str


@dataclass(frozen=True, slots=True)
class CodeBehind:
    """Modules behind a user's file that are identified by content, as of the start of the study.

    Attributes:
        modules: Modules that are sent as source, sorted by name.
        unfollowed: Sorted top-level modules that cannot be sent, with the reason in parentheses.
        folder: Folder of the user's file, where workers look for unfollowed modules.
        nonce: Random string in cache keys, which prevents other studies from using results of
            unfollowed code.
        files: Data files that algorithms depend on.
    """

    modules: tuple[UserModule, ...] = ()
    unfollowed: tuple[str, ...] = ()
    folder: str = ""
    nonce: str = ""
    files: tuple[DataFile, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Strings that identify the code: names, sources and the nonce."""
        named = [part for m in self.modules for part in (repr((m.name, m.is_package)), m.text)]
        return (*named, *([self.nonce] if self.nonce else []))


NO_CODE_BEHIND = CodeBehind()


def read_user_code(argument: str, option: str = "space") -> str:
    """Read the source of `FILE.py` in `FILE.py:NAME`; may raise `BadInput`."""
    file, _, name = argument.partition(":")
    if not name.isidentifier():
        text = f"write {file}:NAME, with a name defined in the file"
        raise BadInput(text, option=option, value=argument)
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        text = f"{file} cannot be read: {error}"
        raise BadInput(text, option=option, value=argument) from error


def changed_files(file: str, code: str, behind: CodeBehind) -> Iterator[str]:
    """Yield files whose content has changed since the study started; deleted files are skipped."""
    texts = [(str(Path(file).expanduser()), code)] if code else []
    for path, known in [*texts, *((m.file, m.text) for m in behind.modules if m.file)]:
        with suppress(OSError, UnicodeDecodeError):
            text = Path(path).read_text(encoding="utf-8")
            if code_digest("module", [text]) != code_digest("module", [known]):
                yield path
    yield from (one.file for one in behind.files if content_of(one.file) not in (one.digest, ""))


def content_of(file: str) -> str:
    """Return the current digest of a data file; empty if the file is unreadable."""
    try:
        status = Path(file).stat()
        return _content(file, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:
        return ""


@cache
def _content(file: str, *status: int) -> str:  # noqa: ARG001 - a changed file is read anew
    with Path(file).open("rb", buffering=0) as opened:
        return file_digest(opened)


def follow(
    text: str,
    file: Path | None,
    modules: Iterable[str] = (),
    is_followed: Callable[[str], bool] | None = None,
) -> CodeBehind:
    """Follow the imports of a user's source and of `modules`, including imports in functions.

    The source can import modules next to its `file`, which is None for code without a file. By
    default, modules are followed unless they are installed; `is_followed` replaces this rule.
    """
    invalidate_caches()  # a module next to the file may be newly written
    folder = None if file is None else str(file.absolute().parent)
    by_version = cache(lambda package: is_installed(package, folder))
    is_followed = is_followed or (lambda name: not by_version(name.partition(".")[0]))
    found: dict[str, UserModule] = {}
    imported, loads_code = _imported_by(text, "")
    unfollowed = {file.name: _LOADING} if loads_code and file is not None else {}
    waiting = set(imported).union(*map(_with_parents, modules))
    while waiting:
        name = waiting.pop()
        spec = find_module(name, folder) if name not in found and is_followed(name) else None
        if spec is None:  # already found, installed, or a name inside a module
            continue
        origin, is_package = spec.origin or "", spec.submodule_search_locations is not None
        source = getattr(spec.loader, "get_source", lambda _: None)(name) if origin else ""
        found[name] = UserModule(name, source or "", origin, is_package)
        package = name if is_package else name.rpartition(".")[0]
        imported, loads_code = _imported_by(source or "", package)
        waiting |= imported
        if source is None or loads_code:
            reason = f"{Path(origin).name} has no Python source" if source is None else _LOADING
            unfollowed[name.partition(".")[0]] = reason
    kept = (m for name, m in sorted(found.items()) if name.partition(".")[0] not in unfollowed)
    return CodeBehind(
        tuple(kept),
        tuple(f"{name} ({reason})" for name, reason in sorted(unfollowed.items())),
        folder=(folder or "") if unfollowed else "",
        nonce=uuid4().hex if unfollowed else "",
    )


_LOADING = "the source loads code without an import statement"


@cache
def _imported_by(text: str, package: str) -> tuple[frozenset[str], bool]:
    """Return a source's imports with their parents, and whether it loads code in other ways.

    Relative imports are resolved against `package`.
    """
    imported, used = set[str](), set[str]()
    with suppress(SyntaxError, ValueError):  # reported when the code runs
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.Import):
                imported.update(*(_with_parents(alias.name) for alias in node.names))
            elif isinstance(node, ast.ImportFrom):
                parts = package.split(".") if node.level else []
                above = parts[: len(parts) + 1 - node.level]
                base = ".".join([*above, node.module or ""]).strip(".")
                used.update(alias.name for alias in node.names)
                imported.update(*(_with_parents(f"{base}.{one.name}") for one in node.names))
            elif isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(f".{node.attr}")
    loading = _LOADS_CODE | (_BUILTINS if "builtins" in imported else frozenset())
    return frozenset(imported), not loading.isdisjoint(used)


def _with_parents(name: str) -> set[str]:
    parts = name.strip(".").split(".")
    return {".".join(parts[:n_parts]) for n_parts in range(1, len(parts) + 1)}


def find_module(name: str, folder: str | None) -> ModuleSpec | None:
    """Find a module in a folder or else on the import path, without importing anything."""
    near, places = None, None
    if parent := name.rpartition(".")[0]:
        within = find_module(parent, folder)
        places = within.submodule_search_locations if within else None
        if places is None:
            return None
    elif folder is not None:
        near = PathFinder.find_spec(name, [folder])
        if near is not None and near.origin is not None:
            return near
    return next(filter(None, (finder.find_spec(name, places) for finder in sys.meta_path)), near)


@cache
def packages_of_distributions() -> Mapping[str, Sequence[Distribution]]:
    """Return the distributions of each top-level package, computed once per process.

    The standard library's function takes a second, because it parses the path of each file.
    """
    found = defaultdict[str, list[Distribution]](list)
    for installed in distributions():
        packages = (installed.read_text("top_level.txt") or "").split()
        if not packages:
            record = installed.read_text("RECORD")
            files = map(str, installed.files or ()) if record is None else record.splitlines()
            paths = (line.partition(",")[0] for line in files)
            tops = (path.partition("/")[0] for path in paths if path.endswith(_CODE))
            packages = [top.partition(".")[0] for top in tops]
        for package in dict.fromkeys(packages):
            found[package].append(installed)
    return found


def distributions_of(package: str) -> list[str]:
    """Return the sorted names of the distributions of a top-level package."""
    found = packages_of_distributions().get(package, ())
    return sorted({installed.metadata["Name"] for installed in found})


def is_installed(package: str, folder: str | None = None) -> bool:
    """Return whether a top-level module is identified by the version of its distribution.

    Distributions installed in editable mode, from a folder or from a repository are identified by
    content, because their code can change without a new version.
    """
    if package in sys.stdlib_module_names or package == _OURS:
        return True
    spec, is_inside = find_module(package, folder), False
    if spec is None:
        return False
    origin = Path(spec.origin or next(iter(spec.submodule_search_locations or ()), ""))
    for installed in map(distribution, distributions_of(package)):
        base = Path(str(installed.locate_file("")))
        source = json.loads(installed.read_text("direct_url.json") or "{}")
        if (installed.read_text("INSTALLER") or "").strip() == "conda":
            source = {}  # folder in which the package was built
        is_of_pip = base.name in {"site-packages", "dist-packages"} or installed.read_text("RECORD")
        if "dir_info" in source or "vcs_info" in source or not is_of_pip:
            return False
        is_inside |= origin.is_relative_to(base) or origin.resolve().is_relative_to(base.resolve())
    return is_inside


def is_user_code(module: str) -> bool:
    """Return whether a module was loaded from a user's source."""
    return module.startswith(_PREFIX)


def plain_module(module: str) -> str:
    """Return the name by which the user imports a sent module; empty for the file itself."""
    return module.partition(".")[2]


@cache
def load_user_code(text: str, file: str, behind: CodeBehind = NO_CODE_BEHIND) -> ModuleType:
    """Run source code as a module, once per process; `BadInput` names the line in `file`."""
    name = _PREFIX + code_digest("user code", [text, *behind.texts])[:32]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    if behind.modules or behind.unfollowed:
        module.__path__, module.__package__ = [], name
        _BEHIND.setdefault(name, {one.name: one for one in behind.modules})
        if behind.folder and behind.folder not in sys.path:
            sys.path.append(behind.folder)  # needed for modules that cannot be sent
    sys.modules[name] = module  # class definitions look up their module here
    try:
        _run(module, text, file)
    except (Exception, SystemExit) as error:  # sys.exit() in a script must not end this process
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        lines += [error.lineno] if isinstance(error, SyntaxError) else []
        where = f"{file}, line {lines[-1]}" if lines else file
        raise BadInput(f"{where}: {type(error).__name__}: {error}") from error
    return module


_BEHIND: dict[str, Mapping[str, UserModule]] = {}
"""Sent modules by dotted name, for each user's file (by its module name)."""


def _run(module: ModuleType, text: str, file: str) -> None:
    root = module.__name__.partition(".")[0]
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    if root in _BEHIND:
        vars(module)["__builtins__"] = _builtins_of(root)
    exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - the user's own code


@cache
def _builtins_of(root: str) -> dict[str, Any]:
    """Return builtins whose `__import__` first looks for modules sent with the file."""
    packages = {name.partition(".")[0] for name in _BEHIND[root]}
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
        found = usual(f"{root}.{name}", globals, locals, fromlist, 0)
        return found if fromlist else sys.modules[f"{root}.{package}"]

    return {**vars(builtins), "__import__": find_travelling}


class _TravellingModules(MetaPathFinder, Loader):
    """Importer of modules sent as source with a user's file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        root, _, name = fullname.partition(".")
        found = _BEHIND.get(root, {}).get(name)
        if found is None:
            return None
        return ModuleSpec(fullname, self, loader_state=found, is_package=found.is_package)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # noqa: S101 - `find_spec` made it
        found: UserModule = module.__spec__.loader_state
        _run(module, found.text, found.file or f"<{found.name}>")


sys.meta_path.append(_TravellingModules())


def portable_pickle(value: Any, is_carried: Callable[[str], bool] = is_user_code) -> bytes:
    """Pickle a value with the code of some modules, so that loading does not need the modules.

    `is_carried` selects modules by name; by default, modules of user code.
    """
    import cloudpickle  # noqa: PLC0415 - plans are read without pickling

    class Pickler(cloudpickle.Pickler):
        """Pickles sent modules by value, even modules with circular imports."""

        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, ModuleType) or not is_user_code(obj.__name__):
                return super().reducer_override(obj)
            of_import = {"__builtins__", "__spec__", "__loader__", "__cached__"}
            state = {name: value for name, value in vars(obj).items() if name not in of_import}
            return ModuleType, (obj.__name__,), state

    written, known = io.BytesIO(), cloudpickle.list_registry_pickle_by_value()
    carried = [m for name, m in [*sys.modules.items()] if is_carried(name) and m.__name__ == name]
    new = [module for module in carried if module.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        Pickler(written, protocol=5).dump(value)
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
    return written.getvalue()


@cache
def digest_of_own(path: str) -> str:
    """Return the digest of prefect-tune's code behind a class or function."""
    module, _, name = path.rpartition(".")
    defined_in = getattr(getattr(import_module(module), name), "__module__", module)
    behind = follow("", None, [module, defined_in], lambda one: one.startswith(f"{_OURS}.tasks."))
    return code_digest("own code", (m.text for m in behind.modules if not m.is_package))[:32]


def library_of(
    estimator: str,
    make: Callable[[], Any],
    *,
    repaired: bool = False,
    holds_objects: bool = False,
    required: Iterable[str] = (),
) -> str:
    """Return the packages behind an estimator with versions, or digests for code without versions.

    An estimator from a package other than scikit-learn and prefect-tune may inherit from or contain
    classes of any package. Therefore `make` builds the estimator, and all of its classes are
    inspected. An estimator is also built and inspected if `holds_objects` declares that arguments
    may come from other packages. Raises `ValueError` if a package is not installed.
    """
    package, others = estimator.partition(".")[0], {_SCIKIT_LEARN, *_NUMERIC, *required}
    if package == _OURS:
        first = f"{_OURS} {digest_of_own(estimator)}"
    else:
        first = package if is_user_code(package) else _with_version(package)
    if holds_objects or package not in (_OURS, _SCIKIT_LEARN):
        # If the estimator cannot be built here, its step will fail anyway.
        with suppress(Exception, SystemExit):
            others |= set(_packages(make()))
    repairs = [f"{_OURS} {digest_of_own(_REPAIRS)}"] if repaired else []
    return ", ".join([first, *repairs, *map(_with_version, sorted(others - {package}))])


def _packages(estimator: Any) -> Iterator[str]:
    """Yield the packages of all classes and base classes in an estimator and its parameters."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    for value in (estimator, *parameters.values()):
        itself = value.__mro__ if isinstance(value, type) else (value,)
        for one in [*type(value).__mro__, *itself]:
            package = (getattr(one, "__module__", None) or "").partition(".")[0]
            is_followed = is_user_code(package) or package in {"", "__main__"}
            if not is_followed and package not in sys.stdlib_module_names:
                yield _SCIKIT_LEARN if package == _OURS else package


@cache
def _with_version(package: str) -> str:
    """Return a package with its version, or with a digest if identified by content.

    A version attribute is not enough, because code can change while the version stays the same.
    """
    spec = find_module(package, None)
    if spec is None or is_installed(package):
        return f"{package} {installed_version(package)}"
    found = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for place in found for file in place.rglob("*") if file.suffix in _CODE]
    files += [Path(spec.origin)] if spec.origin and not found else []
    texts = [part for file in sorted(files) for part in (file.name.encode(), file.read_bytes())]
    return f"{package} {content_digest('package', texts)[:32]}"


def installed_version(package: str) -> str:
    """Return the version of a package without importing it; `ValueError` if not installed."""
    if not (names := distributions_of(package)):
        raise ValueError(f"{package} is not installed")
    return " ".join(map(version, names))


def session_versions(required: Iterable[str] = ()) -> dict[str, str]:
    """Return versions of Python and of a session's packages; may raise `ValueError`."""
    versions = {"python": python_version(), **{name: version(name) for name in _ALWAYS}}
    return versions | {package: installed_version(package) for package in sorted(set(required))}


def changed_libraries(former: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence on each library of models whose version differs from that in `former`.

    `former` has the `session_versions` of an earlier session.
    """
    for package in sorted(former.keys() - {"python", *_ALWAYS}):
        with suppress(ValueError):  # not installed, which is refused elsewhere
            now, then = installed_version(package), former[package]
            if now != then:
                yield f"{package} is {now} instead of {then}, so its models are trained anew"


class ProgramExit(RuntimeError):  # noqa: N818 - reads as an outcome
    """An algorithm raised an exception, named in the message, that would end the program."""


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Convert exceptions other than `Exception`, such as `SystemExit`, to `ProgramExit`.

    In the main thread, where signals also raise exceptions, only `SystemExit` is converted, unless
    the process ignores signals from the terminal, as sandboxes do.
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
        raise ProgramExit(f"the algorithm raised {text}, which would end the program") from error
