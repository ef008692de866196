"""Configurations as people read them."""

from collections.abc import Mapping
from typing import Any

__all__ = ["pipeline_lines"]


def pipeline_lines(configuration: Mapping[str, Any]) -> list[str]:
    """Return a configuration, given as JSON values, one step a line.

    >>> pipeline_lines({"model": {"algorithm": "svm", "hyperparameters": {"C": 1 / 3}}})
    ['model  svm (C=0.3333)']
    """
    width = max(map(len, configuration))
    lines = []
    for step, choice in configuration.items():
        values = ", ".join(f"{k}={_short(v)}" for k, v in choice["hyperparameters"].items())
        lines.append(f"{step:<{width}}  {choice['algorithm']}" + (f" ({values})" if values else ""))
    return lines


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
