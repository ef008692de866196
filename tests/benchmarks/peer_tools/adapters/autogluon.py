"""AutoGluon with its best quality on one core, in a separate environment to avoid conflicts.

`prepare` makes the environment in FOLDER/autogluon with uv; adapter and tool exchange files.
Options: the `presets` of AutoGluon, by default `best_quality`. The time limit is the seconds left
after imports. AutoGluon answers only at the end, with an ensemble of bagged models, so no refit
follows.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from peer_tools.task import Answer, Task

ANYTIME = False
PACKAGE = "autogluon.tabular[lightgbm,xgboost,catboost]>=1.4"


def prepare(home: Path) -> None:
    """Make the environment if missing."""
    uv = shutil.which("uv") or str(Path(__file__).parents[4] / ".uv" / "bin" / "uv")
    folder = home / "autogluon"
    if not (folder / "ready").exists():
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        subprocess.run([uv, "venv", "-q", "--clear", "--python", python, folder], check=True)
        install = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
        subprocess.run([*install, PACKAGE, "pyarrow"], check=True)
        (folder / "ready").touch()


def answers(task: Task) -> Iterator[Answer]:
    """Fit in the other environment, and read the predictions."""
    python = Path(task.folder).parents[1] / "autogluon" / "bin" / "python"
    came = Path(task.folder, "autogluon.json")
    asked = (Path(task.folder, "task.json"), came)
    subprocess.run([python, "-m", "peer_tools.adapters.autogluon", *asked], check=True)
    yield Answer(task.seconds, **json.loads(came.read_text()))


def fit(task: Task) -> dict[str, object]:
    """Fit in the environment of AutoGluon."""
    from autogluon.tabular import TabularPredictor

    train, test = task.frames()
    is_of_classes = task.kind == "classes"
    predictor = TabularPredictor(
        label=task.target,
        problem_type=None if is_of_classes else "regression",
        eval_metric="accuracy" if is_of_classes else "r2",
        path=str(Path(task.folder, "autogluon-models")),
        verbosity=1,
    )
    presets = task.options.get("presets", "best_quality")
    predictor.fit(train, time_limit=task.left(), presets=presets, num_cpus=1, num_gpus=0)
    board = predictor.leaderboard()
    found, validated = task.elapsed(), float(board["score_val"].iloc[0])
    return {
        "predictions": predictor.predict(test.drop(columns=task.target)).tolist(),
        "found": found,
        "loss": (100 if is_of_classes else 1) * (1 - validated),
        "configurations": len(board),
        "version": version("autogluon.tabular"),
    }


if __name__ == "__main__":
    task_file, out_file = map(Path, sys.argv[1:])
    out_file.write_text(json.dumps(fit(Task.read(task_file))))
