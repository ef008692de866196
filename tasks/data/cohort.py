"""Synthetic patient cohorts with a planted truth, for demonstrations and tests.

Patients order medications; each order is an event of the medication and of its drug class, with a
value. Cases order slightly more of everything, but the signal is in a few main codes. The signal
has one of four families: presence, number, total or average value of orders. Each family needs a
different feature construction. Options also plant rare codes with or without a signal, two codes
that are informative only as a pair, and a code that leaks the class after the prediction time.

The shape of the data follows Table 3 of FLASH (Zhang et al., KDD 2016). A cohort is named by
`cohort:NAME?option=value`, and can be written as a MEDS 0.4 folder: events in `data/` with a
stratified fifth of the patients held out, labels in `labels/case`, the truth in `truth.json`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.cohort_orders import (
    FAMILIES,
    STRENGTH,
    Family,
    Orders,
    common,
    family_code,
    rare_noise,
    rare_signal,
    xor_pair,
)


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """Options of a cohort.

    Attributes:
        n_patients: Rows, half of them cases.
        seed: Source of all randomness.
        family: Aggregation of the main codes that separates the classes.
        strength: Strength of the signal; 0 for no signal. None takes the family's default, at which
            no other aggregation comes near.
        main_codes: Codes that carry the signal.
        decoys: Codes of each other family, without signal.
        rare_cover: Mean number of informative rare codes per patient.
        rare_frequency: Number of patients that have each rare code.
        rare_purity: Probability that a patient with a rare code is of the code's class.
        noise_codes: Uninformative codes of 1 to 4 orders.
        xor: Share of patients, 0 to 1, whose class follows from a pair of codes: cases have exactly
            one of the two.
        leak: Whether every case has a code after its prediction time.
        first: Number of patients to keep, the first ones; None for all. A larger number keeps the
            same patients and adds others.

    Raises:
        UnknownName: If the family is not one of the four.
        BadInput: If a value is out of bounds.
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
    first: int | None = None

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
            "first": (30, self.n_patients),
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
        BadInput: If the value of an option is invalid.
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


_YES_OR_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_OF_TYPES: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    int | None: (int, "a whole number"),
    bool: (lambda text: _YES_OR_NO[text.lower()], "yes or no"),
    Family: (str, "a name"),
}
_PARSERS = {f.name: _OF_TYPES.get(f.type, (float, "a number")) for f in fields(CohortSpec)}
"""For each option, the function that parses its value, and a name of the values for messages."""
_FOR_TESTS = ("decoys", "rare_cover", "rare_frequency", "rare_purity", "xor", "leak")
"""Options that documentation and messages do not mention."""


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


@dataclass(frozen=True)
class Cohort:
    """Events, labels and the planted truth.

    Attributes:
        events: Columns patient_id, timestamp, event_id (categorical), value; by patient and time.
        labels: Columns patient_id, prediction_time, label (`case` or `control`).
        truth: The planted signal and the construction that sees it best, as JSON values.
    """

    events: pd.DataFrame
    labels: pd.DataFrame
    truth: Mapping[str, Any]


def generate(spec: CohortSpec) -> Cohort:
    """Generate a cohort, always the same for a spec; the leak does not change other events."""
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
    return Cohort(events, labels, _truth(spec, orders.names))


def _orders(spec: CohortSpec, is_case: NDArray[np.bool_], rng: Generator) -> Orders:
    """Draw all orders; common medications make up the difference to the rates of Table 3."""
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
    orders: Orders, is_case: NDArray[np.bool_], rng: Generator
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Return all codes (of orders first, the leak last), and drug class and order of each event."""
    first = rng.integers(0, _N_CLASSES, len(orders.names))
    second = (first + rng.integers(1, _N_CLASSES, len(first))) % _N_CLASSES
    probability = np.where(is_case, *_SECOND_CLASS)[orders.patient]
    has_second = np.flatnonzero(rng.random(len(orders.code)) < probability)
    order = np.concatenate([np.arange(len(orders.code)), has_second])
    drug_class = np.concatenate([first[orders.code], second[orders.code[has_second]]])
    names = (*orders.names, *(f"CLASS//{i:02d}" for i in range(_N_CLASSES)), LEAK)
    return names, drug_class, order


def _truth(spec: CohortSpec, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the planted truth, as JSON values.

    A training fold has fewer rows of a rare code, so the lowest threshold loses the fewest codes.
    The highest threshold best drops uninformative rare codes. If many rare codes are each weak but
    nearly certain, models of independent columns sum them up best; these take dense matrices.
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


LABELS = "labels/case"
"""Place of the labels in the folder."""

_TIME = pa.timestamp("us")
_DATA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", _TIME),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
    ]
)
_LABEL = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("prediction_time", _TIME, nullable=False),
        pa.field("boolean_value", pa.bool_()),
        pa.field("categorical_value", pa.string()),
    ]
)
_SPLIT = pa.schema([("subject_id", pa.int64()), ("split", pa.string())])
_CODES = pa.schema([("code", pa.string()), ("description", pa.string())])
_COLUMNS = {
    "patient_id": "subject_id",
    "timestamp": "time",
    "event_id": "code",
    "value": "numeric_value",
    "label": "categorical_value",
}
_KINDS = {
    "MED": "common medication",
    "MAIN": "medication that tells the class by its",
    "DECOY": "medication that tells nothing, like one that would by its",
    "RARE": "rare medication",
    "XOR": "medication of a pair that together tells the class",
    "CLASS": "drug class",
    "AFTER": "after the prediction time:",
}


def write_meds(cohort: Cohort, name: str, folder: Path) -> None:
    """Write a cohort to a folder as the data set `name`; a missing folder is created."""
    is_case = (cohort.labels["label"] == "case").to_numpy()
    split = _splits(is_case)
    events = cohort.events.rename(columns=_COLUMNS)
    for part in np.unique(split):
        rows = split[events["subject_id"].to_numpy()] == part
        _write(events[rows], _DATA, folder / "data" / part / "0.parquet")
    labels = cohort.labels.rename(columns=_COLUMNS).assign(boolean_value=is_case)
    _write(labels, _LABEL, folder / LABELS / "0.parquet")
    metadata = folder / "metadata"
    splits = pd.DataFrame({"subject_id": labels["subject_id"], "split": split})
    _write(splits, _SPLIT, metadata / "subject_splits.parquet")
    codes = pd.DataFrame({"code": events["code"].cat.categories})
    parts = (code.partition("//") for code in codes["code"])
    described = codes.assign(description=[f"{_KINDS[kind]} {name}" for kind, _, name in parts])
    _write(described, _CODES, metadata / "codes.parquet")
    about = {"dataset_name": name, "etl_name": "prefect-tune cohort", "meds_version": "0.4.0"}
    (metadata / "dataset.json").write_text(json.dumps(about, indent=2))
    (folder / "truth.json").write_text(json.dumps(cohort.truth, indent=2))


def _splits(is_case: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Hold out the last fifth of the cases and of the controls, shape (patients,)."""
    split = np.full(len(is_case), "train", dtype="<U8")
    for members in (np.flatnonzero(is_case), np.flatnonzero(~is_case)):
        split[members[round(0.8 * len(members)) :]] = "held_out"
    return split


def _write(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False), path)
