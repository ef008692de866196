"""Stored JSON of studies is read back equal."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from source_tree import classes_with

from prefect_tune.optimizers import Evaluation, Failure, Query
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.fitting.recipe import MatrixSummary
from prefect_tune.tasks.objective.constraints import parse_constraint
from prefect_tune.tasks.objective.metric import QuantityBound
from prefect_tune.tasks.problem import Problem, algorithm_ids

STEPS = (StepCost("impute", 2, 30.0, 0.25, hit=True, key="a" * 64),)
EVALUATION = Evaluation(
    0.1 + 0.2, (0.1, 0.5), 1.5, 2.5, STEPS, {"latency_us": 1.5}, (0.5, 0.25),
    ((0.5,), (0.25,)), 2, 1, ("key",), "no epoch 3", (0.25, 0.5),
)  # fmt: skip
FAILURE = Failure("error", "ValueError: é", "line 1", "fit model", 1, 2.5, STEPS, "printed")
SOURCE = Source(
    "t.csv", "target", group="a", drop=("b", "c"), aside=("b",), predicts="classification"
)


def cases() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return stored values, and the function that reads each value."""
    small, text = SPACES["small"], "group_gap(age, bins=20:30:40, metric=auroc)<=0.07"
    problem = Problem(
        "d", "s", "small", small.digest, "auroc", 3, positive=0, algorithms=algorithm_ids(small)
    )
    found = {
        "evaluation": (EVALUATION, partial(from_document, Evaluation)),
        "failure": (FAILURE, partial(from_document, Failure)),
        "source": (SOURCE, partial(from_document, Source)),
        "matrix": (
            MatrixSummary(300, 5000, "sparse", "float64", 0.01, 0.25),
            lambda document: MatrixSummary(**document),
        ),
        "process": (ProcessIdentity.this_process(), ProcessIdentity.from_text),
        "bound": (parse_constraint(text), partial(from_document, QuantityBound)),
        "problem": (problem, Problem.from_json),
    }
    for name, space in SPACES.items():
        drawn = sample_configuration(space, np.random.default_rng(0))
        query = Query(drawn, folds=1, subset=0.1 + 0.2, subset_draw=1, epochs=3)
        found[f"query of {name}"] = query, partial(Query.from_json, space=space)
    return found


CASES = cases()
LOOKED_AT_ELSEWHERE = {"Recipe", "RowReader"}
"""What is hashed and never read, and what `data/test_row_reader.py` reads rows by."""


def test_each_class_stored_as_json_is_tested() -> None:
    looked_at = {type(value).__name__ for value, _ in CASES.values()}
    assert classes_with("to_json", "tasks") <= looked_at | LOOKED_AT_ELSEWHERE


def written(value: Any) -> Any:
    if isinstance(value, ProcessIdentity):
        return value.to_text()
    return value.to_json() if hasattr(value, "to_json") else to_document(value)


@pytest.mark.parametrize("name", CASES)
def test_stored_value_round_trips_through_json(name) -> None:
    value, read = CASES[name]
    assert read(json.loads(json.dumps(written(value), allow_nan=False))) == value


@pytest.mark.parametrize("name", ["source", "bound", "problem"])
def test_wrongly_typed_value_is_refused(name) -> None:
    value, read = CASES[name]
    document = json.loads(json.dumps(written(value)))
    for key in document:
        with pytest.raises((AttributeError, ValueError)):
            read({**document, key: [{}]})
