"""Synthetic patient cohorts with a planted truth, for demonstrations and tests.

Patients order medications; each order is an event of the medication and of its drug class, with a
value. Cases order a little more of everything, but what tells them apart is planted in a few main
codes: whether a patient has them, how often, with what total or with what average. Which of these
four it is decides which feature construction can see it. More can be planted: rare codes that tell
the class, rare codes that tell nothing, a pair of codes that only together tell it, and a code that
every case has after the prediction time: whoever uses it reads the future.

The shape of the data follows Table 3 of FLASH (Zhang et al., KDD 2016).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.data.cohort.orders import (
    FAMILIES,
    STRENGTH,
    Orders,
    common,
    family_code,
    rare_noise,
    rare_signal,
    xor_pair,
)
from prefect_tune.tasks.data.cohort.spec import CohortSpec

LEAK = "AFTER//FAILURE"
"""Code that every case has, after its prediction time."""

_ORDERS = (23.4, 15.35)
"""Orders of a case and of a control (Table 3, medications per patient)."""
_UNEVEN = (12.4, 4.6)
"""How many of them, at most, differ much between patients."""
_SECOND_CLASS = (0.262, 0.177)
"""How many orders of a case and of a control are of a second drug class (Table 3)."""
_N_CLASSES = 80
_SECONDS = 4 * 365 * 86_400
"""How far events reach back from the prediction time."""
_LEAK_DELAY = np.timedelta64(30, "D")


@dataclass(frozen=True)
class Cohort:
    """Events, labels, and what was planted.

    Attributes:
        events: Columns patient_id, timestamp, event_id (categorical), value; by patient and time.
        labels: Columns patient_id, prediction_time, label (`case` or `control`).
        truth: What was planted, and which construction sees it best, as JSON values.
    """

    events: pd.DataFrame
    labels: pd.DataFrame
    truth: Mapping[str, Any]


def generate(spec: CohortSpec) -> Cohort:
    """Generate a cohort, the same for the same spec; the leak changes nothing before it."""
    rng = np.random.default_rng(spec.seed)
    is_case = rng.permutation(np.arange(spec.n_patients) % 2 == 1)
    orders = _orders(spec, is_case, rng)
    names, class_of_order, order = _drug_classes(orders, is_case, rng)
    index_day = rng.integers(0, 365, spec.n_patients).astype("timedelta64[D]")
    prediction_time = np.datetime64("2015-01-01", "us") + index_day
    before = rng.integers(1, _SECONDS, len(orders.code))

    cases = np.flatnonzero(is_case) if spec.leak else np.array([], dtype=np.int64)
    patient = np.concatenate([orders.patient, orders.patient[order], cases])
    code = np.concatenate(
        [orders.code, len(orders.names) + class_of_order, np.full(len(cases), len(names) - 1)]
    )
    value = np.concatenate([orders.value, orders.value[order], np.ones(len(cases))])
    ago = np.concatenate([before, before[order]]).astype("timedelta64[s]")
    time = prediction_time[patient]
    time[: len(ago)] -= ago
    time[len(ago) :] += _LEAK_DELAY
    by_time = np.lexsort((time, patient))
    events = pd.DataFrame(
        {
            "patient_id": patient[by_time],
            "timestamp": time[by_time],
            "event_id": pd.Categorical.from_codes(code[by_time], categories=pd.Index(names)),
            # MEDS holds values in single precision, so no others are made.
            "value": value[by_time].astype(np.float32).astype(np.float64),
        }
    )
    labels = pd.DataFrame(
        {
            "patient_id": np.arange(spec.n_patients),
            "prediction_time": prediction_time,
            "label": np.where(is_case, "case", "control"),
        }
    )
    return Cohort(events, labels, _truth(spec, orders.names))


def _orders(spec: CohortSpec, is_case: NDArray[np.bool_], rng: np.random.Generator) -> Orders:
    """Draw all orders, with common medications to fill up to Table 3's rates."""
    strength = STRENGTH[spec.family] if spec.strength is None else spec.strength
    planted = [
        family_code(spec.family, f"MAIN//{spec.family}{i}", is_case, strength, rng)
        for i in range(spec.main_codes)
    ]
    planted += [
        family_code(family, f"DECOY//{family}{i}", is_case, 0.0, rng)
        for family in FAMILIES
        if family != spec.family
        for i in range(spec.decoys)
    ]
    planted.append(
        rare_signal(spec.rare_frequency, spec.rare_cover, spec.rare_purity, is_case, rng)
    )
    planted.append(rare_noise(spec.noise_codes, spec.n_patients, rng))
    if spec.xor:
        planted.append(xor_pair(spec.xor, is_case, rng))
    patient = np.concatenate([part.patient for part in planted])
    n_planted = np.bincount(is_case[patient], minlength=2) / np.bincount(is_case)
    mean = np.maximum(np.where(is_case, *(_ORDERS - n_planted[::-1])), 1.0)
    uneven = np.minimum(np.where(is_case, *_UNEVEN), mean)
    return Orders.joined([common(mean, uneven, rng), *planted])


def _drug_classes(
    orders: Orders, is_case: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Draw an event of the drug class of each order, for some orders one of a second class.

    Returns:
        All codes, those of orders first and the leak's last; class of each event, and its order.
    """
    first = rng.integers(0, _N_CLASSES, len(orders.names))
    second = (first + rng.integers(1, _N_CLASSES, len(first))) % _N_CLASSES
    probability = np.where(is_case, *_SECOND_CLASS)[orders.patient]
    has_second = np.flatnonzero(rng.random(len(orders.code)) < probability)
    order = np.concatenate([np.arange(len(orders.code)), has_second])
    drug_class = np.concatenate([first[orders.code], second[orders.code[has_second]]])
    names = (*orders.names, *(f"CLASS//{i:02d}" for i in range(_N_CLASSES)), LEAK)
    return names, drug_class, order


def _truth(spec: CohortSpec, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what was planted, as JSON values.

    A rare code is in fewer rows of a training fold than in all, so the lowest threshold loses
    fewest; rare codes that mean nothing are best left out by the highest. Rare codes are many and
    each tells little but nearly surely, which models of independent columns sum up best, and those
    take dense matrices.
    """
    min_frequency = 2 if spec.rare_cover else 5 if spec.noise_codes else None
    return {
        "aggregation": spec.family if spec.main_codes and spec.strength != 0 else None,
        "min_frequency": min_frequency,
        "representation": "dense" if spec.rare_cover else None,
        "main_codes": [name for name in names if name.startswith("MAIN//")],
        "rare_codes": [name for name in names if name.startswith("RARE//S")],
        "xor_codes": [name for name in names if name.startswith("XOR//")],
        "leak": LEAK if spec.leak else None,
        "options": asdict(spec),
    }
