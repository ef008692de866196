"""A trial as a program comes to the losses of the trial."""

from pathlib import Path

import numpy as np
import pandas as pd
from inputs import table
from programs import fold_losses
from searched import Searched

from prefect_tune.flows.results.again import again
from prefect_tune.flows.study.lookup import list_trials


def numbers(n: int = 150) -> pd.DataFrame:
    """The test table with numbers to predict."""
    frame = table(n)
    noise = np.random.default_rng(1).normal(size=n)
    return frame.assign(target=frame["a"] * 30 + noise)


def grouped() -> pd.DataFrame:
    """The test table with a column of groups, gaps in whole numbers, and one that only names."""
    frame = table()
    frame["patient"] = np.arange(len(frame)) // 3
    frame["ward"] = np.where(np.arange(len(frame)) % 7 == 0, np.nan, frame["count"] % 4)
    return frame


def check(study: Searched, folder: Path, data: Path | None = None) -> list[str]:
    """Check that each trial comes to its losses again; the programs."""
    texts = []
    for trial in list_trials(study.store, study.name):
        text = again(study.store, study.name, trial["number"])
        texts.append(text)
        if trial["failure"] is None:
            losses = fold_losses(text, folder, data)
            assert losses == trial["evaluation"]["fold_losses"], trial["query"]
    return texts
