"""FLAML's AutoML on its own space, with its own choice of folds or a part that is held out.

Its budget is what its imports have left of the seconds. The answer at the end is its own: the best
configuration, fitted on all training rows after the budget (`retrain_full=True`). Those of earlier
times are what its log has as the best until then, fitted on all rows likewise
(`retrain_from_log`). Its loss is one of cross-validation only where it chose folds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_tools.task import Answer, Task

DISTRIBUTION = "flaml"


def answers(task: Task) -> Iterator[Answer]:
    """Fit, then ask the log for what was the best at each stage."""
    from flaml import AutoML

    X, y, X_test = task.features()
    log, automl = Path(task.folder, "flaml.log"), AutoML()
    common: dict[str, Any] = {
        "task": "classification" if task.kind == "classes" else "regression",
        "n_jobs": 1,
    }
    begun = task.elapsed()
    automl.fit(
        X,
        y,
        metric="accuracy" if task.kind == "classes" else "r2",
        time_budget=task.seconds - begun,
        seed=task.seed,
        retrain_full=True,
        log_file_name=str(log),
        log_type="all",
        verbose=0,
        **common,
    )
    has_folds = automl._state.eval_method == "cv"
    percent = 100.0 if task.kind == "classes" else 1.0
    for stage in task.stages:
        seen = records(log, stage - begun)
        if not seen:
            continue
        best = min(seen, key=lambda record: record.validation_loss)
        model = automl
        if stage < task.seconds:
            model = AutoML()
            model.retrain_from_log(
                str(log), X, y, time_budget=stage - begun, train_full=True, **common
            )
        yield Answer(
            stage,
            model.predict(X_test),
            begun + best.wall_clock_time,
            percent * best.validation_loss if has_folds else None,
            len(seen),
        )


def records(log: Path, seconds: float) -> list[Any]:
    """What its log has until a time after its start."""
    from flaml.automl.training_log import training_log_reader

    with training_log_reader(str(log)) as reader:
        return [r for r in reader.records() if r.wall_clock_time <= seconds]
