"""FLAML's AutoML on its own space, with its own choice of folds or holdout.

FLAML's budget is the seconds left after imports. The answer at the end is FLAML's own: the best
configuration, fitted on all training rows after the budget (`retrain_full=True`). Earlier answers
are the best configurations in FLAML's log so far, also fitted on all rows (`retrain_from_log`). The
loss is cross-validated only if FLAML chose folds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_tools.task import Answer, Task

DISTRIBUTION = "flaml"


def answers(task: Task) -> Iterator[Answer]:
    """Fit, then read the best configuration of each stage from the log."""
    from flaml import AutoML
    from flaml.automl.training_log import training_log_reader

    X, test = task.frames()
    y, is_of_classes = X.pop(task.target), task.kind == "classes"
    X_test, y = test[list(X.columns)], y.astype(object) if is_of_classes else y
    log, automl = str(Path(task.folder, "flaml.log")), AutoML()
    common: dict[str, Any] = {
        "task": "classification" if is_of_classes else "regression",
        "n_jobs": 1,
    }
    begun = task.elapsed()
    automl.fit(
        X, y, metric="accuracy" if is_of_classes else "r2", time_budget=task.seconds - begun,
        seed=task.seed, retrain_full=True, log_file_name=log, log_type="all", verbose=0, **common,
    )  # fmt: skip
    has_folds, unit = automl._state.eval_method == "cv", 100.0 if is_of_classes else 1.0
    with training_log_reader(log) as reader:
        records = list(reader.records())
    for stage in task.stages:
        seen = [r for r in records if r.wall_clock_time <= stage - begun]
        if not seen:
            continue
        best, model = min(seen, key=lambda record: record.validation_loss), automl
        if stage < task.seconds:
            model = AutoML()
            model.retrain_from_log(log, X, y, time_budget=stage - begun, train_full=True, **common)
        loss = unit * best.validation_loss if has_folds else None
        found = begun + best.wall_clock_time
        yield Answer(stage, model.predict(X_test), found, loss, len(seen))
