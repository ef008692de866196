"""Plugins (declarations of other distributions) of a study, and proof that workers have the same.

The proof is the distribution's version and a digest of its code; the study records both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prefect_tune.optimizers.plugins import REFERENCE, Plugin, Registry
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.code_digest import code_digest
from prefect_tune.storage.keys import content_digest
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.fitting.versions import module_text, modules_behind
from prefect_tune.tasks.objective.declaration import METRICS

REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, METRICS, SPACES, FORMATS)
}
"""Registries by the kind of their declarations."""


@dataclass(frozen=True, slots=True)
class UsedPlugin:
    """A declaration of another distribution, as a study uses it, and a digest of its code."""

    kind: str
    name: str
    distribution: str
    version: str
    digest: str

    @property
    def title(self) -> str:
        """The declaration and its distribution, for messages."""
        return f"{self.kind} {self.name!r} of {self.distribution}"


def used_plugins(names: Mapping[str, str]) -> tuple[UsedPlugin, ...]:
    """Return the plugins, by kind, that a study uses; raises UnusablePlugin if one cannot load."""
    found = (REGISTRIES[kind].plugin(name) for kind, name in names.items())
    return tuple(_as_used(plugin) for plugin in found if plugin is not None)


@cache
def check_plugins(used: tuple[UsedPlugin, ...]) -> None:
    """Raise BadInput, with the remedy, if a plugin of a study is missing or different here."""
    for plugin in used:
        _check(plugin)


def _check(used: UsedPlugin) -> None:
    wanted = f"{used.distribution}=={used.version}"
    found = REGISTRIES[used.kind].plugin(used.name)
    if found is None:
        raise BadInput(
            f"the study uses {used.title} {used.version}, which is not installed here",
            remedy=f"install {wanted}",
        )
    if (found.distribution, found.version) != (used.distribution, used.version):
        raise BadInput(
            f"the study uses {used.title} {used.version}, but {found.distribution} "
            f"{found.version} is installed here",
            remedy=f"install {wanted}, or start a new study",
        )
    digest = _as_used(found).digest
    if digest != used.digest:
        raise BadInput(
            f"the study uses {used.title} {used.version} with the code {used.digest[:12]}, but the "
            f"code installed here is {digest[:12]}",
            remedy=f"install the same {wanted} everywhere, or start a new study",
        )


def _as_used(plugin: Plugin) -> UsedPlugin:
    """Return a plugin with the digest of all modules of its distribution that it depends on."""
    declared, package = REGISTRIES[plugin.kind].named(plugin.name), plugin.module.partition(".")[0]
    modules = {plugin.module, *_modules_of(declared, package)}
    roots = {module.partition(".")[0] for module in modules}
    within = _top_level_modules(plugin.distribution) | roots
    behind = modules_behind(modules | roots, tuple(within))  # importing a module runs its package
    digest = code_digest("plugin", map(_module_code, behind))[:32]
    return UsedPlugin(plugin.kind, plugin.name, plugin.distribution, plugin.version, digest)


def _top_level_modules(distribution: str) -> set[str]:
    from importlib.metadata import distribution as installed  # noqa: PLC0415 - plugins are rare

    found = installed(distribution)
    named = set((found.read_text("top_level.txt") or "").split())
    files = (
        file.parts[0].removesuffix(".py") for file in found.files or () if file.suffix == ".py"
    )
    return named or set(files)


def _module_code(module: str) -> str:
    """Return the source of a module, or the digest of its file if it has none."""
    if text := module_text(module):
        return text
    spec = find_spec(module)
    file = Path(spec.origin) if spec and spec.origin else None
    return content_digest("module", [file.read_bytes()]) if file and file.is_file() else ""


def _modules_of(declared: Any, package: str) -> Iterator[str]:
    for field in fields(declared):
        value = getattr(declared, field.name)
        if isinstance(value, str):
            module = value.partition(":")[0] if REFERENCE.fullmatch(value) else ""
            if module and not module.startswith("prefect_tune."):  # its version is compared
                yield module
        elif _is_of(package, module := getattr(value, "__module__", None) or ""):
            yield module
    for step in getattr(declared, "steps", ()):
        paths = (algorithm.import_path or "" for algorithm in step.algorithms)
        yield from (path.rpartition(".")[0] for path in paths if _is_of(package, path))


def _is_of(package: str, name: str) -> bool:
    return name == package or name.startswith(f"{package}.")
