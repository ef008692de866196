"""prefect-tune by its commands: `run` with the default of everything but metric and seed.

Options are those of `run` by their names, as `space=modern_healthcare`. Start-up, import of the
data and the final model are within the budget, as the product keeps it. The default space begins
with a portfolio made without the set that it is measured on. Where all times are days, the product
leaves out the day of the prediction, which the other tools see. With `day=included` labels move to
the next day, as `data.md` tells users who want that day.
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
    is_moved = given.pop("day", "") == "included" and split.source.are_days
    shift = pd.Timedelta(days=int(is_moved))
    train, test = (_labels(split, part, shift, folder) for part in ("train", "test"))
    if not {"space", "start", "method"} & given.keys():
        space = usable_part(space_named(DEFAULT_SPACES["events", "classes"]))
        path = folder / "start.json"
        given["start"] = str(without(split.source.name, "events", space, path))
    written = [text for name, value in given.items() for text in (f"--{name}", value)]
    _command(folder, "run", split.source.data, "--labels", train, "--test", test,
             "--budget", f"{seconds:g}s", "--study", STUDY, *written)  # fmt: skip
    out = folder / "predictions.parquet"
    _command(folder, "predict", STUDY, split.source.data, "--labels", test, "--out", out)
    predicted = pd.read_parquet(out)
    predicted[TIME] -= shift
    (column,) = [c for c in predicted if str(c).lower() in {"probability_true", "probability_1"}]
    found = split.labels("test")[[ID, TIME]].merge(predicted, on=[ID, TIME], how="left")
    return found[column].to_numpy(np.float64)


def _labels(split: EventSplit, part: str, shift: pd.Timedelta, folder: Path) -> Path:
    """Labels of a part as a file, with their times moved."""
    labels, path = split.labels(part), folder / f"{part}.parquet"
    labels.assign(**{TIME: labels[TIME] + shift}).to_parquet(path, index=False)
    return path


def _command(folder: Path, *arguments: str | Path) -> None:
    """Run a command with a home of its own, of one core or more as it finds them."""
    dropped = ("PREFECT_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    home = {"PREFECT_TUNE_HOME": str(folder / "home"), "PREFECT_HOME": str(folder / "prefect")}
    command = [Path(sys.executable).with_name("prefect-tune"), *arguments]
    with (folder / "log").open("a") as log:
        subprocess.run(
            command, env={**kept, **home}, stdout=log, stderr=log, check=True, cwd=folder
        )
