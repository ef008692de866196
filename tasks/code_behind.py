"""The code behind a user's file: every module it imports that was not installed from a wheel.

Such modules may change while their version does not. They are found through the imports in their
source, and travel with the study. Modules without source, such as compiled ones, do not travel.
"""

import ast
import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from types import FunctionType
from typing import TypeGuard
from uuid import uuid4

MAIN = "__main__"
_OURS = "prefect_tune"
_IMPORTERS = frozenset({"import_module", "__import__"})
"""Functions that import a module whose name may not be in the source."""
_LOADERS = frozenset(
    {
        "spec_from_file_location", "SourceFileLoader", "module_from_spec", "run_path",
        "run_module", "execfile",
    }
)  # fmt: skip
"""Functions that run code from elsewhere."""
_BUILT_IN = frozenset({"exec", "eval"})
"""Such functions, too, except as methods: `model.eval()` means something else."""
_INSTALLED_INTO = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class UserModule:
    """A module as it was when the study started.

    Attributes:
        name: Dotted import name.
        text: Python source; empty for a package without `__init__.py`.
        file: Path of the module's file; empty if it has none.
    """

    name: str
    text: str
    file: str = ""
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of an algorithm: declared path, absolute path, and digest at the start."""

    path: str
    file: str
    digest: str


@dataclass(frozen=True, slots=True)
class CodeBehind:
    """Code behind a user's file that was not installed from a wheel, as the study started with it.

    Attributes:
        modules: Modules that travel as source, sorted by name.
        unfollowed: Top-level modules that cannot travel, with the reason in brackets, sorted.
        folder: Folder of the user's file, where workers look for unfollowed modules.
        nonce: Random text that keeps results of unfollowed code out of other studies.
        main: Classes and functions of the program or notebook itself, as a pickle in base 64.
        files: Data files that algorithms depend on.
    """

    modules: tuple[UserModule, ...] = ()
    unfollowed: tuple[str, ...] = ()
    folder: str = ""
    nonce: str = ""
    main: str = ""
    files: tuple[DataFile, ...] = ()

    @property
    def packages(self) -> frozenset[str]:
        """Top-level names of the modules that travel."""
        names = [*(module.name for module in self.modules), *([MAIN] if self.main else [])]
        return frozenset(name.partition(".")[0] for name in names)

    @property
    def unfollowed_packages(self) -> frozenset[str]:
        """Top-level names of the modules that cannot travel."""
        return frozenset(entry.partition(" (")[0] for entry in self.unfollowed)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names and sources that determine the modules' behaviour."""
        return tuple(part for m in self.modules for part in (repr((m.name, m.is_package)), m.text))


NO_CODE_BEHIND = CodeBehind()


def changed_files(file: str, code: str, behind: CodeBehind) -> Iterator[str]:
    """Yield the files whose content has changed since the study started, but no deleted files."""
    from prefect_tune.storage.code_digest import code_digest  # noqa: PLC0415 - plans need no digest

    texts = [(str(Path(file).expanduser()), code)] if code else []
    for path, known in [*texts, *((m.file, m.text) for m in behind.modules if m.file)]:
        with suppress(ImportError, OSError):
            text = SourceFileLoader("module", path).get_source("module") or ""
            if code_digest("module", [text]) != code_digest("module", [known]):
                yield path
    yield from (one.file for one in behind.files if content_of(one.file) not in (one.digest, ""))


