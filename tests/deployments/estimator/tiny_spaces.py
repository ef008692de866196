"""Spaces of one or two quick pipelines, for many short studies."""

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


def model(name: str, *, stochastic: bool = True) -> Algorithm:
    flags = Flags(stochastic=stochastic)
    return Algorithm(id=name.split(".")[1].lower(), estimator=f"sklearn.{name}", flags=flags)


LOGISTIC = model("linear_model.LogisticRegression")
COMPLEMENT = model("naive_bayes.ComplementNB", stochastic=False)
classification = Space("classification", (IMPUTE, ENCODE, Step("fit model", (LOGISTIC,))))
NEIGHBORS = model("neighbors.KNeighborsClassifier", stochastic=False)
neighbors = Space("neighbors", (IMPUTE, ENCODE, Step("fit model", (NEIGHBORS,))))
half_fail = Space("half_fail", (IMPUTE, ENCODE, Step("fit model", (LOGISTIC, COMPLEMENT))))
regression = Space(
    "regression",
    (IMPUTE, ENCODE, Step("fit model", (model("linear_model.Ridge"),))),
    target="regression",
)
