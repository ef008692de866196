"""How a method of search declares itself: all that the project knows of it before it is made.

Light to import, and so are the declarations: help, lists and views read them, and a method's
libraries take seconds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

__all__ = ["Fidelity", "Method", "NoOptions"]

Fidelity = Literal["subset", "epochs", "folds"]
"""Of a query: a share of the rows, a stretch of training, some of the folds."""


@dataclass(frozen=True)
class NoOptions:
    """Options of a method that has none."""


def _nothing(decisions: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, kw_only=True)
class Method:
    """The declaration of a method.

    Attributes:
        name: The word after `--method`.
        purpose: One line on what it is for.
        implementation: Its `Optimizer` as `module:Class`, imported when first made.
        options: A dataclass of its options that checks itself, its attributes described in its
            docstring.
        honours_constraints: Whether it searches inside of constraints; of any other method they
            choose among the trials.
        fidelities: Those that it asks for less than all of.
        draws_on_cost: Whether the seconds that trials take change its asks; any other method
            repeats its trials on one worker under a budget of trials.
        has_portfolio: Whether it begins with its space's portfolio unless it is told otherwise.
        is_raced: Whether its configurations race by folds unless it is told otherwise.
        compared_by_default: Whether `compare` takes it when no methods are named.
        ensemble: How a study of it ends unless it is told otherwise: in an agnostic Bayes ensemble
            of its trials, or in what is best on held-out rows, an ensemble or the best trial (this
            one without constraints only); None for the trial that the method chooses.
        render_decisions: Turns the JSON values of `Optimizer.decisions` into lines for people.
    """

    name: str
    purpose: str
    implementation: str
    options: type[Any] = NoOptions
    honours_constraints: bool = False
    fidelities: frozenset[Fidelity] = frozenset()
    draws_on_cost: bool = False
    has_portfolio: bool = False
    is_raced: bool = False
    compared_by_default: bool = True
    ensemble: Literal["agnostic", "auto"] | None = None
    render_decisions: Callable[[Mapping[str, Any]], Sequence[str]] = _nothing

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"a method's name is lower-case letters, digits and _; got {self.name!r}"
            )
        if not self.purpose or "\n" in self.purpose:
            raise ValueError(f"method {self.name!r} says its purpose in one line")
        if not re.fullmatch(r"[\w.]+:\w+", self.implementation):
            raise ValueError(
                f"method {self.name!r} names its implementation as module:Class; "
                f"got {self.implementation!r}"
            )
        if not is_dataclass(self.options):
            raise TypeError(f"the options of method {self.name!r} are a dataclass")
