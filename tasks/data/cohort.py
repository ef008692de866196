"""Synthetic patient cohorts with a planted signal, for demonstrations and tests.

Patients have medication orders. Each order has a value and produces one event for the medication
and one for the medication's drug class. Cases have slightly more orders of all kinds, but the
signal is in a few main codes: in the presence, number, total value or average value of their
orders. Each of these four families needs a different feature construction. Some rare codes are
informative, others are not. One code leaks the class, but only after the prediction time.

The size of the data follows Table 3 of FLASH (Zhang et al., KDD 2016). `cohort:NAME?option=value`
names a cohort. A cohort can be written as a MEDS 0.4 folder, with events in `data/`, labels in
`labels/case`, a table of splits that holds out a stratified fifth of the patients, and the planted
signal in `truth.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import parse_qsl

import msgspec
import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.tasks.bad_input import BadInput

Family = Literal["binary", "count", "sum", "average"]

FAMILIES: tuple[Family, ...] = ("binary", "count", "sum", "average")
_STRENGTH: dict[Family, float] = {"binary": 1.6, "count": 1.5, "sum": 2.2, "average": 2.0}
"""Strength of the signal at which the planted aggregation is clearly best."""
_MAIN_CODES = 6
"""Number of codes that carry the signal."""
_Patients = Annotated[int, msgspec.Meta(ge=30, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """Options of a cohort.

    Attributes:
        n_patients: Number of patients, one row each; half of the patients are cases.
        seed: Source of all randomness.
        family: Aggregation of the main codes that distinguishes the classes.
        rare_cover: Mean number of informative rare codes per patient.
        noise_codes: Number of uninformative codes, with 1 to 4 orders each.
        first: Number of patients to keep, counted from the first; None for all. A larger number
            adds patients and leaves the others unchanged.
    """

    n_patients: _Patients = 3000
    seed: Annotated[int, msgspec.Meta(ge=0)] = 20
    family: Family = "average"
    rare_cover: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    noise_codes: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    first: _Patients | None = None


COHORTS: Mapping[str, CohortSpec] = {
    "demo": CohortSpec(noise_codes=1500),
    "paper": CohortSpec(n_patients=46_455, seed=16, rare_cover=0.2, noise_codes=40_000),
}
"""Cohorts by the name in `cohort:NAME`."""


def cohort_named(text: str) -> CohortSpec:
    """Parse the cohort `NAME?option=value&option=value`.

    >>> cohort_named("demo?family=sum&seed=3").family
    'sum'

    Raises:
        UnknownName: If there is no such cohort, option or family.
        BadInput: If the value of an option is invalid.
    """
    name, _, query = text.partition("?")
    if name not in COHORTS:
        raise UnknownName("cohort", name, COHORTS)
    changes = dict(parse_qsl(query, keep_blank_values=True))
    for option in changes:
        if option not in CohortSpec.__slots__:
            raise UnknownName("option of a cohort", option, CohortSpec.__slots__)
    if changes.get("family", FAMILIES[0]) not in FAMILIES:
        raise UnknownName("family of a cohort", changes["family"], FAMILIES)
    try:
        return msgspec.convert({**asdict(COHORTS[name]), **changes}, CohortSpec, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"an option of cohort:{text} is invalid: {error}") from error


LEAK = "AFTER//FAILURE"
"""Code of an event that every case has after the prediction time."""

_ORDERS = (23.4, 15.35)
"""Mean number of orders of a case and of a control (Table 3, medications per patient)."""
_UNEVEN = (12.4, 4.6)
"""Largest part of the mean number of orders that varies widely between patients, for a case and a
control."""
_SECOND_CLASS = (0.262, 0.177)
"""Fraction of orders with a second drug class, for a case and a control (Table 3)."""
_N_CLASSES = 80
_SECONDS = 4 * 365 * 86_400
"""Longest time between an event and the prediction time, in seconds."""
_LEAK_DELAY = np.timedelta64(30, "D")


_MEDICATIONS = tuple(f"MED//{i:03d}" for i in range(300))
"""Common medications, most frequent first."""
_RARE_FREQUENCY, _RARE_PURITY = 5, 0.95
"""Number of patients per informative rare code, and probability that a patient has the code's
class."""


@dataclass(frozen=True)
class Cohort:
    """Events, labels and the planted signal of a cohort.

    Attributes:
        events: Columns patient_id, timestamp, event_id (categorical) and value, sorted by patient
            and time.
        labels: Columns patient_id, prediction_time, label (`case` or `control`).
        truth: Planted signal as JSON values.
    """

    events: pd.DataFrame
    labels: pd.DataFrame
    truth: Mapping[str, Any]


def generate(spec: CohortSpec) -> Cohort:
    """Generate a cohort; equal specs give equal cohorts."""
    rng = np.random.default_rng(spec.seed)
    is_case = rng.permutation(np.arange(spec.n_patients) % 2 == 1)
    orders = _orders(spec, is_case, rng)
    first = rng.integers(0, _N_CLASSES, len(orders.names))
    second = (first + rng.integers(1, _N_CLASSES, len(first))) % _N_CLASSES
    probability = np.where(is_case, *_SECOND_CLASS)[orders.patient]
    has_second = np.flatnonzero(rng.random(len(orders.code)) < probability)
    order = np.concatenate([np.arange(len(orders.code)), has_second])
    drug_class = np.concatenate([first[orders.code], second[orders.code[has_second]]])
    names = (*orders.names, *(f"CLASS//{i:02d}" for i in range(_N_CLASSES)), LEAK)
    index_day = rng.integers(0, 365, spec.n_patients).astype("timedelta64[D]")
    prediction_time = np.datetime64("2015-01-01", "us") + index_day
    before = rng.integers(1, _SECONDS, len(orders.code))

    cases = np.flatnonzero(is_case)
    patient = np.concatenate([orders.patient, orders.patient[order], cases])
    leaks = np.full(len(cases), len(names) - 1)
    code = np.concatenate([orders.code, len(orders.names) + drug_class, leaks])
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
            # MEDS stores single precision, so all values are rounded accordingly.
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
    if spec.first is not None:
        events, labels = (table[table["patient_id"] < spec.first] for table in (events, labels))
    truth = {
        "aggregation": spec.family,
        "main_codes": [name for name in orders.names if name.startswith("MAIN//")],
        "rare_codes": [name for name in orders.names if name.startswith("RARE//S")],
        "leak": LEAK,
        "options": asdict(spec),
    }
    return Cohort(events, labels, truth)


Cases = NDArray[np.bool_]
"""Whether each patient is a case, shape (patients,)."""


class _Orders(NamedTuple):
    """Orders of medications.

    Attributes:
        names: Codes of the medications.
        code: Position of each order's code in `names`, shape (orders,).
        patient: Patient of each order, shape (orders,).
        value: Amount of each order, shape (orders,).
    """

    names: tuple[str, ...]
    code: NDArray[np.int64]
    patient: NDArray[np.int64]
    value: NDArray[np.float64]


def _orders(spec: CohortSpec, is_case: Cases, rng: Generator) -> _Orders:
    """Draw all orders; common medications raise the mean numbers to those of Table 3.

    Numbers of orders distinguish the classes only through their means. Every patient orders at
    least one common medication. The frequencies of common medications follow Zipf's law.
    """
    family, planted = spec.family, list[_Orders]()
    for i in range(_MAIN_CODES):
        name = f"MAIN//{family}{i}"
        planted.append(_family_code(family, name, is_case, _STRENGTH[family], rng))
    for other in FAMILIES:
        if other != family:
            planted.append(_family_code(other, f"DECOY//{other}0", is_case, 0.0, rng))
    planted.append(_rare_signal(spec.rare_cover, is_case, rng))
    counts = rng.choice([1, 2, 3, 4], spec.noise_codes, p=[0.55, 0.25, 0.12, 0.08])
    code = np.repeat(np.arange(spec.noise_codes), counts)
    patient = rng.integers(0, spec.n_patients, len(code))
    names = tuple(f"RARE//{i:05d}" for i in range(spec.noise_codes))
    planted.append(_Orders(names, code, patient, rng.lognormal(3, 1, len(code))))
    patient = np.concatenate([part.patient for part in planted])
    n_planted = np.bincount(is_case[patient], minlength=2) / np.bincount(is_case)
    mean = np.maximum(np.where(is_case, *(_ORDERS - n_planted[::-1])), 1.0)
    uneven = np.minimum(np.where(is_case, *_UNEVEN), mean)
    counts = 1 + rng.negative_binomial(2, 2 / (1 + uneven)) + rng.poisson(mean - uneven)
    total = int(counts.sum())
    weights = 1 / np.arange(1, len(_MEDICATIONS) + 1) ** 1.05
    code = rng.choice(len(_MEDICATIONS), total, p=weights / weights.sum())
    patient = np.repeat(np.arange(len(mean)), counts)
    parts = [_Orders(_MEDICATIONS, code, patient, rng.lognormal(3, 1, total)), *planted]
    first = np.cumsum([0, *(len(part.names) for part in parts)])
    return _Orders(
        tuple(name for part in parts for name in part.names),
        np.concatenate([part.code + n for part, n in zip(parts, first, strict=False)]),
        np.concatenate([part.patient for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


def _family_code(
    family: Family, name: str, is_case: Cases, strength: float, rng: Generator
) -> _Orders:
    """Draw orders of code `name` such that only the aggregation `family` depends on the class.

    `is_case` has shape (patients,). A `strength` of 0 gives no signal.
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
    return _Orders((name,), np.zeros(len(patient), dtype=np.int64), patient, value)


