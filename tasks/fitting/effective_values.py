"""Effective values: what an estimator gets for the value of a hyperparameter, given the data.

An algorithm names a rule in its `transforms`, or brings one of its own. Effective values enter
keys, so two values with the same effective value share their artifacts.
"""

from collections.abc import Callable, Mapping
from math import log
from typing import Any

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary

__all__ = ["TRANSFORMS", "TransformRule", "effective_value"]


def _logp_max_features(value: Any, summary: MatrixSummary) -> int:
    p = summary.columns
    return max(1, min(p // 2, int(value * (log(p) + 1))))


TransformRule = Callable[[Any, MatrixSummary], Any]
"""An effective value from a value and the training rows."""

_LITERALS = {"none": None, "false": False, "true": True}

TRANSFORMS: Mapping[str, TransformRule] = {
    "clip_n": lambda value, summary: min(value, summary.rows),
    "clip_p": lambda value, summary: min(value, summary.columns),
    "clip_below_p": lambda value, summary: max(1, min(value, summary.columns - 1)),
    "clip_min_n_p": lambda value, summary: min(value, summary.rows, summary.columns),
    "depth_factor": lambda value, summary: max(1, round(value * summary.columns)),
    "logp_max_features": _logp_max_features,
    "per_column": lambda value, summary: value / max(summary.columns, 1),
    "power_of_p": lambda value, summary: max(1, int(summary.columns**value)),
    "share_of_p": lambda value, summary: max(1, round(value * summary.columns)),
    "two_class_loss": lambda value, summary: "log_loss" if summary.n_classes > 2 else value,
    "truth": lambda value, _: bool(value),
    "word": lambda value, _: _LITERALS.get(value, value),
    "inert": lambda value, _: value,
}
"""By the names that algorithms use; n is the number of training rows, p that of columns.

`word` reads none, true and false as Python does. `two_class_loss` is for a loss that is not defined
for more than two classes. A hyperparameter that is `inert` stands in the
paper's table and changes nothing; the estimator does not get it.
"""


def effective_value(rule: str | TransformRule, value: Any, summary: MatrixSummary) -> Any:
    """Return what the estimator gets for a value.

    Raises:
        UnknownName: If there is no rule of that name.
    """
    if not isinstance(rule, str):
        return rule(value, summary)
    if rule not in TRANSFORMS:
        raise UnknownName("rule that fits a hyperparameter to the data", rule, TRANSFORMS)
    return TRANSFORMS[rule](value, summary)
