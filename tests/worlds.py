"""Small exact spaces, and trials in them."""

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    Integer,
)

from prefect_tune.optimizers import (
    Algorithm,
    Evaluation,
    Failure,
    FailureKind,
    Flags,
    Query,
    Space,
    Step,
    Trial,
    order_step,
)


def mixed_space() -> Space:
    """Two steps, 2 x 3 paths, with conditions, a forbidden pair, logs and integers."""
    kernel = ConfigurationSpace(
        space=[
            Float("C", (1e-3, 1e3), log=True, default=1.0),
            Categorical("kernel", ["rbf", "poly"], default="rbf"),
            Integer("poly.degree", (2, 5), default=3),
        ]
    )
    kernel.add(EqualsCondition(kernel["poly.degree"], kernel["kernel"], "poly"))
    return Space(
        "mixed",
        (
            Step("scale", (Algorithm(id="none"), Algorithm(id="unit", estimator="x.Unit"))),
            Step(
                "model",
                (
                    Algorithm(id="svm", estimator="x.Svm", hyperparameters=kernel),
                    Algorithm(
                        id="tree",
                        estimator="x.Tree",
                        hyperparameters=ConfigurationSpace(
                            space=[Integer("depth", (1, 50), log=True, default=5)]
                        ),
                    ),
                    Algorithm(id="bayes", estimator="x.Bayes"),
                ),
            ),
        ),
        forbidden=frozenset({(("scale", "none"), ("model", "svm"))}),
    )


def ordered_space(n: int = 3) -> Space:
    """Up to four steps, each of them idle or one of two scalers, in any order, and two models."""
    names = "abcd"[:n]
    algorithms = (
        Algorithm(id="none"),
        Algorithm(id="scale", estimator="x.Scale"),
        Algorithm(
            id="power",
            estimator="x.Power",
            hyperparameters=ConfigurationSpace(space=[Float("p", (0.5, 2.0), default=1.0)]),
        ),
    )
    models = (Algorithm(id="tree", estimator="x.Tree"), Algorithm(id="bayes", estimator="x.Bayes"))
    steps = (order_step(*names), *(Step(name, algorithms) for name in names))
    return Space("ordered", (*steps, Step("model", models)))


def ignoring_space() -> Space:
    """A tree ignores all steps before it, Bayes one of them; only what is ignored may be left out.

    Of 3 x 3 x 2 x 3 = 54 paths 13 are canonical: 1 of the tree, 2 x 2 of Bayes, and of the support
    vector machine 2 x 3 where nothing and 2 where something is selected.
    """
    power = Algorithm(
        id="power",
        estimator="x.Power",
        hyperparameters=ConfigurationSpace(space=[Float("p", (0.5, 2.0), default=1.0)]),
    )
    left_out = Algorithm(id="none", only_ignored=True)
    return Space(
        "ignoring",
        (
            Step("impute", (left_out, Algorithm(id="mean", estimator="x.Mean"), power)),
            Step("scale", (Algorithm(id="none"), Algorithm(id="unit", estimator="x.Unit"), power)),
            Step(
                "select",
                (
                    Algorithm(id="none"),
                    Algorithm(id="some", estimator="x.Some", ignores=("scale",)),
                ),
            ),
            Step(
                "model",
                (
                    Algorithm(
                        id="tree",
                        estimator="x.Tree",
                        hyperparameters=ConfigurationSpace(
                            space=[Integer("depth", (1, 50), log=True, default=5)]
                        ),
                        ignores=("impute", "scale", "select"),
                    ),
                    Algorithm(id="bayes", estimator="x.Bayes", ignores=("scale",)),
                    Algorithm(
                        id="svm",
                        estimator="x.Svm",
                        hyperparameters=ConfigurationSpace(
                            space=[Float("C", (1e-3, 1e3), log=True, default=1.0)]
                        ),
                    ),
                ),
            ),
        ),
    )


def finite_space() -> Space:
    """Discrete only: 5 configurations in all, one pair of values forbidden."""
    grid = ConfigurationSpace(
        space=[Categorical("a", ["x", "y"], default="x"), Categorical("b", [1, 2], default=1)]
    )
    grid.add(
        ForbiddenAndConjunction(
            ForbiddenEqualsClause(grid["a"], "y"), ForbiddenEqualsClause(grid["b"], 2)
        )
    )
    return Space(
        "finite",
        (
            Step(
                "model",
                (
                    Algorithm(id="grid", estimator="x.Grid", hyperparameters=grid),
                    Algorithm(id="one", estimator="x.One"),
                    Algorithm(id="two", estimator="x.Two"),
                ),
            ),
        ),
    )


def sparse_space() -> Space:
    """A step that makes sparse data, one that may make it dense, a model that needs it dense."""
    dense_only = Flags(accepts_sparse=False)
    return Space(
        "sparse",
        (
            Step(
                "make",
                (Algorithm(id="count", estimator="x.C", flags=Flags(output="sparse")),),
                True,
            ),
            Step(
                "densify",
                (
                    Algorithm(id="keep"),
                    Algorithm(id="dense", estimator="x.D", flags=Flags(output="dense")),
                ),
            ),
            Step(
                "model",
                (
                    Algorithm(id="any", estimator="x.A"),
                    Algorithm(id="picky", estimator="x.P", flags=dense_only),
                ),
            ),
        ),
    )


def evaluation(loss: float, cost_seconds: float = 1.0) -> Evaluation:
    """An evaluation with that loss in each of three folds."""
    return Evaluation(loss, (loss, loss, loss), cost_seconds, cost_seconds)


def told(number: int, query: Query, loss: float | None) -> Trial:
    """A trial that has ended: failed without a loss."""
    started = Trial(number, query).started()
    if loss is None:
        return started.failed(Failure(FailureKind.ERROR, "no loss", cost_seconds=0.5))
    return started.ended(evaluation(loss))