def _rare_signal(cover: float, is_case: Cases, rng: Generator) -> _Orders:
    """Draw rare codes, each ordered by five patients that are mostly of one class.

    The class alternates from code to code. `cover` is the mean number of codes per patient;
    `is_case` has shape (patients,).
    """
    n_codes = round(cover * len(is_case) / _RARE_FREQUENCY)
    cases, controls = np.flatnonzero(is_case), np.flatnonzero(~is_case)
    patient = np.empty((n_codes, _RARE_FREQUENCY), dtype=np.int64)
    left = np.arange(n_codes)
    while len(left):
        shape = (len(left), _RARE_FREQUENCY)
        from_cases = (left[:, None] % 2 == 0) ^ (rng.random(shape) > _RARE_PURITY)
        drawn = np.where(from_cases, rng.choice(cases, shape), rng.choice(controls, shape))
        patient[left] = drawn
        left = left[  # redraw the patients of codes in which a patient occurs twice
            (np.diff(np.sort(drawn, axis=1), axis=1) == 0).any(axis=1)
        ]
    names = tuple(f"RARE//S{i:05d}" for i in range(n_codes))
    code = np.repeat(np.arange(n_codes), _RARE_FREQUENCY)
    return _Orders(names, code, patient.ravel(), rng.lognormal(3, 1, patient.size))


