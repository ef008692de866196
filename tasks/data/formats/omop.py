"""OMOP CDM 5.3 tables as events.

Each row of a clinical table becomes an event whose code names the row's concept: `DRUG//1118084`.
If a row has no standard concept (concept 0), its code names the source value:
`DRUG//SOURCE//0093-1059`. The person table yields static events for gender, race and ethnicity, and
`MEDS_BIRTH`; the death table yields `MEDS_DEATH`. Eras are skipped because they are derived from
other tables. Data that become known only later, such as the end of a visit, are also skipped.

`concept` describes the codes, and `concept_ancestor` lists their ancestors. The code of an ancestor
begins with the prefix of the same table or of the ancestor's domain, as in `DRUG//21601238`, or
with `CONCEPT` if no event table belongs to the domain. Names of tables and columns may be
uppercase.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.data.code_table import code_table
from prefect_tune.tasks.data.event_tables import event_frame
from prefect_tune.tasks.data.files import (
    columns_called,
    read_pieces,
    read_table,
)
from prefect_tune.tasks.data.formats.format import CodeTable, Format
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.schema import Times, end_of_day, utc_times


@dataclass(frozen=True, slots=True)
class _Clinical:
    """A table whose rows are events.

    Attributes:
        table: Name of the table.
        of: Prefix of the table's columns, as in `<of>_concept_id`; in uppercase, the prefix of the
            table's codes.
        date: Date column; appending `time` gives the name of the time column.
        numbers: Columns that may contain the value, in order of preference. `value_as_number` is
            always used. Among the other columns, the first column with a nonzero value is used,
            because a column of zeros means that amounts are unknown.
    """

    table: str
    of: str
    date: str
    numbers: tuple[str, ...] = ()


_CLINICAL = (
    _Clinical("condition_occurrence", "condition", "condition_start_date"),
    _Clinical("drug_exposure", "drug", "drug_exposure_start_date", ("quantity", "days_supply")),
    _Clinical("procedure_occurrence", "procedure", "procedure_date", ("quantity",)),
    _Clinical("device_exposure", "device", "device_exposure_start_date", ("quantity",)),
    _Clinical("measurement", "measurement", "measurement_date", ("value_as_number",)),
    _Clinical("observation", "observation", "observation_date", ("value_as_number",)),
    _Clinical("visit_occurrence", "visit", "visit_start_date"),
)
_STATIC = ("gender", "race", "ethnicity")
_TABLES = {clinical.table for clinical in _CLINICAL} | {"person", "death"}
_CODE_TABLES = ("concept", "concept_ancestor")
_AS_TEXTS = ("person_id", "_source_value", "_date", "_datetime")
"""Suffixes of columns that are read as strings from CSV files, to keep their exact values."""
_CODE = re.compile(r"([A-Z]+)//([1-9]\d*)(?://(?:([1-9]\d{0,17})|(.+)))?")
"""Pattern of a code: prefix, concept and, if present, an answer or unit as a concept or string."""
_DOMAINS = {clinical.of.upper() for clinical in _CLINICAL} | {of.upper() for of in _STATIC}
_VALUE = "value_as_number"
_MORE = {
    "answer": ("value_as_concept_id", "value_as_string"),
    "unit": ("unit_concept_id", "unit_source_value"),
}
"""Columns that refine codes: a concept or, if missing, the string of the source."""


def _read(folder: Location) -> Iterator[pd.DataFrame]:
    """Yield the events of each table, with the columns of `event_frame`."""
    found = folder.tables(_TABLES)
    if "person" in found:
        yield from _persons(found["person"])
    for clinical in _CLINICAL:
        if clinical.table in found:
            yield from _clinical(found[clinical.table], clinical)
    if "death" in found:
        for table in _tables(found["death"], "death_date", ()):
            times = _times(table, "death_date", found["death"].url)
            yield event_frame(table["person_id"], times, "MEDS_DEATH")


def _clinical(location: Location, clinical: _Clinical) -> Iterator[pd.DataFrame]:
    concept, source = f"{clinical.of}_concept_id", f"{clinical.of}_source_value"
    columns = (concept, source, *clinical.numbers, *chain(*_MORE.values()))
    tables: Iterable[pd.DataFrame] = _tables(location, clinical.date, columns)
    number = _VALUE
    if clinical.numbers and number not in clinical.numbers:
        tables = list(tables)  # all parts of a table must use the same column
        amounts = (
            name
            for name in clinical.numbers
            for table in tables
            if name in table and (pd.to_numeric(table[name], errors="coerce").fillna(0) != 0).any()
        )
        number = next(amounts, "")
    for table in tables:
        need_column(concept, table.columns, location.url)
        value = pd.to_numeric(table[number], errors="coerce") if number in table else np.nan
        more = {name: pd.Series(pd.NA, table.index, dtype="string") for name in _MORE}
        for name, (of_concept, text) in _MORE.items():
            if text in table:
                more[name] = table[text].astype("string")
            if of_concept in table:
                concepts = _whole(table[of_concept], location.url).fillna(0)
                more[name] = more[name].mask(concepts != 0, concepts.astype("string"))
        codes = _codes(table, clinical.of, location.url)
        times = _times(table, clinical.date, location.url)
        yield event_frame(table["person_id"], times, codes, value, **more)


def _tables(location: Location, date: str, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    needed = {"person_id", date, f"{date}time", *columns}
    for shard in shards(location):
        texts = columns_called(shard, [n for n in needed if n.endswith(_AS_TEXTS)])
        table = read_table(shard, texts, only=needed)
        table.columns = table.columns.str.lower()
        need_column("person_id", table.columns, location.url)
        yield table


def _persons(location: Location) -> Iterator[pd.DataFrame]:
    columns = ["year_of_birth", "month_of_birth", "day_of_birth"]
    kinds = [f"{of}_{what}" for of in _STATIC for what in ("concept_id", "source_value")]
    for table in _tables(location, "birth_date", [*columns, *kinds]):
        for of in _STATIC:
            if f"{of}_concept_id" in table:
                codes = _codes(table, of, location.url)
                known = codes != f"{of.upper()}//0"
                yield event_frame(table["person_id"], None, codes)[known]
        exact = table.get("birth_datetime", pd.Series(pd.NaT, index=table.index))
        births = utc_times(exact.rename("birth_datetime"), location.url, at_end_of_day=False)
        if "year_of_birth" in table or "birth_datetime" not in table:
            need_column("year_of_birth", table.columns, location.url)
            built = _whole(table["year_of_birth"], location.url).astype("string")
            for name in ("month_of_birth", "day_of_birth"):  # by default, January 1
                part = table.get(name, pd.Series(1, index=table.index))
                built += "-" + _whole(part, location.url).fillna(1).astype("string").str.zfill(2)
            built = built.rename("year_of_birth")
            births = births.fillna(utc_times(built, location.url, at_end_of_day=False))
        yield event_frame(table["person_id"], births, "MEDS_BIRTH").dropna(subset="time")


def _codes(table: pd.DataFrame, of: str, where: str) -> pd.Series:
    """Return the code of each row's concept; without a concept, the code names the source value."""
    concepts = _whole(table[f"{of}_concept_id"], where).fillna(0)
    codes = f"{of.upper()}//" + concepts.astype("string")
    if f"{of}_source_value" in table:
        texts = table[f"{of}_source_value"].astype("string")
        codes = codes.mask((concepts == 0) & texts.notna(), f"{of.upper()}//SOURCE//" + texts)
    return codes