def content_of(file: str) -> str:
    """Return the current digest of a data file; empty if it cannot be read."""
    try:
        status = Path(file).stat()
        return _content(file, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:
        return ""


@cache
def _content(file: str, *status: int) -> str:  # noqa: ARG001 - a changed file is read anew
    from prefect_tune.storage.keys import file_digest  # noqa: PLC0415 - plans need no digest

    with Path(file).open("rb", buffering=0) as opened:
        return file_digest(opened)


def follow(text: str, file: Path | None, modules: Iterable[str] = ()) -> CodeBehind:
    """Follow the imports of a user's text and of `modules`, including imports inside functions.

    The text can import neighbours of its `file`, which is None for code without a file.
    """
    invalidate_caches()  # a neighbour may have just been written
    folder = None if file is None else str(file.absolute().parent)
    trail = _Trail(folder)
    trail.read(text, "", "" if file is None else file.name)
    for name in modules:
        trail.visit(name)
    tops = trail.unfollowed
    kept = (m for name, m in sorted(trail.found.items()) if name.partition(".")[0] not in tops)
    return CodeBehind(
        tuple(kept),
        tuple(f"{name} ({reason})" for name, reason in sorted(tops.items())),
        folder=(folder or "") if tops else "",
        nonce=uuid4().hex if tops else "",
        main=_pickled_main(trail.main_names) if MAIN in tops else "",
    )


def _pickled_main(names: Iterable[str]) -> str:
    """Pickle the program's classes and functions by value, including those imported from it."""
    import cloudpickle  # noqa: PLC0415 - few studies need it

    main = vars(sys.modules[MAIN])
    own = [name for name, value in main.items() if getattr(value, "__module__", "") == MAIN]
    found = {name: main[name] for name in {*own, *names} if name in main}
    found = {n: v for n, v in found.items() if n in names or isinstance(v, type | FunctionType)}
    return b64encode(cloudpickle.dumps(found)).decode()


class _Trail:
    """Modules found so far, and those that cannot be followed, by top-level name."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.found: dict[str, UserModule] = {}
        self.unfollowed: dict[str, str] = {}
        self.main_names: set[str] = set()
        self._specs: dict[str, ModuleSpec | None] = {}
        self._installed: dict[str, bool] = {}

    def read(self, text: str, package: str, top: str) -> None:
        """Visit all imports of the source of a module below `top`; relative ones use `package`."""
        from prefect_tune.storage.code_digest import parsed  # noqa: PLC0415 - plans need no syntax tree

        try:
            tree = parsed(text)
        except (SyntaxError, ValueError):  # reported when the code runs
            return
        constant = {id(node.func) for node in ast.walk(tree) if self._is_harmless(node)}
        for node in ast.walk(tree):
            for name in _imports(node, package):
                self.visit(name)
            if _is_dynamic(node) and id(node) not in constant:
                self.unfollowed.setdefault(top, "it runs code that its source does not name")

    def _is_harmless(self, node: ast.AST) -> TypeGuard[ast.Call]:
        """Return whether a call imports an installed module whose name is in the source."""
        if not isinstance(node, ast.Call) or _name(node.func) not in _IMPORTERS:
            return False
        return self._is_installed(_constant(node))

    def visit(self, name: str) -> None:
        parts = name.split(".")
        if parts[0] == MAIN:
            self.unfollowed[MAIN] = "the program or notebook itself"
            self.main_names.update(parts[1:2])
            return
        if self._is_installed(name):
            return
        for n_parts in range(1, len(parts) + 1):
            if not self._note(".".join(parts[:n_parts]), parts[0]):
                return

    def _note(self, name: str, top: str) -> bool:
        """Record one module; return whether to search for modules inside it."""
        if name in self.found:
            return True
        if (spec := self._spec(name)) is None:
            return False
        is_package = spec.submodule_search_locations is not None
        if is_package and spec.origin is None:
            self.found[name] = UserModule(name, "", "", is_package)
            if packages_of_distributions().get(name):
                self.unfollowed[top] = "only some of its modules come from a wheel"
            return True
        text = getattr(spec.loader, "get_source", lambda _: None)(name)
        if text is None:
            what = Path(spec.origin or name).name
            self.unfollowed.setdefault(top, f"{what} has no Python source")
            return False
        self.found[name] = UserModule(name, text, spec.origin or "", is_package)
        self.read(text, name if is_package else name.rpartition(".")[0], top)
        return True

    def _is_installed(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == _OURS:
            return True
        if top not in self._installed:
            spec = self._spec(top) if top else None
            self._installed[top] = spec is not None and is_of_wheel(top, spec)
        return self._installed[top]

    def _spec(self, name: str) -> ModuleSpec | None:
        """Find a module as an import would, without importing anything."""
        if name not in self._specs:
            parent, _, _ = name.rpartition(".")
            within = self._spec(parent) if parent else None
            places = within.submodule_search_locations if within else None
            if not parent:
                self._specs[name] = find_module(name, self._folder)
            else:
                self._specs[name] = PathFinder.find_spec(name, places) if places else None
        return self._specs[name]


def find_module(name: str, folder: str | None) -> ModuleSpec | None:
    """Find a top-level module in a folder or else on the path, without importing anything."""
    near = PathFinder.find_spec(name, [folder]) if folder is not None else None
    if near is not None and near.origin is not None:
        return near
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None)
        if spec is not None:
            return spec
    return near


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base, parts = node.module or "", package.split(".") if package else []
        if node.level > len(parts) + (not package):
            return  # beyond the top-level package, which is an error at run time
        if node.level and (above := parts[: len(parts) - node.level + 1]):
            base = ".".join([*above, base] if base else above)
        if base:
            yield base
        yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _is_dynamic(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):  # under another name, its uses cannot be recognised
        return any(one.asname and one.name in _IMPORTERS | _LOADERS for one in node.names)
    is_built_in = isinstance(node, ast.Name) and node.id in _BUILT_IN
    return is_built_in or _name(node) in _IMPORTERS | _LOADERS


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.Call) -> str:
    """Return the name in a call that imports, if literal; otherwise a name of no module."""
    first = node.args[0] if node.args else None
    value = first.value if isinstance(first, ast.Constant) else None
    return value if isinstance(value, str) else ""


@cache
def packages_of_distributions() -> dict[str, tuple[str, ...]]:
    """Return the distributions of each top-level name, sorted; read once per process."""
    found = packages_distributions()
    return {package: tuple(sorted(set(names))) for package, names in found.items()}


def is_of_wheel(package: str, spec: ModuleSpec) -> bool:
    """Return whether a top-level module was installed from a wheel or by the system.

    Installs from a folder or repository do not count: their code can change within a version.
    """
    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    names = packages_of_distributions().get(package, ())
    found = [distribution(name) for name in names]
    if spec.origin is None and not all(map(_is_wheel, found)):
        return False
    return any(_is_wheel(one) and _has(one, Path(origin)) for one in found)


def _has(installed: Distribution, file: Path) -> bool:
    base = Path(str(installed.locate_file("")))
    return file.is_relative_to(base) or file.resolve().is_relative_to(base.resolve())


def _is_wheel(installed: Distribution) -> bool:
    if (installed.read_text("INSTALLER") or "").strip() == "conda":
        return True  # its packages name their build folder
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    if "dir_info" in source or "vcs_info" in source:
        return False
    base = Path(str(installed.locate_file("")))
    return installed.read_text("RECORD") is not None or base.name in _INSTALLED_INTO
