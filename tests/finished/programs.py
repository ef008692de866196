"""Run printed code as users do, and run scripts without prefect-tune."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector
from sklearn.pipeline import Pipeline

WITHOUT = """
import runpy, sys

sys.modules["prefect_tune"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs another one as if prefect-tune were not installed."""


def built_from(text: str) -> Pipeline:
    """Return the pipeline built by printed code; its last statement, the fit, is left out."""
    built, fits, _ = text.rpartition("\npipeline.fit(X, y")
    assert fits, text
    names: dict[str, Any] = {}
    exec(built, names)  # noqa: S102 - what a user does with it
    pipeline: Pipeline = names["pipeline"]
    return pipeline


def parameters(estimator: Any) -> dict[str, str]:
    """Return all parameters of an estimator and of nested estimators, as comparable strings."""
    try:
        values = estimator.get_params(deep=True)
    except TypeError:  # of CatBoost
        values = estimator.get_params()
    return {"": _text(estimator), **{name: _text(value) for name, value in values.items()}}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} {[_text(item) for item in value]}"
    if isinstance(value, make_column_selector):
        return f"columns {vars(value)}"
    if isinstance(value, BaseEstimator):
        form = getattr(value, "_sklearn_output_config", {})
        return f"{type(value).__qualname__} {sorted(form.items())}"
    name = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
    return name or repr(value.item() if isinstance(value, np.generic) else value)


def run_without_prefect_tune(script: Path, *arguments: object) -> str:
    """Return the output of a script in a process that cannot import prefect-tune."""
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
