"""Configurations and fidelities as text, and suggestions for unknown names."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from prefect_tune.optimizers.converter import value_document


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`; None if none is similar.

    >>> nearest("standardise", ["standardize", "minmax"])
    'standardize'
    """
    lowered = {k.lower(): k for k in known}
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return lowered[found[0]] if found else None


class UnknownName(ValueError):  # noqa: N818 - the name states the problem, as KeyError does
    """An unknown name; the message has the nearest name and all known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        guess = nearest(name, self.known)
        hint = f" Did you mean {guess!r}?" if guess else ""
        shown = ", ".join(self.known[:30]) or "none"
        more = f" and {len(self.known) - 30} more" if len(self.known) > 30 else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {shown}{more}.")


_LARGEST_DENOMINATOR = 10_000
"""Shares of rows are shown as fractions up to this one."""


def pipeline_lines(configuration: Mapping[str, Any]) -> list[str]:
    """Return a configuration, given as JSON values, with a line per step.

    >>> pipeline_lines({"model": {"algorithm": "svm", "hyperparameters": {"C": 1 / 3}}})
    ['model  svm (C=0.3333)']
    """
    width = max(map(len, configuration))
    lines = []
    for step, choice in configuration.items():
        values = ", ".join(values_text(choice["hyperparameters"]))
        lines.append(f"{step:<{width}}  {choice['algorithm']}" + (f" ({values})" if values else ""))
    return lines


def values_text(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return the values of hyperparameters with their names.

    >>> values_text({"C": 1 / 3, "kernel": "rbf"})
    ['C=0.3333', 'kernel=rbf']
    """
    return [f"{name}={value_text(value)}" for name, value in hyperparameters.items()]


def range_text(hyperparameter: Any) -> str:
    """Return the range of a hyperparameter of ConfigSpace.

    >>> from ConfigSpace import Categorical, Float
    >>> range_text(Float("C", (2**-5, 2**15), log=True)), range_text(Categorical("p", [1, 2]))
    ('a number from 0.03125 to 32768', 'one of 1, 2')
    """
    for listed in ("choices", "sequence"):
        if hasattr(hyperparameter, listed):
            documents = map(value_document, getattr(hyperparameter, listed))
            return f"one of {', '.join(map(value_text, documents))}"
    if not hasattr(hyperparameter, "lower"):
        return str(hyperparameter.value)
    lower, upper = hyperparameter.lower, hyperparameter.upper
    kind = "a whole number" if isinstance(lower, int) else "a number"
    return f"{kind} from {lower:g} to {upper:g}"


def fidelity_text(
    query: Mapping[str, Any], n_folds: int | None = None, epochs: int | None = None
) -> str:
    """Return the fidelity of a query, given as JSON values; empty if it is full.

    A full evaluation has `n_folds` and `epochs`, None if unknown.

    >>> fidelity_text({"subset": 1 / 9, "subset_draw": 0, "folds": 1, "epochs": None}, n_folds=3)
    'subset 1/9, folds 1 of 3'
    """
    parts = []
    subset, draw = query.get("subset", 1.0), query.get("subset_draw", 0)
    if subset < 1:
        fraction = Fraction(subset).limit_denominator(_LARGEST_DENOMINATOR)
        is_fraction = abs(fraction - subset) < 1e-12
        parts.append(f"subset {fraction}" if is_fraction else f"subset {subset:.3g}")
        if draw:
            parts.append(f"draw {draw}")
    for name, whole in (("folds", n_folds), ("epochs", epochs)):
        if (asked := query.get(name)) is not None:
            parts.append(f"{name} {asked}" + (f" of {whole}" if whole else ""))
    return ", ".join(parts)


def value_text(value: Any) -> str:
    """Return a hyperparameter's value, given as JSON, with four digits of a number."""
    return f"{value:.4g}" if isinstance(value, float) else _OF_A_FILE.sub("", str(value))


_OF_A_FILE = re.compile(r"prefect_tune_user_code_\w+\.")
"""Module of a user's file, as `tasks.user_code` names the module by the text of the file."""
