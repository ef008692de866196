"""The printed code builds the same pipeline: of every algorithm of the catalogue, and of users'."""

from typing import Any

import numpy as np
import pytest
from finished import programs
from finished.programs import built_from, parameters
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import BaggingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import build, recipe
from prefect_tune.tasks.trial_code import TrialPipeline, code_of

ALGORITHMS = {
    f"{step.name}: {algorithm.id} {algorithm.import_path}": algorithm
    for space in SPACES.values()
    for step in space.steps
    for algorithm in step.algorithms
    if not algorithm.is_passthrough
}


def code(estimator: Any) -> str:
    return code_of(TrialPipeline(Pipeline([("fit model", estimator)]), "", ()), ["One step."])


@pytest.mark.parametrize("layout", ["dense", "sparse", "frame"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_code_of_every_algorithm_builds_it_as_it_was_built(algorithm, layout) -> None:
    summary = MatrixSummary(100, 8, layout, n_classes=3)
    rng = np.random.default_rng(0)
    for choice in [default_choice(algorithm), *(sample_choice(algorithm, rng) for _ in range(4))]:
        estimator = build(recipe(algorithm, choice, summary, balanced=True), seed=3)
        text = code(estimator)
        assert parameters(built_from(text)[0]) == parameters(estimator), text


VALUES: list[BaseEstimator] = [
    SVC(C=np.float64(0.1), gamma=np.inf, class_weight={"no": 1.5, "yes": 2}),
    BaggingClassifier(Pipeline([("it's", FunctionTransformer(np.log1p)), ("svc", SVC())])),
    make_pipeline(SimpleImputer(missing_values=np.nan).set_output(transform="pandas"), SVC()),
    make_column_transformer(("drop", make_column_selector("a.*", dtype_include="number"))),
    GridSearchCV(SVC(), {"C": (1,)}, cv=KFold(3, shuffle=True, random_state=0)),
]


@pytest.mark.parametrize("estimator", VALUES)
def test_values_and_helpers_of_scikit_learn_are_written(estimator) -> None:
    text = code(estimator)
    found, expected = parameters(built_from(text)[0]), parameters(estimator)
    found.pop("cv", None), expected.pop("cv", None)
    assert found == expected, text


def test_lines_fit_and_two_classes_of_one_name_are_told_apart() -> None:
    mine = type("SVC", (SVC,), {"__module__": "finished.programs"})
    programs.SVC = mine  # type: ignore[attr-defined]
    many = Pipeline(
        [(f"step number {i}", kind(C=float(i))) for i, kind in enumerate([SVC, mine] * 4)]
    )
    text = code(many)
    built = built_from(text)[0]
    assert [type(step) for _, step in built.steps] == [SVC, mine] * 4
    assert max(map(len, text.splitlines())) <= 96


def test_a_value_without_code_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="object object"):
        code(SVC(C=object()))
    with pytest.raises(BadInput, match="lambda"):
        code(FunctionTransformer(lambda X: X))
