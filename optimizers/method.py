"""How a method declares itself and its options, and gives reasons for its asks; cheap to import."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from prefect_tune.optimizers.options import check_options, options_of


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for an ask: the phase in a few words, and one short line, which may be empty."""

    phase: str
    text: str = ""


def ordinal(n: int) -> str:
    """Return an ordinal number.

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '112th']
    """
    is_teen = n // 10 % 10 == 1
    return f"{n}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def two_digits(value: float) -> str:
    """Return a number with two significant digits.

    >>> two_digits(0.8349), two_digits(137.2), two_digits(4e-9)
    ('0.83', '140', '4e-09')
    """
    return f"{float(f'{value:.2g}'):g}"


def counted(n: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "path"), counted(2000, "path")
    ('1 path', '2,000 paths')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def share_text(share: float) -> str:
    """Return a share of the rows.

    >>> share_text(1), share_text(0.25)
    ('all', '1/4')
    """
    return "all" if share == 1 else f"1/{round(1 / share)}"


Fidelity = Literal["subset", "epochs", "folds"]
"""Fidelity of a query: a share of the rows, part of a training, or some of the folds."""


@dataclass(frozen=True)
class MethodOptions:
    """Options of a method, checked at construction. Subclasses declare fields by `option`."""

    def __post_init__(self) -> None:
        check_options(self)


def prior_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return a line on the use of an earlier run, if there was one."""
    if (prior := decisions.get("prior")) is None:
        return []
    parts = [counted(prior["trials"], "trial"), f"{prior['repeated']} evaluated again"]
    if prior["skipped"]:
        parts.append(f"{prior['skipped']} outside the space")
    if prior["correlation"] is not None:
        parts.append(f"rank correlation {prior['correlation']:.2f}")
    weight = f"weight {two_digits(prior['weight'])}" if prior["weight"] else "dropped"
    return [f"{prior['name']}: {', '.join([*parts, weight])}"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """The declaration of a method.

    Attributes:
        name: Value of `--method`.
        implementation: Its `Optimizer` as `module:Class`, imported on first use.
        options: Dataclass whose fields are declared by `option`, such as a subclass of
            `MethodOptions`.
        honours_constraints: Whether the search itself respects constraints; for other methods,
            constraints only select among the trials.
        fidelities: Fidelities at which the method requests partial evaluations.
        draws_on_cost: Whether measured seconds influence its queries. Other methods repeat their
            trials exactly, given one worker and a budget of trials.
        has_portfolio: Whether it starts with its space's portfolio by default.
        is_raced: Whether its configurations race by folds by default.
        compared_by_default: Whether `compare` includes it by default.
        ensemble: Default final model. `agnostic`: an agnostic Bayes ensemble of the trials. `auto`,
            only without constraints: the better of an ensemble and the best trial on held-out rows.
            None: the trial that the method chooses.
    """

    name: str
    purpose: str
    implementation: str
    options: type[Any] = MethodOptions
    honours_constraints: bool = False
    fidelities: frozenset[Fidelity] = frozenset()
    draws_on_cost: bool = False
    has_portfolio: bool = False
    is_raced: bool = False
    compared_by_default: bool = True
    ensemble: Literal["agnostic", "auto"] | None = None
    render_decisions: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _: ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"the name of a method has lower-case letters, digits and _ only; got {self.name!r}"
            )
        if not self.purpose or "\n" in self.purpose:
            raise ValueError(f"method {self.name!r} must have a purpose of one line")
        if not re.fullmatch(r"[\w.]+:\w+", self.implementation):
            raise ValueError(
                f"method {self.name!r} must give its implementation as module:Class; "
                f"got {self.implementation!r}"
            )
        if not is_dataclass(self.options):
            raise TypeError(f"the options of method {self.name!r} must be a dataclass")
        options_of(self.options)

    def decision_lines(self, decisions: Mapping[str, Any]) -> list[str]:
        """Return decisions as lines of text; a renderer that fails yields one line."""
        try:
            if not decisions:
                return []
            return [*prior_lines(decisions), *self.render_decisions(decisions)]
        except Exception as error:
            return [f"{self.name}: decisions cannot be shown ({type(error).__name__}: {error})"]
