"""scikit-learn's own checks: each fit is a whole study, all on one shared server and worker."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from prefect_tune import PipelineSearch
from prefect_tune.flows.workers.clusters import workers_started_early

SPACES = Path(__file__).with_name("tiny_spaces.py")


def search(predicts: str) -> PipelineSearch:
    """One trial of the only pipeline of a space."""
    return PipelineSearch(
        predicts=predicts,
        space=f"{SPACES}:{predicts}",
        method="random",
        trials=1,
        folds=2,
        workers=1,
        task_runs="trial",
        random_state=0,
        verbose=0,
    )


def checks() -> Iterator[object]:
    for predicts in ("classes", "numbers"):
        for estimator, check in estimator_checks_generator(search(predicts)):
            options = check.keywords if isinstance(check, partial) else {}
            name = getattr(check, "func", check).__name__
            if name == "check_array_api_input":  # skips itself without SCIPY_ARRAY_API
                continue
            values = [f"{k}={v}" for k, v in options.items()]
            yield pytest.param(estimator, check, id=" ".join([predicts, name, *values]))


@pytest.fixture(scope="module")
def worker(server: str) -> Iterator[None]:  # noqa: ARG001 - the flows report there
    with workers_started_early(1, None):
        yield


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learns_check_passes(estimator: PipelineSearch, check: Callable[..., None]) -> None:
    check(estimator)
