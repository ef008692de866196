"""Short forms for declaring hyperparameters and algorithms, and shared hyperparameters.

A group is a list of hyperparameters and their conditions. The order of hyperparameters does not
matter, because ConfigSpace sorts them by name.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    InCondition,
    Integer,
)

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step

OWN = "prefect_tune.tasks.catalogue.estimators"
"""Module of prefect-tune's own estimators."""
C = (2.0**-5, 2.0**15, 1.0)
GAMMA = (2.0**-15, 8.0)
KERNEL_GROWTH = {"rows": 2.0, "held_out": 1.0, "fixed": 0.0}
"""Cost growth of algorithms that compare training rows with each other and with held-out rows."""
SEEDED, DENSE = Flags(stochastic=True), Flags(accepts_sparse=False)
WEIGHTED = Flags(weights="class_weight", stochastic=True)
ROWS_WEIGHTED = Flags(weights="sample_weight", stochastic=True)
MAKES_DENSE = Flags(output="dense", stochastic=True)
OF_DENSE = Flags(accepts_sparse=False, output="dense", stochastic=True)

_KIND = re.compile("_?(classifier|regressor)$", re.IGNORECASE)
_WORD = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
Group = list[Any]
"""Hyperparameters and conditions of ConfigSpace."""


def real(*, log: bool = False, **ranges: tuple[float, float, float]) -> Group:
    """Return real-valued hyperparameters, each given as `name=(lowest, highest, default)`."""
    return [Float(name, r[:2], default=r[2], log=log) for name, r in ranges.items()]


def whole(*, log: bool = False, **ranges: tuple[int, int, int]) -> Group:
    """Return integer hyperparameters, each given as `name=(lowest, highest, default)`."""
    return [Integer(name, r[:2], default=r[2], log=log) for name, r in ranges.items()]


log_real, log_whole = partial(real, log=True), partial(whole, log=True)


def choice(*, default: Any = None, **choices: Sequence[Any]) -> Group:
    """Return categorical hyperparameters; without `default`, the first choice is the default."""
    return [
        Categorical(name, values, default=values[0] if default is None else default)
        for name, values in choices.items()
    ]


def only_if(parent: Group, values: Any, children: Group) -> Group:
    """Return `children` with conditions: they are active only if `parent` has one of `values`."""
    condition = InCondition if isinstance(values, list) else EqualsCondition
    return [*children, *(condition(child, parent[0], values) for child in children)]


def space_of(*groups: Group) -> ConfigurationSpace:
    """Return a ConfigSpace of all hyperparameters in the given groups."""
    space = ConfigurationSpace()
    space.add([part for group in groups for part in group])
    return space


def declare(estimator: str, *groups: Group, name: str = "", **more: Any) -> Algorithm:
    """Declare an algorithm with groups of hyperparameters; `more` sets other fields of `Algorithm`.

    The default id is the estimator's name in snake case, without Classifier or Regressor.
    """
    name = name or _WORD.sub("_", _KIND.sub("", estimator.rpartition(".")[2])).lower()
    return Algorithm(id=name, estimator=estimator, hyperparameters=space_of(*groups), **more)


linear, trees = partial(declare, kind="linear"), partial(declare, kind="trees")
boosted_trees = partial(declare, kind="boosted_trees")
decision_tree = partial(trees, transforms={"max_depth": "depth_factor"})
gradient_boosting = partial(
    boosted_trees, "sklearn.ensemble.GradientBoostingClassifier", flags=ROWS_WEIGHTED
)
svc = partial(declare, "sklearn.svm.SVC", growth=KERNEL_GROWTH, flags=Flags(weights="class_weight"))
svr = partial(declare, "sklearn.svm.SVR", growth=KERNEL_GROWTH)
kernel_pca = partial(
    declare,
    "sklearn.decomposition.KernelPCA",
    whole(n_components=(10, 2000, 100)),
    transforms={"n_components": "clip_n"},
    growth=KERNEL_GROWTH,
    flags=MAKES_DENSE,
)
kitchen_sinks = partial(
    declare,
    "sklearn.kernel_approximation.RBFSampler",
    log_whole(n_components=(50, 10000, 100)),
    name="kitchen_sinks",
    growth={"n_components": 1.0},
    flags=MAKES_DENSE,
)
nystroem = partial(
    declare,
    "sklearn.kernel_approximation.Nystroem",
    transforms={"n_components": "clip_n"},
    growth={"n_components": 1.0},
    flags=MAKES_DENSE,
)