def _whole(column: pd.Series, where: str) -> pd.Series:
    """Return a column of integers, which a file may store as floats."""
    numbers = pd.to_numeric(column, errors="coerce")
    bad = column[column.notna() & ~(numbers % 1 == 0).fillna(value=False)]
    if len(bad):
        raise BadInput(
            f"{where} has {str(bad.iloc[0])!r} in column {column.name!r}, which must hold whole "
            "numbers"
        )
    return numbers.astype("Int64")


def _times(table: pd.DataFrame, date: str, where: str) -> pd.Series:
    """Return the time of each row, or the end of the day if a row has only a date.

    The CDM writes unknown times as midnight, so a time at midnight counts as a date.
    """
    given = [name for name in (f"{date}time", date) if name in table]
    if not given:
        raise BadInput(f"{where} has no column {date!r}")
    parsed = [Times.of(table[name], where) for name in given]
    times = parsed[0].utc.fillna(parsed[-1].utc)
    is_midnight = parsed[0].is_midnight.where(parsed[0].utc.notna(), parsed[-1].is_midnight)
    missing = int(times.isna().sum())
    if missing:
        raise BadInput(f"{where} has {missing} rows without {' or '.join(given)}")
    return end_of_day(times, is_midnight)


def _read_codes(folder: Location, codes: Sequence[str]) -> CodeTable:
    found = folder.tables(_CODE_TABLES)
    parts = {code: match.groups() for code in codes if (match := _CODE.fullmatch(code))}
    concepts = {int(n) for _, *given, _ in parts.values() for n in given if n}
    above: dict[Any, list[int]] = {}
    if "concept_ancestor" in found:
        above = _ancestors(found["concept_ancestor"], concepts)
    named = concepts.union(above, *above.values())
    names, domains = _concepts(found["concept"], named) if "concept" in found else ({}, {})

    def code_of(concept: int, prefix: str) -> str:
        if f"{prefix}//{concept}" in known:
            return f"{prefix}//{concept}"
        domain = domains.get(concept, "")
        return f"{domain if domain in _DOMAINS else 'CONCEPT'}//{concept}"

    known = set(codes)
    parents: dict[str, list[str]] = {}
    descriptions: dict[str, str] = {}
    waiting = [(code, prefix, int(concept)) for code, (prefix, concept, *_) in parts.items()]
    while waiting:
        code, prefix, concept = waiting.pop()
        if code in parents:
            continue
        higher = {code_of(each, prefix): each for each in above.get(concept, ())}
        question = f"{prefix}//{concept}"
        answer, text = parts[code][2:] if code in parts else (None, None)
        parents[code] = [*higher, *([question] if answer or text else [])]
        texts = (names.get(concept, ""), text or names.get(int(answer or 0), ""))
        descriptions[code] = ": ".join(filter(None, texts))
        waiting += [(name, name.partition("//")[0], each) for name, each in higher.items()]
        waiting += [(question, prefix, concept)] if answer or text else []
    return code_table(codes, descriptions, parents, folder.url), []


