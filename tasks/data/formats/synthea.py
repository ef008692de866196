"""CSV exports of Synthea as events.

Each row of a table becomes an event with the row's code, as in `CONDITION//444814009`. The value of
an event is the observed value for observations, the number of dispenses for medications, and the
quantity for supplies. The code of an imaging study contains the modality and body site:
`IMAGING//CT//51185008`. The patient table yields static events for gender, race and ethnicity,
`MEDS_BIRTH` and `MEDS_DEATH`. Data that become known only later, such as the end of an encounter,
are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.data.event_tables import event_frame
from prefect_tune.tasks.data.files import columns_called, read_table
from prefect_tune.tasks.data.formats.format import Format
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.schema import utc_times


@dataclass(frozen=True, slots=True)
class _Clinical:
    """A table whose rows are events.

    Attributes:
        prefix: Prefix of the table's codes.
        value: Column of values; empty if the table has no values.
        codes: Columns whose values form the code.
    """

    prefix: str
    value: str = ""
    codes: tuple[str, ...] = ("code",)


_CLINICAL: Mapping[str, _Clinical] = {
    "conditions": _Clinical("CONDITION"),
    "medications": _Clinical("DRUG", "dispenses"),
    "procedures": _Clinical("PROCEDURE"),
    "observations": _Clinical("OBSERVATION", "value"),
    "encounters": _Clinical("ENCOUNTER"),
    "immunizations": _Clinical("IMMUNIZATION"),
    "allergies": _Clinical("ALLERGY"),
    "careplans": _Clinical("CAREPLAN"),
    "devices": _Clinical("DEVICE"),
    "supplies": _Clinical("SUPPLY", "quantity"),
    "imaging_studies": _Clinical("IMAGING", codes=("modality_code", "bodysite_code")),
}
_TABLES = {"patients", *_CLINICAL}
_AS_TEXTS = {"patient", "id"}.union(*(clinical.codes for clinical in _CLINICAL.values()))
_STATIC = ("gender", "race", "ethnicity")
_STARTS = ("start", "date")
"""Names of the time column in different versions of Synthea."""


def _read(folder: Location) -> Iterator[pd.DataFrame]:
    found = folder.tables(_TABLES)
    yield from _patients(found["patients"])
    for name, clinical in _CLINICAL.items():
        if name in found:
            yield from _events(found[name], clinical)


def _patients(location: Location) -> Iterator[pd.DataFrame]:
    for table in _tables(location, ("id", "birthdate", "deathdate", *_STATIC)):
        for needed in ("id", "birthdate"):
            need_column(needed, table.columns, location.url)
        for name in _STATIC:
            if name in table:
                codes = f"{name.upper()}//" + table[name].astype("string")
                yield event_frame(table["id"], None, codes).dropna(subset="code")
        for name, code in (("birthdate", "MEDS_BIRTH"), ("deathdate", "MEDS_DEATH")):
            if name in table:
                times = utc_times(table[name], location.url, at_end_of_day=name == "deathdate")
                yield event_frame(table["id"], times, code).dropna(subset="time")


def _events(location: Location, clinical: _Clinical) -> Iterator[pd.DataFrame]:
    for table in _tables(location, ("patient", *clinical.codes, clinical.value, "units", *_STARTS)):
        start = next((name for name in _STARTS if name in table), _STARTS[0])
        for needed in ("patient", *clinical.codes, start):
            need_column(needed, table.columns, location.url)
        times = utc_times(table[start], location.url, at_end_of_day=True)
        if times.isna().any():
            raise BadInput(f"{location.url} has {int(times.isna().sum())} rows without {start}")
        codes = pd.Series(clinical.prefix, index=table.index, dtype="string")
        for column in clinical.codes:
            codes += "//" + table[column].astype("string")
        value = table.get(clinical.value, np.nan)
        unit = {"unit": table["units"]} if "units" in table else {}
        # In older versions, population-level observations such as QALYs have no code.
        yield event_frame(table["patient"], times, codes, value, **unit).dropna(subset="code")


def _tables(location: Location, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    for shard in shards(location):
        texts = columns_called(shard, _AS_TEXTS)
        table = read_table(shard, texts, only=set(columns) - {""})
        table.columns = table.columns.str.lower()
        yield table


SYNTHEA = Format(
    name="synthea",
    description="a CSV export of Synthea",
    kind="events",
    recognizes=lambda given: (
        given.is_folder
        and "patients" in (found := given.location.tables(_TABLES))
        and len(found) > 1
    ),
    read=lambda folder, _: _read(folder),
    folder_holds="patients.csv and others of Synthea, such as conditions.csv",
    tables=frozenset(_TABLES),
)
