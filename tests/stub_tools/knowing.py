"""A tool that finds the nearest training row; at the end it has a single best too."""

from collections.abc import Iterator

import numpy as np
from peer_tools.task import Answer, Task


def answers(task: Task) -> Iterator[Answer]:
    """Copies of the target of the nearest row, and for its single best those of the first row."""
    X, y, X_test = task.features()
    numbers = X.select_dtypes("number")
    apart = X_test[numbers.columns].to_numpy()[:, None] - numbers.to_numpy()[None]
    nearest = np.square(apart).sum(axis=2).argmin(axis=1)
    for stage in task.stages:
        yield Answer(stage, y.to_numpy()[nearest].tolist(), 0.1 * stage, 3.0, 9)
    yield Answer(task.seconds, [y.iloc[0]] * len(X_test), 0.1, 4.0, 9, model="single")
