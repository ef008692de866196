"""Configurations as flat as the parameters of other tools. Light to import."""

from collections.abc import Mapping
from typing import Any

__all__ = ["params_of"]


def params_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as flat as scikit-learn's parameters.

    >>> params_of({"fit model": {"algorithm": "svc", "hyperparameters": {"C": 2.0}}})
    {'fit model': 'svc', 'fit model__C': 2.0}
    """
    params = {}
    for step, choice in configuration.items():
        params[step] = choice["algorithm"]
        params |= {f"{step}__{name}": v for name, v in choice["hyperparameters"].items()}
    return params
