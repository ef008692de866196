"""Tables and event logs whose cells, headers and bytes are damaged."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flow_studies import prepare_study
from hypothesis import strategies as st
from inputs import events, table

from fuzzing.ground import REFUSALS, Ground, check_message, files_in, studies_in
from fuzzing.values import texts
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source

_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arff")
_ROWS = 60
_CELLS: Mapping[str, Any] = {
    "enormous": 10**30,
    "int64": 2**63 - 1,
    "float": 1e308,
    "infinite": float("inf"),
    "nan": float("nan"),
    "none": None,
    "text": "[/x]",
    "empty": "",
    "question": "?",
    "bytes": b"\xff\x00",
    "list": [1, [2, [3]]],
    "record": {"a": {"b": [1]}},
    "decimal": Decimal("1e20"),
    "time": pd.Timestamp("2020-01-01"),
    "ancient": "0001-01-01",
    "future": "99999-12-31",
    "zone": pd.Timestamp("2020-01-01", tz="Europe/Berlin"),
    "span": pd.Timedelta("1D"),
    "truth": True,
    "complex": "1+2j",
    "long": "x" * 5000,
    "quotes": '"',
    "comma": "a,b\n'c'",
}
"""By name: what a cell holds that no column of the inputs does."""
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0")
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp037")


@dataclass(frozen=True)
class Damaged:
    """One input of a study or of its predictions, damaged.

    Attributes:
        role: Which of them: `table`, `events`, `labels` or `new`, rows to predict.
        suffix: Of its file.
        frames: What is done to the table: an operation, a column by position, and a value.
        bytes: What is done to the bytes after that: an operation, and shares of their number.
        options: Of the command.
    """

    role: str
    suffix: str
    frames: tuple[tuple[str, int, str], ...]
    bytes: tuple[tuple[str, tuple[float, ...]], ...]
    options: Mapping[str, Any]


def damaged() -> st.SearchStrategy[Damaged]:
    """Inputs with some damage each."""
    shares = st.lists(st.floats(0, 1), min_size=1, max_size=3).map(tuple)
    cells = st.sampled_from(sorted(_CELLS))
    frames = st.tuples(st.sampled_from(sorted(_FRAMES)), st.integers(0, 6), cells | texts())
    of_bytes = st.tuples(st.sampled_from(sorted(_BYTES)), shares)
    options = st.fixed_dictionaries(
        {},
        optional={
            "drop_missing_target": st.booleans(),
            "categorical": st.sampled_from((["a"], ["count"], ["colour"], ["count", "a"])),
            "drop": st.sampled_from((["a"], ["colour"])),
            "group": st.sampled_from(("count", "colour")),
            "time": st.sampled_from(("count", "a", "prediction_time")),
            "gap": st.sampled_from(("1d", "1s")),
            "format": st.sampled_from(("table", "events")),
            "holdout": st.just(0.3),
            "space": st.sampled_from(("small", "regression")),
        },
    )
    return st.builds(
        Damaged,
        st.sampled_from(("table", "table", "events", "labels", "new")),
        st.sampled_from(_SUFFIXES),
        st.lists(frames, max_size=2).map(tuple),
        st.lists(of_bytes, max_size=2).map(tuple),
        options,
    )


def check(ground: Ground, case: Damaged) -> bool:
    """Prepare a study of the file, or read rows to predict; whether it was accepted."""
    with ground.case() as folder:
        try:
            if case.role == "new":
                training = read_source(Source(str(ground.table), target="target"))
                read_features(_written(case, table(_ROWS), folder / "new"), None, training)
            else:
                prepare_study(_parameters(ground, case, folder))
        except REFUSALS as error:
            check_message(str(error))
            assert studies_in(folder / "store") == set()
            assert files_in(folder / "store") <= {"store.json"}
            return False
        return True


def _parameters(ground: Ground, case: Damaged, folder: Path) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(OPTIONS) | {"store": str(folder / "store")}
    if case.role == "table":
        given |= {"data": _written(case, table(_ROWS), folder / "table"), "target": "target"}
        return given | {"space": "small", **case.options}
    log, labels = events()
    is_log = case.role == "events"
    written = _written(case, log if is_log else labels, folder / case.role)
    given |= {
        "data": written if is_log else str(ground.folder / "events.csv"),
        "labels": str(ground.folder / "labels.csv") if is_log else written,
    }
    kept = ("drop_missing_target", "holdout", "time", "gap")
    return given | {name: case.options[name] for name in kept if name in case.options}


def _written(case: Damaged, frame: pd.DataFrame, stem: Path) -> str:
    for name, column, value in case.frames:
        frame = _FRAMES[name](frame, column % max(1, frame.shape[1]), _CELLS.get(value, value))
    data = _encoded(frame, case.suffix, stem)
    for operation, shares in case.bytes:
        data = _BYTES[operation](data, shares)
    path = Path(f"{stem}{case.suffix}")
    path.write_bytes(data)
    return str(path)


def _encoded(frame: pd.DataFrame, suffix: str, stem: Path) -> bytes:
    if suffix == ".parquet":
        path = stem.with_suffix(".plain.parquet")
        try:
            frame.to_parquet(path, index=False)
        except (ValueError, TypeError, OverflowError, KeyError):  # Arrow's own refusals among them
            texts_alone = frame.astype(str)
            texts_alone.columns = [f"{i}{name}" for i, name in enumerate(frame.columns)]
            texts_alone.to_parquet(path, index=False)
        data = path.read_bytes()
        path.unlink()
        return data
    text = frame.to_csv(index=False)
    if suffix == ".arff":
        head, _, rows = text.partition("\n")
        kinds = ("NUMERIC" if kind.kind in "if" else "STRING" for kind in frame.dtypes)
        named = zip(head.split(","), kinds, strict=False)
        attributes = "".join(f"@ATTRIBUTE {name} {kind}\n" for name, kind in named)
        text = f"@RELATION r\n{attributes}@DATA\n{rows}"
    data = text.encode(errors="surrogatepass")
    return gzip.compress(data, mtime=0) if suffix == ".csv.gz" else data


def _with_cell(frame: pd.DataFrame, column: int, value: Any) -> pd.DataFrame:
    return _with_values(frame, column, [value, *frame.iloc[1:, column]])


def _with_values(frame: pd.DataFrame, column: int, values: list[Any]) -> pd.DataFrame:
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    if not columns or len(values) != len(frame):
        return frame
    changed = pd.Series(values, index=frame.index, dtype=object)
    columns[column] = changed.infer_objects()
    joined = pd.concat(columns, axis=1)
    joined.columns = frame.columns
    return joined


def _renamed(frame: pd.DataFrame, column: int, value: Any) -> pd.DataFrame:
    names = list(frame.columns)
    names[column : column + 1] = [str(value)]
    return frame.set_axis(names[: frame.shape[1]], axis=1)


_FRAMES: Mapping[str, Callable[[pd.DataFrame, int, Any], pd.DataFrame]] = {
    "cell": _with_cell,
    "column": lambda frame, column, value: _with_values(frame, column, [value] * len(frame)),
    "alternating": lambda frame, column, value: _with_values(
        frame, column, [value if i % 2 else i for i in range(len(frame))]
    ),
    "distinct": lambda frame, column, value: _with_values(
        frame, column, [f"{value}{i}" for i in range(len(frame))]
    ),
    "missing": lambda frame, column, _: _with_values(frame, column, [np.nan] * len(frame)),
    "all missing": lambda frame, *_: frame.assign(**dict.fromkeys(map(str, frame), np.nan)),
    "doubled": lambda frame, column, _: pd.concat([frame, frame.iloc[:, [column]]], axis=1),
    "renamed": _renamed,
    "without": lambda frame, column, _: frame.drop(columns=frame.columns[column : column + 1]),
    "one row": lambda frame, *_: frame[:1],
    "two rows": lambda frame, *_: frame[:2],
    "no rows": lambda frame, *_: frame[:0],
    "no columns": lambda frame, *_: frame.iloc[:, :0],
    "wide": lambda frame, *_: pd.concat(
        [frame, pd.DataFrame(0.5, index=frame.index, columns=[f"w{i}" for i in range(200)])], axis=1
    ),
}
"""By name: what is done to a table, given a column and a value."""


def _at(data: bytes, share: float) -> int:
    return min(int(share * len(data)), max(0, len(data) - 1))


def _flipped(data: bytes, shares: tuple[float, ...]) -> bytes:
    changed = bytearray(data)
    for share in shares if data else ():
        changed[_at(data, share)] ^= 1 << int(share * 1e6) % 8
    return bytes(changed)


def _inserted(data: bytes, shares: tuple[float, ...]) -> bytes:
    at, which = _at(data, shares[0]), int(shares[-1] * 5)
    junk = (b"\0", b"\xff\xfe\xfd", b'"', b"\n\n,,,\n", b"{" * 2000, b"@DATA\n")[which]
    return data[:at] + junk + data[at:]


def _recoded(data: bytes, shares: tuple[float, ...]) -> bytes:
    return data.decode(errors="replace").encode(_ENCODINGS[_index(_ENCODINGS, shares)], "replace")


def _index(among: tuple[Any, ...], shares: tuple[float, ...]) -> int:
    return min(int(shares[0] * len(among)), len(among) - 1)


_BYTES: Mapping[str, Callable[[bytes, tuple[float, ...]], bytes]] = {
    "truncated": lambda data, shares: data[: _at(data, shares[0])],
    "flipped": _flipped,
    "inserted": _inserted,
    "marked": lambda data, shares: _BOMS[_index(_BOMS, shares)] + data,
    "recoded": _recoded,
    "emptied": lambda *_: b"",
    "twice": lambda data, _: data + data,
    "packed": lambda data, _: gzip.compress(data, mtime=0),
    "zeros": lambda data, shares: data[: _at(data, shares[0])] + bytes(100),
}
"""By name: what is done to the bytes of a file, given shares of their number."""
