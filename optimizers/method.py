"""Declarations of methods, and reasons for their proposals. The module is cheap to import."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from prefect_tune.optimizers.options import check_options, options_of


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for a proposal: the method's current phase and a one-line explanation."""

    phase: str
    text: str = ""


def ordinal(n: int) -> str:
    """Return the English ordinal of a number.

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
    """Return a number followed by a noun, in the plural unless the number is 1.

    >>> counted(1, "path"), counted(2000, "path")
    ('1 path', '2,000 paths')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def share_text(share: float) -> str:
    """Return a share of the rows as text.

    >>> share_text(1), share_text(0.25)
    ('all', '1/4')
    """
    return "all" if share == 1 else f"1/{round(1 / share)}"


Fidelity = Literal["subset", "epochs", "folds"]
"""Kind of partial evaluation: on part of the rows, up to an epoch, or on some of the folds."""
ScoreText = Callable[[float], str]
"""Function that words a loss as the user's score, such as `AUROC 0.803`."""


@dataclass(frozen=True)
class MethodOptions:
    """Options of a method, which are checked on construction. Fields are declared by `option`."""

    def __post_init__(self) -> None:
        check_options(self)


def prior_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return a line on how an earlier run was used; an empty list if no run was used."""
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
        name: Name of the method, as given to `--method`.
        purpose: One line on when to use the method.
        implementation: Reference `module:Class` to the method's `Optimizer`, imported on first use.
        options: Dataclass of the method's options, whose fields are declared by `option`.
        honors_constraints: Whether the search itself respects constraints. Other methods use
            constraints only to choose among the trials.
        fidelities: Kinds of partial evaluations that the method requests.
        draws_on_cost: Whether measured run times influence the proposals. Without such influence, a
            search with one worker and a budget counted in trials is exactly reproducible.
        has_portfolio: Whether the search starts with the portfolio of the space by default.
        is_raced: Whether, by default, configurations race fold by fold.
        compared_by_default: Whether `compare` includes the method by default.
        ensemble: Default final model: `agnostic` for an agnostic Bayes ensemble of the trials;
            `auto` for an ensemble or the best trial, whichever is better on held-out rows (without
            constraints only); None for the trial that the method chooses.
        render_decisions: Function that returns the method's decisions as lines of text.
        synonyms: Names by which users of other tools may look for the method.
    """

    name: str
    purpose: str
    implementation: str
    options: type[Any] = MethodOptions
    honors_constraints: bool = False
    fidelities: frozenset[Fidelity] = frozenset()
    draws_on_cost: bool = False
    has_portfolio: bool = False
    is_raced: bool = False
    compared_by_default: bool = True
    ensemble: Literal["agnostic", "auto"] | None = None
    render_decisions: Callable[[Mapping[str, Any], ScoreText], Iterable[str]] = lambda *_: ()
    synonyms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"a method's name consists of lower-case letters, digits and _; got {self.name!r}"
            )
        if not self.purpose or "\n" in self.purpose:
            raise ValueError(f"method {self.name!r} must have a purpose, written on one line")
        if not re.fullmatch(r"[\w.]+:\w+", self.implementation):
            raise ValueError(
                f"method {self.name!r} must give its implementation as module:Class; "
                f"got {self.implementation!r}"
            )
        if not is_dataclass(self.options):
            raise TypeError(f"the options of method {self.name!r} must be a dataclass")
        options_of(self.options)

    def decision_lines(self, decisions: Mapping[str, Any], score: ScoreText) -> list[str]:
        """Return decisions as lines of text, or one line if `render_decisions` fails."""
        try:
            rendered = self.render_decisions(decisions, score) if decisions else ()
            return [*prior_lines(decisions), *rendered]
        except Exception as error:
            return [f"{self.name}: decisions cannot be shown ({type(error).__name__}: {error})"]
