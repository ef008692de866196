"""Hyperparameter spaces that several algorithms share, apart from ranges that papers set."""

from collections.abc import Sequence

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    InCondition,
    Integer,
)
from ConfigSpace.hyperparameters import Hyperparameter, UniformFloatHyperparameter

C = (2.0**-5, 2.0**15)
GAMMA = (2.0**-15, 8.0)
KERNEL_GROWTH = {"rows": 2.0, "held_out": 1.0, "fixed": 0.0}
"""Cost growth of algorithms that compare training rows with each other and held-out rows."""


def ranges(*hyperparameters: Hyperparameter) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return a space of some hyperparameters, without conditions."""
    return ConfigurationSpace(space=list(hyperparameters))


def forest_space(
    max_features: UniformFloatHyperparameter,
    *more: Hyperparameter,  # type: ignore[type-arg]
    bootstrap: bool,
    of_classes: bool = True,
) -> ConfigurationSpace:
    """Return the hyperparameters of forests; `of_classes` adds the criterion."""
    criterion = Categorical("criterion", ["gini", "entropy"], default="gini")
    return ranges(
        max_features,
        *more,
        *([criterion] if of_classes else []),
        Integer("min_samples_split", (2, 20), default=2),
        Integer("min_samples_leaf", (1, 20), default=1),
        Categorical("bootstrap", [False, True], default=bootstrap),
    )


def fast_ica_space(whitening: str, *more: Hyperparameter) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return hyperparameters of independent components; their number depends on whitening."""
    n_components = Integer("n_components", (10, 2000), default=100)
    whiten = Categorical("whiten", [whitening, "false"], default="false")
    space = ranges(
        whiten,
        n_components,
        Categorical("algorithm", ["parallel", "deflation"], default="parallel"),
        Categorical("fun", ["logcosh", "exp", "cube"], default="logcosh"),
        *more,
    )
    space.add(EqualsCondition(n_components, whiten, whitening))
    return space


def kernel_svm_space(*more: Hyperparameter, tol: float) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return the hyperparameters of support vector machines, with the default of `tol`."""
    kernel = Categorical("kernel", ["rbf", "sigmoid", "poly"], default="rbf")
    degree = Integer("poly.degree", (1, 5), default=3)
    coef0 = Float("coef0", (-1.0, 1.0), default=0.0)
    space = ranges(
        kernel,
        Float("C", C, default=1.0, log=True),
        *more,
        degree,
        Float("gamma", GAMMA, default=0.1, log=True),
        coef0,
        Categorical("shrinking", [True, False], default=True),
        Float("tol", (1e-5, 0.1), default=tol, log=True),
    )
    space.add(EqualsCondition(degree, kernel, "poly"))
    space.add(InCondition(coef0, kernel, ["sigmoid", "poly"]))
    return space


def sgd_space(
    losses: Sequence[str],
    epsilon: UniformFloatHyperparameter,
    eta0: UniformFloatHyperparameter,
    *,
    learning_rate: str,
    epsilon_of: str = "",
) -> ConfigurationSpace:
    """Return the hyperparameters of stochastic gradient descent.

    The first loss is the default. `epsilon` is the margin of the loss `epsilon_of`, or of all if
    empty.
    """
    loss = Categorical("loss", losses, default=losses[0])
    penalty = Categorical("penalty", ["l1", "l2", "elasticnet"], default="l2")
    rate = Categorical(
        "learning_rate", ["optimal", "constant", "invscaling"], default=learning_rate
    )
    l1_ratio = Float("elasticnet.l1_ratio", (0.0, 1.0), default=0.15)
    power_t = Float("invscaling.power_t", (1e-5, 1.0), default=0.25)
    space = ranges(
        loss,
        epsilon,
        penalty,
        l1_ratio,
        Float("alpha", (1e-6, 0.1), default=1e-4, log=True),
        Integer("max_iter", (5, 1000), default=20, log=True),
        rate,
        power_t,
        eta0,
        Categorical("average", [True, False], default=False),
    )
    if epsilon_of:
        space.add(EqualsCondition(epsilon, loss, epsilon_of))
    space.add(EqualsCondition(l1_ratio, penalty, "elasticnet"))
    space.add(EqualsCondition(power_t, rate, "invscaling"))
    return space
