"""Synthetic patient cohorts with a planted truth, for demonstrations and tests.

Patients order medications; each order is an event of the medication and of its drug class, with a
value. Cases order a little more of everything, but what tells them apart is planted in a few main
codes: whether a patient has them, how often, with what total or with what average. Which of these
four it is decides which feature construction can see it. One code appears in every case after the
prediction time: whoever uses it reads the future.

The shape of the data follows Table 3 of FLASH (Zhang et al., KDD 2016).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.optimizers.naming import UnknownName

__all__ = ["COHORTS", "Cohort", "CohortSpec", "generate"]

Family = Literal["binary", "count", "sum", "average"]

_FAMILIES: tuple[Family, ...] = ("binary", "count", "sum", "average")
_STRENGTH: Mapping[Family, float] = {"binary": 1.6, "count": 1.5, "sum": 2.2, "average": 2.0}
"""Strength at which the planted aggregation is clearly the best one."""
_N_MEDICATIONS = 300
_N_CLASSES = 80
_YEARS = 4
LEAK = "AFTER//FAILURE"
"""Code that every case has, after its prediction time."""


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """What to generate.

    Attributes:
        n_patients: Rows, half of them cases.
        family: Which aggregation of the main codes tells cases apart.
        n_main: Codes that carry the signal.
        noise_codes: Codes that 1 to 4 patients have and that mean nothing.
        seed: Source of all randomness.
    """

    n_patients: int = 3000
    family: Family = "average"
    n_main: int = 6
    noise_codes: int = 1500
    seed: int = 20


COHORTS: Mapping[str, CohortSpec] = {"demo": CohortSpec()}
"""The cohorts that `cohort:NAME` knows."""


@dataclass(frozen=True)
class Cohort:
    """Events, labels, and what was planted.

    Attributes:
        events: Columns patient_id, timestamp, event_id, value.
        labels: Columns patient_id, prediction_time, label (`case` or `control`).
        truth: What was planted.
    """

    events: pd.DataFrame
    labels: pd.DataFrame
    truth: Mapping[str, str | int]


def generate(spec: CohortSpec) -> Cohort:
    """A cohort, always the same for the same spec.

    Raises:
        UnknownName: If the family is none of the four.
    """
    if spec.family not in _FAMILIES:
        raise UnknownName("family of a cohort", spec.family, _FAMILIES)
    rng = np.random.default_rng(spec.seed)
    n = spec.n_patients
    is_case = rng.permutation(np.arange(n) % 2 == 0)
    orders = [_background(is_case, rng)]
    orders += [
        _block(family, f"MAIN//{family}{i}", is_case, _STRENGTH[family], rng)
        for family in (spec.family,)
        for i in range(spec.n_main)
    ]
    orders += [
        _block(family, f"DECOY//{family}", is_case, 0.0, rng)
        for family in _FAMILIES
        if family != spec.family
    ]
    orders.append(_rare_noise(spec.noise_codes, n, rng))
    medication = pd.concat(orders, ignore_index=True)
    events = pd.concat([medication, _classes(medication, is_case, rng)], ignore_index=True)

    days = rng.integers(0, 365, n).astype("timedelta64[D]")
    index_day = np.datetime64("2015-01-01", "us") + days
    before = rng.integers(1, _YEARS * 365 * 86_400, len(medication)).astype("timedelta64[s]")
    before = np.concatenate([before, before[events["order"].to_numpy()[len(medication) :]]])
    patient = events["patient_id"].to_numpy()
    events["timestamp"] = index_day[patient] - before
    cases = np.flatnonzero(is_case)
    leak = pd.DataFrame(
        {
            "patient_id": cases,
            "event_id": LEAK,
            "value": 1.0,
            "timestamp": index_day[cases] + np.timedelta64(30, "D"),
        }
    )
    events = pd.concat([events, leak], ignore_index=True)
    labels = pd.DataFrame(
        {
            "patient_id": np.arange(n),
            "prediction_time": index_day,
            "label": np.where(is_case, "case", "control"),
        }
    )
    truth = {"aggregation": spec.family, "main_codes": spec.n_main, "leak": LEAK}
    return Cohort(events[["patient_id", "timestamp", "event_id", "value"]], labels, truth)


def _background(is_case: NDArray[np.bool_], rng: np.random.Generator) -> pd.DataFrame:
    """Orders of common medications: negative binomial counts, Zipf codes, lognormal values."""
    mean = np.where(is_case, 12.4, 4.6)
    counts = np.maximum(rng.negative_binomial(2, 2 / (2 + mean)), 1)  # nobody without any event
    total = int(counts.sum())
    weights = 1 / np.arange(1, _N_MEDICATIONS + 1) ** 1.05
    drawn = rng.choice(_N_MEDICATIONS, total, p=weights / weights.sum())
    codes = np.array([f"MED//{i:03d}" for i in range(_N_MEDICATIONS)])
    return _orders(
        np.repeat(np.arange(len(is_case)), counts), codes[drawn], rng.lognormal(3, 1, total)
    )


def _block(
    family: Family, code: str, is_case: NDArray[np.bool_], strength: float, rng: np.random.Generator
) -> pd.DataFrame:
    """Orders of one code in which one aggregation carries the class, and the others do not."""
    n = len(is_case)
    signal = np.where(is_case, strength, -strength)
    match family:
        case "binary":
            has = rng.random(n) < np.clip(0.22 + 0.11 * signal, 0, 1)
            counts = np.where(has, 1 + np.minimum(rng.geometric(0.45, n) - 1, 8), 0)
            patient = np.repeat(np.arange(n), counts)
            value = rng.lognormal(3, 1.3, len(patient))
        case "count":
            has = rng.random(n) < 0.5
            counts = np.where(has, 1 + rng.poisson(np.maximum(1.2 + 0.75 * signal, 0)), 0)
            patient = np.repeat(np.arange(n), counts)
            value = rng.lognormal(3, 1.3, len(patient))
        case "average":
            has = rng.random(n) < 0.5
            counts = np.where(has, 1 + rng.poisson(rng.gamma(0.7, size=n)), 0)
            patient = np.repeat(np.arange(n), counts)
            value = rng.lognormal(3 + 0.33 * signal[patient], 0.7)
        case "sum":
            has = rng.random(n) < 0.5
            counts = np.where(has, 1 + rng.poisson(1.2, n), 0)
            patient = np.repeat(np.arange(n), counts)
            total = rng.lognormal(4 + 0.33 * signal, 0.55)
            share = rng.exponential(size=len(patient))
            share /= np.bincount(patient, share, minlength=n)[patient]
            value = total[patient] * share
    return _orders(patient, np.full(len(patient), code), value)


def _rare_noise(n_codes: int, n_patients: int, rng: np.random.Generator) -> pd.DataFrame:
    """Codes that hardly anybody has and that mean nothing."""
    counts = rng.choice([1, 2, 3, 4], n_codes, p=[0.55, 0.25, 0.12, 0.08])
    codes = np.repeat([f"RARE//{i:05d}" for i in range(n_codes)], counts)
    patient = rng.integers(0, n_patients, len(codes))
    return _orders(patient, codes, rng.lognormal(3, 1, len(codes)))


def _classes(
    medication: pd.DataFrame, is_case: NDArray[np.bool_], rng: np.random.Generator
) -> pd.DataFrame:
    """For each order an event of its drug class, for some a second one."""
    codes, positions = np.unique(medication["event_id"].to_numpy().astype(str), return_inverse=True)
    first = rng.integers(0, _N_CLASSES, len(codes))[positions]
    second = rng.integers(0, _N_CLASSES, len(codes))[positions]
    has_second = rng.random(len(medication)) < np.where(
        is_case[medication["patient_id"].to_numpy()], 0.262, 0.176
    )
    order = np.concatenate([np.arange(len(medication)), np.flatnonzero(has_second)])
    number = np.concatenate([first, second[has_second]])
    names = np.array([f"CLASS//{i:02d}" for i in range(_N_CLASSES)])
    rows = medication.iloc[order].reset_index(drop=True)
    return rows.assign(event_id=names[number], order=order)


def _orders(
    patient: NDArray[np.integer], code: NDArray[np.str_], value: NDArray[np.float64]
) -> pd.DataFrame:
    return pd.DataFrame({"patient_id": patient, "event_id": code, "value": value, "order": -1})
