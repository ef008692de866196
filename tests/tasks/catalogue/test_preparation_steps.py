"""The steps in front of all others, whose input is a table or events rather than a matrix."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from prefect_tune.optimizers import Algorithm, Choice
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.tasks.catalogue import admm
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.fitting import FoldData, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import build, recipe

GAPS = pd.DataFrame({"a": [1.0, np.nan, 5.0, 5.0], "b": ["x", None, "y", "x"], "c": [np.nan] * 4})
WHOLE = pd.DataFrame({"a": [1.0, 2.0, 5.0, 5.0], "b": ["x", "z", "y", "x"]})
CLASSES = np.array(["n", "y"])


def two_patients() -> EventRows:
    day = pd.Timestamp(2020, 1, 1)
    events = pd.DataFrame(
        [(1, day, "A", 10.0), (1, day, "B", 4.0), (2, day, "A", np.nan)],
        columns=["subject_id", "time", "code", "value"],
    )
    return EventRows.build(events, pd.DataFrame({"subject_id": [1, 2], "prediction_time": day}))


def transformed(algorithm: Algorithm, choice: Choice, X):
    how = recipe(algorithm, choice, MatrixSummary(len(X), 2, "frame"), balanced=False)
    estimator = clone(build(how, 0))
    assert estimator.get_params().keys() == build(how, 0).get_params().keys()
    y = np.resize(CLASSES, len(X))
    return fit_transformer(how, 0, FoldData(X, X, y, CLASSES))


def test_these_are_all_the_steps_of_papers_that_take_no_matrix() -> None:
    published = [space for name, space in SPACES.items() if not name.startswith("modern")]
    first = {s for space in published for s in space.steps if s.name in {"impute", "encode"}}
    assert first == {IMPUTE, admm.IMPUTE, ENCODE}
    assert {space.steps[0] for space in published} == {IMPUTE, admm.IMPUTE, CONSTRUCT_FEATURES}


@pytest.mark.parametrize(
    ("algorithm", "values", "filled"),
    [
        (IMPUTE.algorithms[0], {}, 5.0),
        (admm.IMPUTE.algorithms[0], {"strategy": "mean"}, 11 / 3),
        (admm.IMPUTE.algorithms[0], {"strategy": "median"}, 5.0),
        (admm.IMPUTE.algorithms[0], {"strategy": "most_frequent"}, 5.0),
    ],
)
def test_an_imputer_leaves_no_gap(algorithm, values, filled) -> None:
    made = transformed(algorithm, Choice(algorithm.id, tuple(values.items())), GAPS)
    train = made.parts["train"]
    assert not train.isna().to_numpy().any()
    assert train["a"].tolist() == [1.0, pytest.approx(filled), 5.0, 5.0]
    assert train["b"].tolist() == ["x", "(missing)", "y", "x"]
    assert made.summary["layout"] == "frame"


def test_an_encoder_makes_a_dense_matrix_with_a_column_per_category() -> None:
    algorithm = ENCODE.algorithms[0]
    made = transformed(algorithm, default_choice(algorithm), WHOLE)
    assert made.summary["layout"] == algorithm.flags.output == "dense"
    assert made.parts["train"].tolist() == [[1, 1, 0, 0], [2, 0, 0, 1], [5, 0, 1, 0], [5, 1, 0, 0]]


@pytest.mark.parametrize("frequency", [2, 5])
@pytest.mark.parametrize("aggregation", ["binary", "count", "sum", "average"])
def test_events_become_a_sparse_matrix_or_no_code_is_frequent_enough(
    frequency, aggregation
) -> None:
    algorithm = CONSTRUCT_FEATURES.algorithms[0]
    choice = Choice(algorithm.id, (("aggregation", aggregation), ("min_frequency", frequency)))
    if frequency == 5:  # the example has two patients
        with pytest.raises(ValueError, match="no code occurs in 5 patients"):
            transformed(algorithm, choice, two_patients())
        return
    made, again = (transformed(algorithm, choice, two_patients()) for _ in range(2))
    assert made.summary["layout"] == algorithm.flags.output == "sparse"
    train = made.parts["train"]
    assert sparse.issparse(train)
    assert train.shape == (2, 1)
    assert train.toarray().tolist() == again.parts["train"].toarray().tolist()
