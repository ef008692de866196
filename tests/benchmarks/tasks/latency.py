"""How repeatable the latency of a pipeline is: 20 measurements of the same model, on an idle core.

    tests/benchmarks/run tasks/latency

Three pipelines whose predictions take from under a microsecond a row to hundreds, measured in turn.
The spread is the distance between the largest and the smallest of the 20, over their median.
"""

from statistics import median

import numpy as np
import pandas as pd
from machine import Goals, describe
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prefect_tune.tasks.objective.quantities import latency_us

REPEATS = 20
MODELS = {
    "logistic regression": LogisticRegression(),
    "20 nearest": KNeighborsClassifier(20),
    "forest of 200": RandomForestClassifier(200, random_state=0),
}


def main() -> None:
    print(describe())
    goals = Goals()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 20))).rename(columns=str)
    y = X["0"] * X["1"] > 0
    pipelines = {
        name: make_pipeline(StandardScaler(), model).fit(X, y) for name, model in MODELS.items()
    }
    measured: dict[str, list[float]] = {name: [] for name in pipelines}
    for _ in range(REPEATS):
        for name, pipeline in pipelines.items():
            measured[name].append(latency_us(pipeline, X))
    for name, values in measured.items():
        spread = (max(values) - min(values)) / median(values)
        print(f"{name}: {median(values):.3g} us a row, {min(values):.3g} to {max(values):.3g}")
        goals.at_most(f"{name}: spread of {REPEATS} measurements", spread, 0.2)
    goals.end()


if __name__ == "__main__":
    main()
