"""The options of a cohort, and their form `cohort:NAME?option=value`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.cohort.orders import FAMILIES, Family


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """Options of a cohort.

    Attributes:
        n_patients: Rows, half of them cases.
        seed: Source of all randomness.
        family: Which aggregation of the main codes tells cases apart.
        strength: How clearly it does; 0 is not at all, None the family's own at which no other
            aggregation comes near.
        main_codes: Codes that carry the signal.
        decoys: Codes of each other family that carry none.
        rare_cover: Rare codes that tell the class: how many of them a patient has on average.
        rare_frequency: Patients that have such a code.
        rare_purity: Probability that one who has such a code is of its class.
        noise_codes: Codes of 1 to 4 orders that mean nothing.
        xor: How often a pair of codes, of which cases have just one, tells the class: 0 is as
            often as chance, 1 is always.
        leak: Whether every case has a code after its prediction time.

    Raises:
        UnknownName: If the family is none of the four.
        BadInput: If a value is out of its bounds.
    """

    n_patients: int = 3000
    seed: int = 20
    family: Family = "average"
    strength: float | None = None
    main_codes: int = 6
    decoys: int = 1
    rare_cover: float = 0.0
    rare_frequency: int = 5
    rare_purity: float = 0.95
    noise_codes: int = 0
    xor: float = 0.0
    leak: bool = True

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise UnknownName("family of a cohort", self.family, FAMILIES)
        within = {
            "n_patients": (30, 10_000_000),
            "seed": (0, 2**63),
            "strength": (0, 10),
            "main_codes": (0, 1000),
            "decoys": (0, 1000),
            "rare_cover": (0, 100),
            "rare_frequency": (1, int(self.n_patients**0.5)),
            "rare_purity": (0.5, 1),
            "noise_codes": (0, 10_000_000),
            "xor": (0, 1),
        }
        for name, (low, high) in within.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise BadInput(f"{name}={value} of a cohort must be from {low} to {high}")


COHORTS: Mapping[str, CohortSpec] = {
    "demo": CohortSpec(noise_codes=1500),
    "paper": CohortSpec(n_patients=46_455, seed=16, rare_cover=0.2, noise_codes=40_000),
}
"""The cohorts that `cohort:NAME` knows."""


def cohort_named(text: str) -> CohortSpec:
    """Return the cohort that `NAME?option=value&option=value` stands for.

    >>> cohort_named("demo?family=sum&seed=3").family
    'sum'

    Raises:
        UnknownName: If there is no such cohort, option or family.
        BadInput: If an option's value is none.
    """
    name, _, query = text.partition("?")
    if name not in COHORTS:
        raise UnknownName("cohort", name, COHORTS)
    changes: dict[str, Any] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in _PARSERS:
            known = [name for name in _PARSERS if name not in _FOR_TESTS]
            raise UnknownName("option of a cohort", option, known)
        if option in changes:
            raise BadInput(f"cohort:{text} has the option {option} twice; give it once")
        parse, what = _PARSERS[option]
        try:
            changes[option] = parse(value)
        except (ValueError, KeyError) as error:
            raise BadInput(f"{option}={value} of cohort:{name}: {option} must be {what}") from error
    return replace(COHORTS[name], **changes)


_WHOLE: tuple[Callable[[str], Any], str] = (int, "a whole number")
_NUMBER: tuple[Callable[[str], Any], str] = (float, "a number")
_YES_OR_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_PARSERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "n_patients": _WHOLE,
    "seed": _WHOLE,
    "family": (str, "a name"),
    "strength": _NUMBER,
    "main_codes": _WHOLE,
    "decoys": _WHOLE,
    "rare_cover": _NUMBER,
    "rare_frequency": _WHOLE,
    "rare_purity": _NUMBER,
    "noise_codes": _WHOLE,
    "xor": _NUMBER,
    "leak": (lambda text: _YES_OR_NO[text.lower()], "yes or no"),
}
"""For each option how its value is read, and what to call that."""
_FOR_TESTS = ("decoys", "rare_cover", "rare_frequency", "rare_purity", "xor", "leak")
"""Options that the documentation and messages do not offer."""
