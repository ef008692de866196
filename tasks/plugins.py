"""Plugins (declarations of other distributions) of a study, and proof that workers have the same.

The proof is the distribution's version and a digest of its code; the study records both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from prefect_tune.optimizers.plugins import REFERENCE, Registry
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.code_digest import code_digest
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.objective.metric import METRICS
from prefect_tune.tasks.user_code import follow

REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, METRICS, SPACES, FORMATS)
}
"""Registries by the kind of their declarations."""


@dataclass(frozen=True, slots=True)
class UsedPlugin:
    """A declaration of another distribution, as a study uses it.

    Attributes:
        digest: Digest of its code and of all modules it imports that count by content.
    """

    kind: str
    name: str
    distribution: str
    version: str
    digest: str


def used_plugins(names: Mapping[str, str]) -> tuple[UsedPlugin, ...]:
    """Return the plugins, by kind, that a study uses; raises UnusablePlugin if one cannot load."""
    entries = ((kind, REGISTRIES[kind].plugin(name)) for kind, name in names.items())
    return tuple(_as_used(kind, entry) for kind, entry in entries if entry is not None)


@cache
def check_plugins(used: tuple[UsedPlugin, ...]) -> None:
    """Raise BadInput, with the remedy, if a plugin of a study is missing or different here."""
    for plugin in used:
        entry = REGISTRIES[plugin.kind].plugin(plugin.name)
        found = None if entry is None else _as_used(plugin.kind, entry)
        if found == plugin:
            continue
        here = "nothing of that name"
        if found is not None:
            here = f"{found.distribution} {found.version} with the code {found.digest[:12]}"
        wanted = f"{plugin.distribution}=={plugin.version}"
        raise BadInput(
            f"the study uses {plugin.kind} {plugin.name!r} of {plugin.distribution} "
            f"{plugin.version} with the code {plugin.digest[:12]}; installed here is {here}",
            remedy=f"install the same {wanted} everywhere, or start a new study",
        )


def _as_used(kind: str, entry: EntryPoint) -> UsedPlugin:
    declared, distribution = REGISTRIES[kind].named(entry.name), entry.dist
    assert distribution is not None  # noqa: S101 - entry points of installed distributions have one
    values = (getattr(declared, field.name) for field in fields(declared))
    named = [v for v in values if isinstance(v, str) and REFERENCE.fullmatch(v)]
    modules = {entry.module, *(text.partition(":")[0] for text in named)}
    for step in getattr(declared, "steps", ()):
        modules |= {a.import_path.rpartition(".")[0] for a in step.algorithms} - {""}
    behind = follow("", None, modules)
    digest = code_digest("plugin", replace(behind, nonce="").texts)[:32]
    return UsedPlugin(kind, entry.name, distribution.name, distribution.version, digest)
