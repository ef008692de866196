"""prefect-tune from the command line, with all defaults of `run` except metric and seed.

Options are options of `run`, written as `space=modern_healthcare`. Start-up, import of the data and
the final model are within the budget, as in the product. The default space begins with a portfolio
made without the set under test. If all times are days, the product excludes the day of the
prediction, which the other tools see.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from peer_tools.event_sets import ID, TIME, EventSplit
from peer_tools.portfolios import without
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, space_named, usable_part

STUDY = "run"


def predictions(
    split: EventSplit, folder: Path, seconds: float, options: Mapping[str, str]
) -> NDArray[np.float64]:
    """Run a study, and predict with its final model."""
    given = {"metric": "auroc", "seed": str(split.seed), **options}
    if not {"space", "start", "method"} & given.keys():
        space = usable_part(space_named(DEFAULT_SPACES["events", "classification"]))
        path = folder / "start.json"
        given["start"] = str(without(split.source.name, "events", space, path))
    words = [text for name, value in given.items() for text in (f"--{name}", value)]
    words += ["--budget", f"{seconds:g}s", "--study", STUDY, "--test", str(split.test)]
    out = folder / "predictions.parquet"
    _command(folder, "run", split.source.data, "--labels", split.train, *words)
    _command(folder, "predict", STUDY, split.source.data, "--labels", split.test, "--out", out)
    predicted = pd.read_parquet(out)
    (column,) = [c for c in predicted if str(c).lower() in {"probability_true", "probability_1"}]
    found = split.labels("test")[[ID, TIME]].merge(predicted, on=[ID, TIME], how="left")
    return found[column].to_numpy(np.float64)


def _command(folder: Path, *arguments: str | Path) -> None:
    """Run a command with a separate home, on all cores."""
    dropped = ("PREFECT_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    kept |= {"PREFECT_TUNE_HOME": str(folder / "home")}
    command = [Path(sys.executable).with_name("prefect-tune"), *arguments]
    with (folder / "log").open("a") as log:
        subprocess.run(command, env=kept, stdout=log, stderr=log, check=True, cwd=folder)