def _ancestors(location: Location, concepts: Collection[int]) -> dict[Any, list[int]]:
    """Return the ancestors of the concepts and of all ancestors."""
    columns = ["ancestor_concept_id", "descendant_concept_id"]
    wanted, n_wanted = set(concepts), -1
    found = pd.DataFrame({name: [] for name in columns}, dtype=int)
    while len(wanted) > n_wanted:  # the final pass finds pairs among the ancestors
        n_wanted, pieces = len(wanted), [found[:0]]
        for piece in _numbers(location, columns):
            is_wanted = piece[columns[1]].isin(wanted) & (piece[columns[0]] != piece[columns[1]])
            pieces.append(piece[is_wanted])
        found = pd.concat(pieces, ignore_index=True).drop_duplicates()
        wanted.update(found[columns[0]].tolist())
    return found.groupby(columns[1])[columns[0]].agg(list).to_dict()


def _concepts(
    location: Location, concepts: Collection[int]
) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return the names and domains of concepts."""
    columns = ["concept_name", "domain_id"]
    pieces = _numbers(location, ["concept_id"], columns)
    found = pd.concat([piece[piece["concept_id"].isin(concepts)] for piece in pieces])
    found = found.set_index("concept_id").reindex(columns=columns)
    names, domains = (found[column].dropna().astype(str) for column in columns)
    return names.to_dict(), domains.str.upper().to_dict()


def _numbers(
    location: Location, numbers: Sequence[str], texts: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield pieces of a vocabulary table: integer columns, and existing string columns.

    Raises:
        BadInput: If an integer column is missing or contains other values.
    """
    for shard in shards(location):
        for piece in read_pieces(shard, (*numbers, *texts)):
            piece.columns = piece.columns.str.lower()
            for name in numbers:
                need_column(name, piece.columns, location.url)
            whole = {name: _whole(piece[name], location.url) for name in numbers}
            yield (
                piece.assign(**whole)
                .dropna(subset=list(numbers))
                .astype(dict.fromkeys(numbers, np.int64))
            )


OMOP = Format(
    name="omop",
    description="tables of the OMOP common data model",
    kind="events",
    recognizes=lambda given: (
        given.is_folder and bool(given.location.tables([c.table for c in _CLINICAL]))
    ),
    read=lambda folder, _: _read(folder),
    folder_holds="tables of OMOP such as condition_occurrence",
    tables=frozenset({*_TABLES, *_CODE_TABLES}),
    read_codes=_read_codes,
)
