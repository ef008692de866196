"""The cost of going on from a checkpoint: 50 of 100 epochs continued, against 100 from scratch.

    tests/benchmarks/run tasks/checkpoints

Five models on scikit-learn's digits (1,797 rows of 64 numbers, 10 classes; a fifth is the test
part, three folds), each as a whole trial with its store: CPU seconds of the process, one thread.
In turn, three times each: 100 epochs in a new store; 50 in another one, which are not counted, and
from there to 100. Besides, per model, all that ten stretches of one epoch take but the training.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

from machine import Goals, describe
from studies import configured, evaluate, problem_of

from prefect_tune.optimizers import Evaluation, Query
from prefect_tune.storage import StoreAddress
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.fitting.training import EpochTraining
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.user_space import load_user_space

EPOCHS = 100
REPEATS = 3
STRETCHES = 10
SPACE = """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import RESCALE
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


def seeded(id, estimator, **fixed):
    return Algorithm(id=id, estimator=estimator, fixed=fixed, flags=Flags(stochastic=True))


MODELS = (
    seeded("MLP", "sklearn.neural_network.MLPClassifier", hidden_layer_sizes=[100]),
    seeded("SGD", "sklearn.linear_model.SGDClassifier"),
    seeded("GradientBoosting", "sklearn.ensemble.GradientBoostingClassifier", max_depth=2),
    seeded("HistGradientBoosting", "sklearn.ensemble.HistGradientBoostingClassifier"),
    seeded("RandomForest", "sklearn.ensemble.RandomForestClassifier", n_estimators=500, n_jobs=1),
)
standardized = Step("rescale", tuple(a for a in RESCALE.algorithms if a.id == "standardize"))
space = Space("models", (IMPUTE, ENCODE, standardized, Step("fit model", MODELS)))
"""
MODELS = ("MLP", "SGD", "GradientBoosting", "HistGradientBoosting", "RandomForest")


@contextmanager
def study() -> Iterator[StudyContext]:
    """A study in a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        address = StoreAddress(str(Path(folder) / "store"))
        space = load_user_space(SPACE, "models.py:space")
        own = {"space": "models.py:space", "space_code": SPACE}
        problem = problem_of(Source("sklearn:digits"), open_store(address), space, **own)
        yield StudyContext("benchmark", problem, address, epochs=EPOCHS)


def asked(context: StudyContext, model: str, epochs: int | None = None) -> Query:
    query = configured(context, rescale="standardize", fit_model=model)
    return replace(query, epochs=epochs)


def timed(context: StudyContext, query: Query) -> tuple[float, Evaluation]:
    started = process_time()
    evaluation = evaluate(context, query)
    return process_time() - started, evaluation


@contextmanager
def training_timed() -> Iterator[list[float]]:
    """The CPU seconds of each call that trains and judges a model."""
    seconds: list[float] = []
    advance = EpochTraining.advance

    def advance_timed(training: EpochTraining, to: int) -> None:
        started = process_time()
        advance(training, to)
        seconds.append(process_time() - started)

    EpochTraining.advance = advance_timed  # type: ignore[method-assign]
    yield seconds
    EpochTraining.advance = advance  # type: ignore[method-assign]


def main() -> None:
    print(describe())
    goals = Goals()
    for model in MODELS:
        whole, continued = [], []
        for _ in range(REPEATS):
            with study() as context:
                seconds, from_scratch = timed(context, asked(context, model))
                whole.append(seconds)
            with study() as context:
                timed(context, asked(context, model, EPOCHS // 2))
                seconds, ended = timed(context, asked(context, model))
                continued.append(seconds)
            assert ended.curve == from_scratch.curve
            assert ended.resumed_from == EPOCHS // 2
        values = ", ".join(f"{c:.2f}/{w:.2f}" for c, w in zip(continued, whole, strict=True))
        ratio = median(c / w for c, w in zip(continued, whole, strict=True))
        goals.at_most(f"{model}: 51-100 over 1-100, CPU s {values}", ratio, 0.6)
        with study() as context:
            timed(context, asked(context, model, 1))
            besides = []
            with training_timed() as trained:
                for epochs in range(2, 2 + STRETCHES):
                    trained.clear()
                    seconds, _ = timed(context, asked(context, model, epochs))
                    besides.append(seconds - sum(trained))
            goals.at_most(f"{model}: CPU s besides training", median(besides), 0.1)
    goals.end()


if __name__ == "__main__":
    main()
