"""The small data sets that come with scikit-learn, as tables."""

import pandas as pd
from sklearn import datasets

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["BUNDLED", "TARGET", "bundled_table"]

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
"""What `sklearn:NAME` knows."""
TARGET = "target"
"""Their column to predict."""


def bundled_table(name: str) -> pd.DataFrame:
    """Return the features and the column `target`.

    Raises:
        BadInput: If it has several targets.
        UnknownName: If scikit-learn brings no such set.
    """
    if name == "linnerud":
        raise BadInput("sklearn:linnerud has three targets; a study predicts one")
    if name not in BUNDLED:
        raise UnknownName("data set of scikit-learn", name, BUNDLED)
    frame: pd.DataFrame = getattr(datasets, f"load_{name}")(as_frame=True).frame
    return frame
