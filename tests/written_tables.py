"""One random typed table, and the forms in which programs and people write it.

A form is a function of a table and a folder that returns a file, or the table as a DataFrame. To
add one, add it to `FORMS`: each must be read as the plain CSV file, or be refused with a remedy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import checked_frame, frame_dataset

Form = Callable[["TypedTable", Path], "Path | pd.DataFrame"]
WORDS = np.array(["red", "grün", "blue; dark", "a, b", 'say "no"', "tall|short"])


@dataclass(frozen=True)
class TypedTable:
    """A table and the numbers of decimals that its columns of numbers have."""

    frame: pd.DataFrame
    decimals: dict[str, int]

    @classmethod
    def random(cls, seed: int) -> "TypedTable":
        """Numbers of several sizes with and without gaps, words, days, and a target."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(60, 200))
        decimals = {"first": 2} | {f"n{i}": int(rng.integers(0, 5)) for i in range(rng.integers(4))}
        columns: dict[str, object] = {}
        for name, digits in decimals.items():
            low = -1 if rng.random() < 0.5 else 0
            numbers = (rng.uniform(low, 1, n) * 10.0 ** rng.integers(2, 7)).round(digits)
            gaps = rng.random(n) < rng.choice([0, 0.1])
            columns[name] = np.where(gaps, np.nan, numbers) + 0.0
        columns["word"] = rng.choice(WORDS, n)
        columns["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), "D")
        target = rng.choice(["no", "yes"], n)
        if rng.random() < 0.5:
            decimals, target = decimals | {"y": 2}, (rng.normal(size=n) * 1000).round(2)
        columns["y"] = target
        return cls(pd.DataFrame(columns), decimals)

    def written(self, number: Callable[[float, int], str]) -> pd.DataFrame:
        """The table with its numbers as texts, and gaps as None."""
        frame = self.frame.copy()
        for name, digits in self.decimals.items():
            texts = [None if np.isnan(x) else number(x, digits) for x in self.frame[name]]
            frame[name] = pd.Series(texts, dtype=object)
        return frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d"))


def marked(decimal: str, thousands: str = "") -> Callable[[float, int], str]:
    """Return how a number is written with these marks."""
    marks = str.maketrans({".": decimal, ",": thousands})
    return lambda number, digits: f"{number:,.{digits}f}".translate(marks)


def around(text: str, number: Callable[[float, int], str]) -> Callable[[float, int], str]:
    """Return how a number is written with signs around its size, such as `-$#` or `(#)`."""
    positive, _, negative = text.partition(" or ")
    return lambda x, digits: (
        (negative or f"-{positive}") if x < 0 else positive
    ).replace("#", number(abs(x), digits))  # fmt: skip


PLAIN = marked(".")
NUMBERS: dict[str, Callable[[float, int], str]] = {
    "points": PLAIN,
    "decimal commas": marked(","),
    "commas for thousands": marked(".", ","),
    "points for thousands": marked(",", "."),
    "blanks for thousands": marked(".", " "),
    "narrow blanks and commas": marked(",", "\u202f"),
    "hard blanks": marked(".", "\u00a0"),
    "apostrophes": marked(".", "'"),
    "typographic apostrophes": marked(".", "\u2019"),
    "dollars": around("$#", marked(".", ",")),
    "euros after": around("# €", marked(",", ".")),
    "pounds": around("£#", PLAIN),
    "a code before": around("CHF # or CHF -#", marked(".", "'")),
    "a code after": around("# EUR", marked(",")),
    "percent": around("#%", PLAIN),
    "percent after a blank": around("# %", marked(",")),
    "a unit": around("# mg/dL", PLAIN),
    "a unit with a digit": around("# kg/m2", marked(".", ",")),
    "parentheses": around("# or (#)", PLAIN),
    "parentheses and dollars": around("$# or ($#)", marked(".", ",")),
    "minus after": around("# or #-", PLAIN),
    "typographic minus": around("# or \u2212#", PLAIN),
    "plus": around("+# or -#", PLAIN),
    "blanks around": around("  # or  -# ", marked(".", ",")),
}


def as_text(
    table: TypedTable,
    folder: Path,
    *,
    number: Callable[[float, int], str] = PLAIN,
    separator: str = ",",
    encoding: str = "utf-8",
    name: str = "t.csv",
) -> Path:
    text = table.written(number).to_csv(index=False, sep=separator)
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


FORMS: dict[str, Form] = {
    **{f"quoted, {name}": partial(as_text, number=one) for name, one in NUMBERS.items()},
    "semicolons": partial(as_text, separator=";", number=marked(",")),
    "semicolons and groups": partial(as_text, separator=";", number=marked(",", ".")),
    "tabs": partial(as_text, separator="\t", name="t.tsv", number=marked(",", ".")),
    "tabs of Excel": partial(
        as_text, separator="\t", name="t.txt", encoding="utf-16", number=marked(",")
    ),
    "pipes": partial(as_text, separator="|", number=marked(",")),
    "Windows": partial(as_text, encoding="cp1252", number=around("# €", PLAIN)),
    "frame of plain texts": lambda table, _: table.written(PLAIN),
    "frame of texts": lambda table, _: table.written(NUMBERS["euros after"]),
    "frame of strings": lambda table, _: table.written(NUMBERS["dollars"]).astype("string"),
    "frame of Arrow strings": lambda table, _: table.written(NUMBERS["a unit"]).astype(
        "string[pyarrow]"
    ),
}


def read(data: Path | pd.DataFrame) -> Dataset:
    if isinstance(data, pd.DataFrame):
        return frame_dataset(Source("", target="y"), checked_frame(data))
    return read_source(Source(str(data), "y"))


def facts(data: Path | pd.DataFrame) -> tuple[list[tuple[str, str]], str, list[str]]:
    """Columns with kinds, the digest, and the notes but those on the form."""
    found = read(data)
    assert found.row_reader is not None
    kinds = [(column.name, column.kind) for column in found.row_reader.columns]
    about = ("is read with", ": read as numbers")
    notes = [note for note in found.notes if not any(words in note for words in about)]
    return kinds, found.digest(), sorted(notes)


def differences(seed: int, folder: Path) -> Iterator[str]:
    """Yield each form in which a random table is silently another one."""
    table = TypedTable.random(seed)
    expected = facts(table.frame)
    for name, form in FORMS.items():
        try:
            found = facts(form(table, folder))
        except BadInput as refusal:
            if not (refusal.remedy and "row" in str(refusal)):
                yield f"table {seed}, {name}: {refusal}"
            continue
        if found != expected:
            yield f"table {seed}, {name}: {found} instead of {expected}"
