"""Recipes: the exact effect of a step on data of a given shape, and the basis of its key.

Values that `transforms` turn into the same effective value share their artifacts.
"""

import zlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import signature
from math import log
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.converter import value_document
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary, MemoryRule, memory_rule
from prefect_tune.tasks.repairs import REPAIRS, repairs_of
from prefect_tune.tasks.threads import with_one_thread
from prefect_tune.tasks.user_code import content_of, library_of


def _logp_max_features(value: Any, summary: MatrixSummary) -> int:
    p = summary.columns
    return max(1, min(p // 2, int(value * (log(p) + 1))))


TransformRule = Callable[[Any, MatrixSummary], Any]
"""Computes an effective value from a configured value and the training rows."""

_LITERALS = {"none": None, "false": False, "true": True}
_WITHOUT_PARENTS = {"parents": "code", "all": "both"}

TRANSFORMS: Mapping[str, TransformRule] = {
    "clip_n": lambda value, summary: min(value, summary.rows),
    "clip_p": lambda value, summary: min(value, summary.columns),
    "clip_below_p": lambda value, summary: max(1, min(value, summary.columns - 1)),
    "clip_min_n_p": lambda value, summary: min(value, summary.rows, summary.columns),
    "depth_factor": lambda value, summary: max(1, round(value * summary.columns)),
    "logp_max_features": _logp_max_features,
    "per_column": lambda value, summary: value / max(summary.columns, 1),
    "power_of_p": lambda value, summary: max(1, int(summary.columns**value)),
    "share_of_p": lambda value, summary: max(1, round(value * summary.columns)),
    "two_class_loss": lambda value, summary: "log_loss" if summary.n_classes > 2 else value,
    "truth": lambda value, _: bool(value),
    "word": lambda value, _: _LITERALS.get(value, value),
    "inert": lambda value, _: value,
    "levels_there": lambda value, summary: (
        value if summary.has_parents else _WITHOUT_PARENTS.get(value, value)
    ),
}
"""Rules by name; n is the number of training rows, p the number of columns.

`word` turns none, true and false into Python's values. `two_class_loss` is for a loss that is
undefined for more than two classes. `levels_there` ignores parents of codes if the data has none,
so that the values share artifacts. An `inert` hyperparameter is in the paper's table but has no
effect, and the estimator never gets it.
"""


def _rule(rule: str | TransformRule) -> TransformRule:
    if not isinstance(rule, str):
        return rule
    if rule not in TRANSFORMS:
        raise UnknownName("hyperparameter transform", rule, TRANSFORMS)
    return TRANSFORMS[rule]


_PLAIN = (bool, int, float, str, type(None))
"""Types of arguments that come from no other package."""
_REPAIRED = "estimator"
"""Name of the estimator behind its repairs."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything an algorithm does to data of a given shape; keys are made of recipes.

    Attributes:
        arguments: Constructor arguments, as the estimator receives them.
        weights: Way in which class weights reach the estimator, or "none".
        library: Packages and versions of its classes; digests for our and users' code.
        stochastic: Whether the estimator takes a seed.
        repairs: Repairs applied to the input before fitting (see `tasks.repairs`), in order.
        out_of_fold: Whether training rows are transformed by `fit_transform`.
        files: Digests of the data files it depends on; empty for a missing file.
        memory: Rule that estimates its memory, if there is one; not in the key.
        threads: Declared way to give several threads to a fit; not in the key.
    """

    algorithm: str
    estimator: str
    arguments: Mapping[str, Any]
    weights: str
    library: str
    stochastic: bool
    repairs: tuple[str, ...] = ()
    out_of_fold: bool = False
    files: tuple[str, ...] = ()
    memory: MemoryRule | None = None
    threads: str = ""

    @property
    def weight_argument(self) -> str:
        """Argument of `fit` for row weights; empty if there is none."""
        if self.weights != "sample_weight":
            return ""
        return f"{_REPAIRED}__sample_weight" if self.repairs else "sample_weight"

    def model_in(self, estimator: Any) -> Any:
        """Return the estimator behind its repairs."""
        return estimator[-1] if self.repairs else estimator

    def to_json(self, seed: int) -> dict[str, Any]:
        """Return everything that determines the result, as JSON values."""
        document: dict[str, Any] = {
            "algorithm": self.algorithm,
            "estimator": self.estimator,
            "arguments": {name: value_document(v) for name, v in self.arguments.items()},
            "library": self.library,
        }
        if self.stochastic:
            document["seed"] = seed
        more = {
            "weights": "" if self.weights == "none" else self.weights,
            "repairs": list(self.repairs),
            "out_of_fold": self.out_of_fold,
            "files": list(self.files),
        }
        return document | {name: value for name, value in more.items() if value}


def recipe(
    algorithm: Algorithm, choice: Choice, summary: MatrixSummary, *, balanced: bool
) -> Recipe:
    """Make an algorithm's recipe; `balanced` if an earlier step requested class weights."""
    arguments = dict(algorithm.fixed)
    for name, value in sorted(choice.values, key=lambda item: "." in item[0]):
        rule = algorithm.transforms.get(name)
        if rule == "inert":
            continue
        argument = name.rsplit(".", 1)[-1]
        arguments[argument] = _rule(rule)(value, summary) if rule else value
    estimator = algorithm.import_path
    if summary.layout == "sparse":
        if algorithm.sparse_estimator:
            estimator, arguments = algorithm.sparse_estimator, {}
        arguments |= algorithm.sparse_fixed
    weights = algorithm.flags.weights if balanced else "none"
    if weights == "class_weight":
        arguments["class_weight"] = "balanced"
    how = Recipe(
        algorithm=algorithm.id,
        estimator=estimator,
        arguments=arguments,
        weights=weights,
        library="",
        stochastic=algorithm.flags.stochastic,
        repairs=repairs_of(algorithm.flags, dict(choice.values), summary.layout),
        out_of_fold=algorithm.flags.out_of_fold,
        files=tuple(content_of(file) for file in algorithm.depends_on),
        memory=memory_rule(algorithm, estimator),
        threads=algorithm.threads if estimator == algorithm.import_path else "",
    )
    library = library_of(
        estimator,
        lambda: build(how, seed=0),
        repaired=bool(how.repairs),
        holds_objects=not all(isinstance(v, _PLAIN) for v in arguments.values()),
        required=algorithm.requires,
    )
    return replace(how, library=library)


def step_seed(study_seed: int, step: str, fold: int) -> int:
    """Return the seed of a step's estimators in a fold, independent of the trial."""
    key = (zlib.crc32(step.encode()), fold)
    state = np.random.SeedSequence(study_seed, spawn_key=key).generate_state(1)
    return int(state[0])


def build(how: Recipe, seed: int) -> Any:
    """Build a recipe's unfitted estimator behind its repairs, with open seeds and threads set."""
    make, arguments = imported(how.estimator), deepcopy(dict(how.arguments))
    accepted = signature(make).parameters.values() if how.stochastic else ()
    if any(p.name == "random_state" or p.kind is p.VAR_KEYWORD for p in accepted):
        arguments["random_state"] = seed
    estimator = make(**arguments)
    if how.stochastic and (names := unseeded_arguments(estimator)):
        seeds = np.random.default_rng(seed).integers(2**31, size=len(names))
        estimator.set_params(**dict(zip(names, seeds.tolist(), strict=True)))
    estimator = with_one_thread(estimator)
    if not how.repairs:
        return estimator
    return Pipeline([*((name, REPAIRS[name]()) for name in how.repairs), (_REPAIRED, estimator)])


def unseeded_arguments(estimator: Any) -> list[str]:
    """Return the arguments that leave randomness open, including inner estimators'."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return sorted(
        name
        for name, value in parameters.items()
        if value is None and name.rsplit("__", 1)[-1] == "random_state"
    )


@cache
def imported(path: str) -> Any:
    """Import the object of a dotted path."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)
