"""The orders of a synthetic cohort: common medications, with planted codes among them.

Each function draws one kind of order for all patients; one property depends on the class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]
Cases = NDArray[np.bool_]
"""Whether each patient is a case, shape (patients,)."""

Family = Literal["binary", "count", "sum", "average"]

FAMILIES: tuple[Family, ...] = ("binary", "count", "sum", "average")
STRENGTH: dict[Family, float] = {"binary": 1.6, "count": 1.5, "sum": 2.2, "average": 2.0}
"""Strength at which the planted aggregation is clearly the best one."""
MEDICATIONS = tuple(f"MED//{i:03d}" for i in range(300))
"""The common medications, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of medications.

    Attributes:
        names: The codes that are ordered.
        code: Position in `names` of each order, shape (orders,).
        patient: Patient of each order, shape (orders,).
        value: Amount of each order, shape (orders,).
    """

    names: tuple[str, ...]
    code: NDArray[np.int64]
    patient: NDArray[np.int64]
    value: Array

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join parts that have no code in common."""
        first = np.cumsum([0, *(len(part.names) for part in parts)])
        return cls(
            tuple(name for part in parts for name in part.names),
            np.concatenate([part.code + n for part, n in zip(parts, first, strict=False)]),
            np.concatenate([part.patient for part in parts]),
            np.concatenate([part.value for part in parts]),
        )


def common(mean: Array, uneven: Array, rng: Generator) -> Orders:
    """Draw at least one order per patient; codes follow Zipf's law.

    The numbers of orders tell the classes apart only as far as `mean` differs between them.

    Args:
        mean: Expected orders of each patient, shape (patients,).
        uneven: Expected orders, 1 to `mean`, that follow a negative binomial distribution of shape
            2; the others follow a Poisson distribution. Array shape (patients,).
        rng: Source of randomness.
    """
    counts = 1 + rng.negative_binomial(2, 2 / (1 + uneven)) + rng.poisson(mean - uneven)
    total = int(counts.sum())
    weights = 1 / np.arange(1, len(MEDICATIONS) + 1) ** 1.05
    code = rng.choice(len(MEDICATIONS), total, p=weights / weights.sum())
    patient = np.repeat(np.arange(len(mean)), counts)
    return Orders(MEDICATIONS, code, patient, rng.lognormal(3, 1, total))


def family_code(
    family: Family, name: str, is_case: Cases, strength: float, rng: Generator
) -> Orders:
    """Draw orders of the code `name` so that only their aggregation `family` carries the class.

    Classes have shape (patients,). A `strength` of 0 is no signal.
    """
    n = len(is_case)
    signal = np.where(is_case, strength, -strength)
    has = rng.random(n) < (np.clip(0.22 + 0.11 * signal, 0, 1) if family == "binary" else 0.5)
    match family:
        case "binary":
            more = np.minimum(rng.geometric(0.45, n) - 1, 8)
        case "count":
            more = rng.poisson(np.maximum(1.2 + 0.75 * signal, 0))
        case "average":
            more = rng.poisson(rng.gamma(0.7, size=n))
        case "sum":
            more = rng.poisson(1.2, n)
    patient = np.repeat(np.arange(n), np.where(has, 1 + more, 0))
    if family == "sum":
        total = rng.lognormal(4 + 0.33 * signal, 0.55)
        share = rng.exponential(size=len(patient))
        share /= np.bincount(patient, share, minlength=n)[patient]
        value = total[patient] * share
    elif family == "average":
        value = rng.lognormal(3 + 0.33 * signal[patient], 0.7)
    else:
        value = rng.lognormal(3, 1.3, len(patient))
    return Orders((name,), np.zeros(len(patient), dtype=np.int64), patient, value)


def rare_signal(
    frequency: int, cover: float, purity: float, is_case: Cases, rng: Generator
) -> Orders:
    """Draw codes that exactly `frequency` patients have, mostly of one class; classes alternate.

    `cover` is the mean number of codes per patient, `purity` the probability that a patient with a
    code is of its class. Classes have shape (patients,).
    """
    n_codes = round(cover * len(is_case) / frequency)
    cases, controls = np.flatnonzero(is_case), np.flatnonzero(~is_case)
    patient = np.empty((n_codes, frequency), dtype=np.int64)
    left = np.arange(n_codes)
    while len(left):
        shape = (len(left), frequency)
        from_cases = (left[:, None] % 2 == 0) ^ (rng.random(shape) > purity)
        drawn = np.where(from_cases, rng.choice(cases, shape), rng.choice(controls, shape))
        patient[left] = drawn
        left = left[  # codes with a patient twice are drawn anew
            (np.diff(np.sort(drawn, axis=1), axis=1) == 0).any(axis=1)
        ]
    names = tuple(f"RARE//S{i:05d}" for i in range(n_codes))
    code = np.repeat(np.arange(n_codes), frequency)
    return Orders(names, code, patient.ravel(), rng.lognormal(3, 1, patient.size))


def rare_noise(n_codes: int, n_patients: int, rng: Generator) -> Orders:
    """Draw uninformative codes of 1 to 4 orders."""
    counts = rng.choice([1, 2, 3, 4], n_codes, p=[0.55, 0.25, 0.12, 0.08])
    code = np.repeat(np.arange(n_codes), counts)
    patient = rng.integers(0, n_patients, len(code))
    names = tuple(f"RARE//{i:05d}" for i in range(n_codes))
    return Orders(names, code, patient, rng.lognormal(3, 1, len(code)))


def xor_pair(weight: float, is_case: Cases, rng: Generator) -> Orders:
    """Draw two codes that half of each class have; cases tend to have exactly one of the two.

    Neither code alone is informative, so linear models are blind to the pair. With a `weight` of 1
    the pair decides the class, with 0 it carries no signal. Classes have shape (patients,).
    """
    n = len(is_case)
    has_first = rng.random(n) < 0.5
    has_one = is_case ^ (rng.random(n) > (1 + weight) / 2)
    has = np.stack([has_first, has_first ^ has_one])
    code, patient = np.nonzero(has)
    return Orders(("XOR//0", "XOR//1"), code, patient, rng.lognormal(3, 1, len(code)))