def step(name: str, *algorithms: Algorithm, fixed: bool = False) -> Step:
    """Return a step with these algorithms."""
    return Step(name, algorithms, fixed=fixed)


def twin_of(algorithm: Algorithm, estimator: str, **changes: Any) -> Algorithm:
    """Return the regressor that corresponds to a classifier, without class weights."""
    flags = replace(algorithm.flags, weights="none")
    return replace(algorithm, estimator=estimator, flags=flags, **changes)


def chosen(among: Step, *ids: str) -> tuple[Algorithm, ...]:
    """Return selected algorithms of a step, in the order of `ids`."""
    return tuple(map(among.algorithm, ids))


def splits() -> Group:
    """Return hyperparameters for the minimum numbers of rows in tree nodes."""
    return whole(min_samples_split=(2, 20, 2), min_samples_leaf=(1, 20, 1))


def tol(default: float = 1e-4) -> Group:
    """Return the hyperparameter for the tolerance of a solver."""
    return log_real(tol=(1e-5, 0.1, default))


def forest(*, bootstrap: bool) -> Group:
    """Return hyperparameters of forests."""
    return [*splits(), *choice(bootstrap=[False, True], default=bootstrap)]


def criterion() -> Group:
    """Return the hyperparameter for the criterion of classification trees."""
    return choice(criterion=["gini", "entropy"])


def fast_ica(whitening: str, *groups: Group, **more: Any) -> Algorithm:
    """Declare independent component analysis; the number of components applies with whitening."""
    whiten = choice(whiten=[whitening, "false"], default="false")
    return declare(
        "sklearn.decomposition.FastICA",
        whiten,
        only_if(whiten, whitening, whole(n_components=(10, 2000, 100))),
        choice(algorithm=["parallel", "deflation"], fun=["logcosh", "exp", "cube"]),
        *groups,
        transforms={"n_components": "clip_min_n_p", "whiten": "word"},
        flags=OF_DENSE,
        **more,
    )


def kernel_svm(tolerance: float) -> Group:
    """Return hyperparameters of support vector machines."""
    kernel = choice(kernel=["rbf", "sigmoid", "poly"])
    return [
        *kernel,
        *log_real(C=C, gamma=(*GAMMA, 0.1)),
        *tol(tolerance),
        *only_if(kernel, "poly", [Integer("poly.degree", (1, 5), default=3)]),
        *only_if(kernel, ["sigmoid", "poly"], real(coef0=(-1.0, 1.0, 0.0))),
        *choice(shrinking=[True, False]),
    ]


def sgd(loss: Group, rate: str) -> Group:
    """Return hyperparameters of stochastic gradient descent with a default learning rate."""
    penalty = choice(penalty=["l1", "l2", "elasticnet"], default="l2")
    rates = choice(learning_rate=["optimal", "constant", "invscaling"], default=rate)
    l1_ratio = Float("elasticnet.l1_ratio", (0.0, 1.0), default=0.15)
    power_t = Float("invscaling.power_t", (1e-5, 1.0), default=0.25)
    return [
        *loss,
        *penalty,
        *only_if(penalty, "elasticnet", [l1_ratio]),
        *rates,
        *only_if(rates, "invscaling", [power_t]),
        *log_real(alpha=(1e-6, 0.1, 1e-4)),
        *log_whole(max_iter=(5, 1000, 20)),
        *choice(average=[True, False], default=False),
    ]
