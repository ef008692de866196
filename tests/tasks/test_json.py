"""What studies store as JSON comes back equal."""

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

Case = tuple[Any, Callable[[Any], Any]]
STEPS = (StepCost("impute", 2, 30.0, 0.25, hit=True, key="a" * 64),)
BOUNDS = ("latency_us<=10", "false_positive_rate<=0",
          "disparate_impact(age, bins=20:30:40, metric=auroc)<=0.07")  # fmt: skip


def query_of(name: str) -> Query:
    configuration = sample_configuration(SPACES[name], np.random.default_rng(0))
    return Query(configuration, folds=1, subset=0.1 + 0.2, subset_draw=1, epochs=3)


def problem_of(name: str) -> Problem:
    space = SPACES[name]
    ids = algorithm_ids(space)
    return Problem("d", "s", name, space.digest, "auroc", 3, positive=0, algorithms=ids)


def cases() -> dict[str, Case]:
    """What is stored, and how it is read."""
    evaluation = Evaluation(
        0.1 + 0.2, (0.1, 0.5), 1.5, 2.5, STEPS, {"latency_us": 1.5}, (0.5, 0.25),
        ((0.5,), (0.25,)), 2, 1, ("key",), "no epoch 3", (0.25, 0.5),
    )  # fmt: skip
    failure = Failure("error", "ValueError: é", "line 1", "fit model", 1, 2.5, STEPS, "printed")
    source = Source("t.csv", "target", group="a", drop=("b", "c"), aside=("b",), predicts="classes")
    summary = MatrixSummary(300, 5000, "sparse", "float64", 0.01, 0.25)
    found: dict[str, Case] = {
        "evaluation": (evaluation, partial(from_document, Evaluation)),
        "failure": (failure, partial(from_document, Failure)),
        "source": (source, partial(from_document, Source)),
        "matrix": (summary, lambda document: MatrixSummary(**document)),
        "holder": (ProcessIdentity.this_process(), ProcessIdentity.from_text),
    }
    found |= {
        text: (parse_constraint(text), partial(from_document, QuantityBound)) for text in BOUNDS
    }
    for name, space in SPACES.items():
        found[f"problem of {name}"] = problem_of(name), Problem.from_json
        found[f"query of {name}"] = query_of(name), partial(Query.from_json, space=space)
    return found


CASES = cases()
OF_KEYS = {"Recipe"}
"""What is hashed, and never read."""
READERS = {"RowReader"}
"""Looked at in `data/test_row_reader.py`, with the rows that they read."""


def test_each_class_that_is_kept_as_json_is_looked_at() -> None:
    looked_at = {type(value).__name__ for value, _ in CASES.values()}
    assert classes_with("to_json", "tasks") <= looked_at | OF_KEYS | READERS


def written(value: Any) -> Any:
    if isinstance(value, ProcessIdentity):
        return value.to_text()
    return value.to_json() if hasattr(value, "to_json") else to_document(value)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_comes_back_equal(name) -> None:
    value, read = CASES[name]
    document = written(value)
    assert read(json.loads(json.dumps(document, allow_nan=False))) == value


@pytest.mark.parametrize("name", ["source", "latency_us<=10", "problem of small"])
def test_a_value_of_another_type_is_refused(name) -> None:
    value, read = CASES[name]
    document = json.loads(json.dumps(written(value)))
    for key in document:
        with pytest.raises((AttributeError, ValueError)):
            read({**document, key: [{}]})
