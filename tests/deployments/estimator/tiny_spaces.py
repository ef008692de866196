"""Spaces of one quick pipeline each, for many short studies."""

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE


def model(name: str) -> Step:
    estimator = f"sklearn.linear_model.{name}"
    flags = Flags(stochastic=True)
    return Step("fit model", (Algorithm(id=name.lower(), estimator=estimator, flags=flags),))


classes = Space("classes", (IMPUTE, ENCODE, model("LogisticRegression")))
numbers = Space("numbers", (IMPUTE, ENCODE, model("Ridge")), target="numbers")
