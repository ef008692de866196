"""prefect-tune tunes whole data-analytic pipelines on Prefect. Public names load on first use."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.deployments.estimator.pipeline_search import PipelineSearch
    from prefect_tune.deployments.server.embedded import local_server
    from prefect_tune.flows.compare import compare
    from prefect_tune.flows.results.loaded_study import load_champion, load_study
    from prefect_tune.flows.tune import retry, tune
    from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
    from prefect_tune.optimizers.space.space import Space, order_step
    from prefect_tune.storage.artifacts import ArtifactStore

__all__ = [
    "Algorithm",
    "ArtifactStore",
    "Flags",
    "PipelineSearch",
    "Space",
    "Step",
    "__version__",
    "compare",
    "load_champion",
    "load_study",
    "local_server",
    "order_step",
    "retry",
    "tune",
]

_HOMES = {
    "Algorithm": "prefect_tune.optimizers.space.algorithm",
    "ArtifactStore": "prefect_tune.storage.artifacts",
    "Flags": "prefect_tune.optimizers.space.algorithm",
    "PipelineSearch": "prefect_tune.deployments.estimator.pipeline_search",
    "Space": "prefect_tune.optimizers.space.space",
    "Step": "prefect_tune.optimizers.space.algorithm",
    "compare": "prefect_tune.flows.compare",
    "load_champion": "prefect_tune.flows.results.loaded_study",
    "load_study": "prefect_tune.flows.results.loaded_study",
    "local_server": "prefect_tune.deployments.server.embedded",
    "order_step": "prefect_tune.optimizers.space.space",
    "retry": "prefect_tune.flows.tune",
    "tune": "prefect_tune.flows.tune",
}


_home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises for a user without an account
_has_home = os.access(_home, os.W_OK) or (_home != "/" and os.access(_home, os.F_OK))
if not _has_home and "PREFECT_TUNE_HOME" in os.environ:
    # Prefect cannot be imported without a home folder, and warns if the folder is not writable.
    os.environ["HOME"] = os.path.abspath(os.environ["PREFECT_TUNE_HOME"])  # noqa: PTH100 - as above

os.environ.setdefault("DO_NOT_TRACK", "1")  # or Prefect reports its first import to its vendor

__version__: str

if not TYPE_CHECKING:  # a type checker reads the imports above and reports unknown names

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - half of the package's import time

            return version("prefect-tune")
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
