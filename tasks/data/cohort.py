"""Synthetic patient cohorts with a planted truth, for demonstrations and tests.

Patients order medications; each order is an event of the medication and of its drug class, with a
value. Cases order slightly more of everything, but the signal is in a few main codes. The signal
has one of four families: presence, number, total or average value of orders. Each family needs a
different feature construction. Rare codes have a signal or none, and a code after the prediction
time leaks the class.

The shape of the data follows Table 3 of FLASH (Zhang et al., KDD 2016). A cohort is named by
`cohort:NAME?option=value`, and can be written as a MEDS 0.4 folder: events in `data/`, splits with
a stratified fifth of the patients held out, labels in `labels/case`, the truth in `truth.json`.
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
"""Strength at which the planted aggregation is clearly the best one."""
_MAIN_CODES = 6
"""Codes that carry the signal."""
_Patients = Annotated[int, msgspec.Meta(ge=30, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """Options of a cohort.

    Attributes:
        n_patients: Rows, half of them cases.
        seed: Source of all randomness.
        family: Aggregation of the main codes that separates the classes.
        rare_cover: Mean number of informative rare codes per patient.
        noise_codes: Uninformative codes of 1 to 4 orders.
        first: Number of patients to keep, the first ones; None for all. A larger number keeps the
            same patients and adds others.
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
"""The cohorts that `cohort:NAME` knows."""


def cohort_named(text: str) -> CohortSpec:
    """Return the cohort that `NAME?option=value&option=value` stands for.

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
"""Code that every case has after its prediction time."""

_ORDERS = (23.4, 15.35)
"""Orders of a case and of a control (Table 3, medications per patient)."""
_UNEVEN = (12.4, 4.6)
"""Part of these orders, at most, whose number varies widely between patients."""
_SECOND_CLASS = (0.262, 0.177)
"""Orders of a case and of a control that are of a second drug class (Table 3)."""
_N_CLASSES = 80
_SECONDS = 4 * 365 * 86_400
"""Seconds that events reach back from the prediction time."""
_LEAK_DELAY = np.timedelta64(30, "D")


_MEDICATIONS = tuple(f"MED//{i:03d}" for i in range(300))
"""The common medications, the most frequent first."""
_RARE_FREQUENCY, _RARE_PURITY = 5, 0.95
"""Patients with each informative rare code, and the probability that one is of the code's class."""


@dataclass(frozen=True)
class Cohort:
    """Events, labels and the planted truth.

    Attributes:
        events: Columns patient_id, timestamp, event_id (categorical), value; by patient and time.
        labels: Columns patient_id, prediction_time, label (`case` or `control`).
        truth: The planted signal, as JSON values.
    """

    events: pd.DataFrame
    labels: pd.DataFrame
    truth: Mapping[str, Any]


def generate(spec: CohortSpec) -> Cohort:
    """Generate a cohort, always the same for a spec."""
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
            # MEDS stores single precision, so all values are rounded to it.
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
        names: The codes that are ordered.
        code: Position in `names` of each order, shape (orders,).
        patient: Patient of each order, shape (orders,).
        value: Amount of each order, shape (orders,).
    """

    names: tuple[str, ...]
    code: NDArray[np.int64]
    patient: NDArray[np.int64]
    value: NDArray[np.float64]


def _orders(spec: CohortSpec, is_case: Cases, rng: Generator) -> _Orders:
    """Draw all orders; common medications make up the difference to the rates of Table 3.

    The numbers of orders tell the classes apart only as far as their means differ. At least one
    order of a patient is common, and codes of common orders follow Zipf's law.
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
    return _Orders((name,), np.zeros(len(patient), dtype=np.int64), patient, value)


def _rare_signal(cover: float, is_case: Cases, rng: Generator) -> _Orders:
    """Draw codes that exactly five patients have, mostly of one class; classes alternate.

    `cover` is the mean number of codes per patient. Classes have shape (patients,).
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
        left = left[  # codes with a patient twice are drawn anew
            (np.diff(np.sort(drawn, axis=1), axis=1) == 0).any(axis=1)
        ]
    names = tuple(f"RARE//S{i:05d}" for i in range(n_codes))
    code = np.repeat(np.arange(n_codes), _RARE_FREQUENCY)
    return _Orders(names, code, patient.ravel(), rng.lognormal(3, 1, patient.size))


LABELS = "labels/case"
"""Place of the labels in the folder."""

_COLUMNS = {
    "patient_id": "subject_id",
    "timestamp": "time",
    "event_id": "code",
    "value": "numeric_value",
    "label": "categorical_value",
}


def write_meds(cohort: Cohort, name: str, folder: Path) -> None:
    """Write a cohort to a folder as the data set `name`; a missing folder is created."""
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
