"""AutoGluon's best quality on one core, in an environment of its own: its dependencies conflict.

`prepare` makes the environment, in FOLDER/autogluon, with uv; adapter and tool talk by files.
Options: `presets`, by default `best_quality`. Its limit is what its imports have left of the
seconds. It says what it has at the end only: there are no incumbents of earlier times, and what it
hands over is an ensemble of bagged models, so that no refit follows.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from peer_tools.task import Answer, Task

ANYTIME = False  # it has an answer at the end alone
PACKAGE = "autogluon.tabular[lightgbm,xgboost,catboost]>=1.4"


def prepare(home: Path, uv: str) -> None:
    """Make the environment, if it is not there.

    Raises:
        CalledProcessError: If it cannot be installed.
    """
    environment = home / "autogluon"
    if not (environment / "ready").exists():
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        subprocess.run([uv, "venv", "-q", "--clear", "--python", python, environment], check=True)
        install = [uv, "pip", "install", "-q", "--python", environment / "bin" / "python"]
        subprocess.run([*install, PACKAGE, "pyarrow"], check=True)
        (environment / "ready").touch()


def answers(task: Task) -> Iterator[Answer]:
    """Fit in the other environment, and read what it predicted."""
    python = Path(task.folder).parents[1] / "autogluon" / "bin" / "python"
    asked, came = Path(task.folder, "task.json"), Path(task.folder, "autogluon.json")
    task.write(asked)
    subprocess.run([python, "-m", "peer_tools.adapters.autogluon", asked, came], check=True)
    found = json.loads(came.read_text())
    yield Answer(
        task.seconds,
        found["predictions"],
        found["seconds"],
        found["loss"],
        found["models"],
        version=found["version"],
    )


def fit(task: Task) -> dict[str, object]:
    """Fit in this environment."""
    from autogluon.tabular import TabularPredictor

    train, test = task.frames()
    predictor = TabularPredictor(
        label=task.target,
        problem_type=None if task.kind == "classes" else "regression",
        eval_metric="accuracy" if task.kind == "classes" else "r2",
        path=str(Path(task.folder, "autogluon-models")),
        verbosity=1,
    )
    predictor.fit(
        train,
        time_limit=task.left(),
        presets=task.options.get("presets", "best_quality"),
        num_cpus=1,
        num_gpus=0,
    )
    board = predictor.leaderboard()
    print(board[["model", "score_val", "fit_time_marginal"]].to_string())
    seconds, validated = task.elapsed(), float(board["score_val"].iloc[0])
    return {
        "predictions": predictor.predict(test.drop(columns=task.target)).tolist(),
        "seconds": seconds,
        "loss": 100 * (1 - validated) if task.kind == "classes" else 1 - validated,
        "models": len(board),
        "version": version("autogluon.tabular"),
    }


if __name__ == "__main__":
    task_file, out_file = map(Path, sys.argv[1:])
    out_file.write_text(json.dumps(fit(Task.read(task_file))))
