"""The problem of a study, which never changes, and the context sent with each trial.

A study records the plugins (declarations of other distributions) in use, each with the version of
its distribution and a digest of its code. Workers must have the same plugins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib.metadata import EntryPoint
from math import inf
from typing import TYPE_CHECKING, Any, Self

from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.registry import METHODS, REFERENCE, Registry
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.code_digest import code_digest
from prefect_tune.storage.keys import dataset_record, split_record
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES, space_named
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.objective.metric import METRICS, Metric, Quantity, metric_named
from prefect_tune.tasks.user_code import NO_CODE_BEHIND, CodeBehind, follow

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space


REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, METRICS, SPACES, FORMATS)
}
"""Registries by kind of declaration."""
_SHARE_OF_MEMORY = 0.9
"""Fraction of a machine's memory for trials; the flow and the server use the rest."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Limits of a trial: wall time, and resident memory (None for the worker's limit)."""

    seconds: float
    memory_bytes: int | None = None


def share_of_memory(n_workers: int, memory_bytes: int | None = None) -> int:
    """Return each worker's share of memory, by default the memory of this machine or container."""
    if memory_bytes is None:
        from distributed.system import MEMORY_LIMIT  # noqa: PLC0415 - plans are read without Dask

        memory_bytes = MEMORY_LIMIT
    return int(_SHARE_OF_MEMORY * memory_bytes / n_workers)


@dataclass(frozen=True, slots=True)
class UsedPlugin:
    """A declaration of another distribution that a study uses.

    Attributes:
        digest: Digest of the plugin's code and of all imported modules identified by content.
    """

    kind: str
    name: str
    distribution: str
    version: str
    digest: str


def used_plugins(names: Mapping[str, str]) -> tuple[UsedPlugin, ...]:
    """Return the plugins that a study uses, by kind; may raise `UnusablePlugin`."""
    entries = ((kind, REGISTRIES[kind].plugin(name)) for kind, name in names.items())
    return tuple(_used(kind, entry) for kind, entry in entries if entry is not None)


@cache
def check_plugins(used: tuple[UsedPlugin, ...]) -> None:
    """Raise `BadInput`, with a remedy, if a study's plugin is missing or has changed."""
    for plugin in used:
        entry = REGISTRIES[plugin.kind].plugin(plugin.name)
        found = None if entry is None else _used(plugin.kind, entry)
        if found == plugin:
            continue
        here = "no plugin of this name"
        if found is not None:
            here = f"{found.distribution} {found.version} with the code {found.digest[:12]}"
        wanted = f"{plugin.distribution}=={plugin.version}"
        raise BadInput(
            f"the study uses {plugin.kind} {plugin.name} of {plugin.distribution} {plugin.version} "
            f"with the code {plugin.digest[:12]}, but {here} is installed here",
            remedy=f"install the same {wanted} everywhere, or start a new study",
        )


def _used(kind: str, entry: EntryPoint) -> UsedPlugin:
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


AlgorithmIds = tuple[tuple[str, tuple[str, ...]], ...]
"""Algorithm ids by step."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Data, space, metric and seed of a study.

    Attributes:
        dataset: Digest of the data set.
        split: Digest of the split.
        space: Name of the space, or `FILE.py:NAME` for a user's space.
        space_code: Source of the user's file; empty for a space of the catalogue.
        positive: Position of the positive class, if there are two classes.
        algorithms: Algorithm ids of each searched step when the study started, by step.
        plugins: Declarations of other distributions that the study uses.
        behind: Modules and data files used by the space that were not installed from a wheel.
    """

    dataset: str
    split: str
    space: str
    space_digest: str
    metric: str
    seed: int
    space_code: str = ""
    positive: int = 1
    algorithms: AlgorithmIds = ()
    plugins: tuple[UsedPlugin, ...] = ()
    behind: CodeBehind = NO_CODE_BEHIND

    @property
    def running_plugins(self) -> tuple[UsedPlugin, ...]:
        """Plugins that trials need: all except formats, because the data are already stored."""
        return tuple(plugin for plugin in self.plugins if plugin.kind != "format")

    @property
    def records(self) -> tuple[str, str]:
        """Names of the records of the data set and the split."""
        return dataset_record(self.dataset), split_record(self.split)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return to_document(self, algorithms=dict(self.algorithms))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the problem from the output of `to_json`."""
        algorithms = document["algorithms"].items()
        return from_document(cls, {**document, "algorithms": tuple(algorithms)})

    def find_space(self) -> "Space":
        """Return the space as it was when the study started, and register the user's modules."""
        from prefect_tune.tasks.user_space import load_user_space  # noqa: PLC0415 - heavy

        check_plugins(self.running_plugins)
        if self.space_code:
            return self.as_started(load_user_space(self.space_code, self.space, self.behind))
        return self.as_started(space_named(self.space))

    def as_started(self, space: "Space") -> "Space":
        """Return a space without algorithms that were added after the study started.

        A study can therefore be resumed after algorithms were added; any other change to the space
        changes its digest.
        """
        if not self.algorithms or space.digest == self.space_digest:
            return space
        return _part_of(space, self.algorithms)

    def find_metric(self) -> Metric:
        """Return the metric."""
        check_plugins(self.running_plugins)
        return metric_named(self.metric, self.positive)


@lru_cache(maxsize=4)
def _part_of(space: "Space", algorithms: AlgorithmIds) -> "Space":
    try:
        return space.restricted_to(dict(algorithms))
    except (KeyError, ValueError):  # a step is new, or all of its algorithms were removed
        return space


def algorithm_ids(space: "Space") -> AlgorithmIds:
    """Return the ids of the algorithms of each searched step."""
    return tuple((step.name, tuple(a.id for a in step.algorithms)) for step in space.searched)


@dataclass(frozen=True, slots=True)
class StudyContext:
    """The properties of a study that are sent to a worker with each trial.

    Attributes:
        use_cache: Whether step results are read from and written to the cache.
        memory_limit_bytes: Memory limit of a trial; None for the worker's memory. Steps with a
            larger estimate are not started.
        trial_seconds: Time limit of a trial.
        cache_area: Name of a separate area of the cache; empty for the common area.
        quantities: Quantities to measure in addition to the loss.
        epochs: Epochs in a full training run of an iterative model (t_max); None to train without
            epochs.
        bootstraps: Bootstraps for which evaluations report risks; None for no risks.
        most_threads: Largest number of threads that a fit may use.
        training_seconds: Time after which boosted trees with early stopping get no more rounds.
    """

    study: str
    problem: Problem
    store: StoreAddress
    use_cache: bool = True
    memory_limit_bytes: int | None = None
    trial_seconds: float = inf
    cache_area: str = ""
    quantities: tuple[Quantity, ...] = ()
    epochs: int | None = None
    bootstraps: Bootstraps | None = None
    most_threads: int = 1
    training_seconds: float = inf


@lru_cache(maxsize=4)
def open_store(address: StoreAddress) -> ArtifactStore:
    """Open the store at an address, once per process; may raise `StoreRefused`."""
    return ArtifactStore(address)
