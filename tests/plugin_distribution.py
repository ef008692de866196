"""A small distribution that declares a method, a metric, a space and a format."""

from collections.abc import Mapping, Sequence
from pathlib import Path

MODULES = {
    "__init__": "EDITION = 1\n",
    "methods": """
from dataclasses import dataclass

from prefect_tune.optimizers.method import Method


@dataclass(frozen=True)
class StrollOptions:
    \"\"\"Options of `--method stroll`.

    Attributes:
        first: The path to begin with.
    \"\"\"

    first: int = 0


STROLL = Method(
    name="stroll",
    purpose="each path once, with default values",
    implementation="tune_extras.search:Stroll",
    options=StrollOptions,
    render_decisions=lambda decisions, _: [f"strolled to path {decisions['reached']}"],
)
""",
    "search": """
from prefect_tune.optimizers import Optimizer, Query, SpaceExhausted
from prefect_tune.optimizers.space.configuration import default_configuration
from tune_extras.methods import STROLL


class Stroll(Optimizer):
    method = STROLL

    def _propose(self, budget, rng):
        paths = list(self.space.paths())[self.options.first + len(self.history) :]
        if not paths:
            raise SpaceExhausted
        return Query(default_configuration(self.space, paths[0]))

    @property
    def decisions(self):
        return {"reached": self.options.first + len(self.history) - 1}
""",
    "metrics": """
from prefect_tune.tasks.objective.metric import MetricDeclaration

COST = MetricDeclaration(
    name="cost",
    row_losses="tune_extras.losses:costs",
    unit="euro",
    symbol=" EUR",
    title="mean cost",
    upper=5.0,
    all_wrong=None,
    asks_positive=True,
)
""",
    "losses": """
import numpy as np

MISSED = 5.0


def costs(y, predictions):
    missed = (y == 1) & (predictions.label == 0)
    return np.where(missed, MISSED, (predictions.label != y).astype(float))
""",
    "spaces": """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.flash import CLASSIFY
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

PRIOR = Algorithm(id="prior", estimator="tune_extras.models.Prior", flags=Flags(stochastic=True))
MODELS = (CLASSIFY.algorithm("gaussian_nb"), CLASSIFY.algorithm("decision_tree"))
TINY = Space("tiny", (IMPUTE, ENCODE, Step("fit model", (*MODELS, PRIOR))))
""",
    "models": """
from sklearn.dummy import DummyClassifier


class Prior(DummyClassifier):
    pass
""",
    "formats": """
import pandas as pd

from prefect_tune.tasks.data.formats.format import Format


def read(location, texts):
    yield pd.read_csv(location.path, sep=";", dtype=dict.fromkeys(texts, str))


SEMICOLONS = Format(
    name="semicolons",
    description="a table of semicolons",
    kind="table",
    recognizes=lambda given: given.location.has_suffix([".semi"]),
    read=read,
)
""",
}
"""Texts of the modules of the package, by name."""
ENTRY_POINTS = {
    "methods": {"stroll": "tune_extras.methods:STROLL"},
    "metrics": {"cost": "tune_extras.metrics:COST"},
    "spaces": {"tiny": "tune_extras.spaces:TINY"},
    "formats": {"semicolons": "tune_extras.formats:SEMICOLONS"},
}
"""Objects by group and name."""


def install(
    folder: Path,
    version: str = "1.0",
    *,
    name: str = "tune-extras",
    entry_points: Mapping[str, Mapping[str, str]] = ENTRY_POINTS,
    **edited: str,
) -> Path:
    """Install the distribution, with some edited modules, into a folder for `sys.path`."""
    package = folder / "tune_extras"
    package.mkdir(parents=True)
    for module, text in {**MODULES, **edited}.items():
        (package / f"{module}.py").write_text(text)
    groups = {f"prefect_tune.{group}": named for group, named in entry_points.items()}
    write_metadata(folder, name, version, ["tune_extras"], groups)
    return folder


def write_metadata(
    folder: Path,
    name: str,
    version: str,
    modules: Sequence[str],
    groups: Mapping[str, Mapping[str, str]],
) -> None:
    """Write the metadata of a distribution next to its modules, as `pip install` would."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "top_level.txt").write_text("\n".join(modules))
    lines = []
    for group, named in groups.items():
        lines += [f"[{group}]", *(f"{one} = {at}" for one, at in named.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
