"""The cost of stops in the training of boosted trees, relative to a fit at once.

    tests/benchmarks/run tasks/stops

10,000 rows with 20 columns and two classes, 100 trees. At each stop, the checkpoint is pickled.
Training continues in the same process, or from the checkpoint as in another process. Every figure
is the median of interleaved repetitions, in processor seconds of one thread.
"""

import pickle
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time

import numpy as np
from machine import Goals, describe
from sklearn.datasets import make_classification

from prefect_tune.tasks.fitting.epochs import EpochTraining, training_of
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import Recipe
from prefect_tune.tasks.threads import one_thread

BOOSTING = "prefect_tune.tasks.catalogue.boosting"
RECIPES = {
    "LightGBM": ("light_gbm", {"n_estimators": 100, "colsample_bytree": 0.7}),
    "XGBoost": ("xg_boost", {"n_estimators": 100, "colsample_bytree": 0.7}),
    "CatBoost": ("cat_boost", {"iterations": 100, "learning_rate": 0.1}),
}
MOST = {5: 1.3, 25: 2.0}
"""Most times the cost of a fit at once, by number of stops."""
EPOCHS, ROUNDS = 50, 7


def seconds_of(call: Callable[[], object]) -> float:
    began = process_time()
    call()
    return process_time() - began


def trained(how: Recipe, data: FoldData, n_stops: int, *, is_live: bool) -> None:
    """Train with stops; each checkpoint is pickled, and training resumes from it unless it is live.

    A live training continues in the process that made the checkpoint.
    """
    start = training = None
    for stop in range(1, n_stops + 1):
        if training is None or not is_live:
            way = training_of(how)
            training = EpochTraining(how, way, 0, data, epochs=EPOCHS, loss=None, start=start)
        training.advance(EPOCHS * stop // n_stops)
        kept = pickle.dumps(training.checkpoint())
        start = None if is_live else pickle.loads(kept)


def main() -> None:
    print(describe())
    X, y = make_classification(12_500, 20, n_informative=8, random_state=0)
    data = FoldData(X[:10_000], X[10_000:], y[:10_000], np.array([0, 1]))
    goals = Goals()
    for name, (module, arguments) in RECIPES.items():
        how = Recipe(
            "model", f"{BOOSTING}.{module}.classifier", arguments, "none", "", stochastic=True
        )
        ways = {0: partial(fit_model, how, 0, data)}
        ways |= {n: partial(trained, how, data, n, is_live=True) for n in MOST}
        ways |= {-n: partial(trained, how, data, n, is_live=False) for n in MOST}
        seconds: dict[int, list[float]] = {n: [] for n in ways}
        with one_thread():
            for _ in range(ROUNDS):
                for n, call in ways.items():
                    seconds[n].append(seconds_of(call))
        once = median(seconds[0])
        for n, most in MOST.items():
            goals.at_most(f"{name}, {n} stops", median(seconds[n]) / once, most)
            print(f"    each in another process: {median(seconds[-n]) / once:.3g}")
    goals.end()


if __name__ == "__main__":
    main()