LABELS = "labels/case"
"""Folder of the labels."""

_COLUMNS = {
    "patient_id": "subject_id",
    "timestamp": "time",
    "event_id": "code",
    "value": "numeric_value",
    "label": "categorical_value",
}


def write_meds(cohort: Cohort, name: str, folder: Path) -> None:
    """Write a cohort as the MEDS data set `name`, creating the folder if missing."""
    is_case = (cohort.labels["label"] == "case").to_numpy()
    by_class = cohort.labels.groupby("label")["patient_id"]
    is_last = by_class.cumcount() >= (0.8 * by_class.transform("size")).round()
    kinds = {"event_id": str, "value": np.float32}
    events = cohort.events.astype(kinds).rename(columns=_COLUMNS)
    labels = cohort.labels.rename(columns=_COLUMNS).assign(boolean_value=is_case)
    split = np.where(is_last, "held_out", "train")
    splits = pd.DataFrame({"subject_id": labels["subject_id"], "split": split})
    codes = pd.DataFrame({"code": cohort.events["event_id"].cat.categories, "description": ""})
    files = {
        "data/0.parquet": events,
        f"{LABELS}/0.parquet": labels,
        "metadata/subject_splits.parquet": splits,
        "metadata/codes.parquet": codes,
    }
    for path, frame in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(folder / path, index=False)
    about = {"dataset_name": name, "etl_name": "prefect-tune cohort", "meds_version": "0.4.0"}
    (folder / "metadata" / "dataset.json").write_text(json.dumps(about, indent=2))
    (folder / "truth.json").write_text(json.dumps(cohort.truth, indent=2))
