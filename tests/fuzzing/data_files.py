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

_ROWS = 60
_CELLS: tuple[Any, ...] = (
    10**30, 2**63 - 1, 1e308, float("inf"), float("nan"), None, "", "?", '"', "a,b\n'c'",
    b"\xff\x00", [1, [2, [3]]], {"a": {"b": [1]}}, Decimal("1e20"), pd.Timestamp("2020-01-01"),
    "0001-01-01", "99999-12-31", pd.Timestamp("2020-01-01", tz="Europe/Berlin"),
    pd.Timedelta("1D"), True, "1+2j", "x" * 5000,
)  # fmt: skip
"""What a cell holds that no column of the inputs does."""
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0")
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp037")
_JUNK = (b"\0", b"\xff\xfe\xfd", b'"', b"\n\n,,,\n", b"{" * 2000, b"@DATA\n")


@dataclass(frozen=True)
class Damaged:
    """One input of a study or of its predictions, damaged.

    Attributes:
        role: Which of them: `table`, `events`, `labels` or `new`, rows to predict.
        suffix: Of its file.
        frames: What is done to the table: an operation, a column by position, and a value.
        bytes: What is done to the bytes after that: an operation, and a share of their number.
        options: Of the command.
    """

    role: str
    suffix: str
    frames: list[tuple[str, int, Any]]
    bytes: list[tuple[str, float]]
    options: Mapping[str, Any]


def damaged() -> st.SearchStrategy[Damaged]:
    """Inputs with some damage each."""
    values = st.sampled_from(_CELLS) | texts()
    frames = st.tuples(st.sampled_from(sorted(_FRAMES)), st.integers(0, 6), values)
    of_bytes = st.tuples(st.sampled_from(sorted(_BYTES)), st.floats(0, 0.999))
    choices: dict[str, tuple[Any, ...]] = {
        "categorical": (["a"], ["count"], ["colour"]),
        "group": ("count", "colour"),
        "time": ("count", "a", "prediction_time"),
        "gap": ("1d", "1s"),
        "format": ("table", "events"),
        "holdout": (0.3,),
        "space": ("small", "regression"),
    }
    options = {name: st.sampled_from(values) for name, values in choices.items()}
    return st.builds(
        Damaged,
        st.sampled_from(("table", "table", "events", "labels", "new")),
        st.sampled_from((".csv", ".csv.gz", ".parquet", ".arff")),
        st.lists(frames, max_size=2),
        st.lists(of_bytes, max_size=2),
        st.fixed_dictionaries({}, optional=options),
    )


def check(ground: Ground, case: Damaged) -> None:
    """Prepare a study of the file, or read rows to predict; if refused, nothing is left."""
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


def _parameters(ground: Ground, case: Damaged, folder: Path) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(OPTIONS) | {"store": str(folder / "store")}
    if case.role == "table":
        given |= {"data": _written(case, table(_ROWS), folder / "table"), "target": "target"}
        return given | {"space": "small", **case.options}
    given |= {name: str(ground.folder / f"{stem}.csv")
              for name, stem in (("data", "events"), ("labels", "labels"))}  # fmt: skip
    is_log = case.role == "events"
    frame = events()[0 if is_log else 1]
    given["data" if is_log else "labels"] = _written(case, frame, folder / case.role)
    kept = ("holdout", "time", "gap")
    return given | {name: case.options[name] for name in kept if name in case.options}


def _written(case: Damaged, frame: pd.DataFrame, stem: Path) -> str:
    for name, column, value in case.frames:
        frame = _FRAMES[name](frame, column % max(1, frame.shape[1]), value)
    data = _encoded(frame, case.suffix)
    for operation, share in case.bytes:
        data = _BYTES[operation](data, share)
    path = Path(f"{stem}{case.suffix}")
    path.write_bytes(data)
    return str(path)


def _encoded(frame: pd.DataFrame, suffix: str) -> bytes:
    if suffix == ".parquet":
        try:
            return frame.to_parquet(index=False)
        except (ValueError, TypeError, OverflowError, KeyError):  # Arrow's own refusals among them
            names = [f"{i}{name}" for i, name in enumerate(frame.columns)]
            return frame.astype(str).set_axis(names, axis=1).to_parquet(index=False)
    text = frame.to_csv(index=False)
    if suffix == ".arff":
        head, _, rows = text.partition("\n")
        kinds = ("NUMERIC" if kind.kind in "if" else "STRING" for kind in frame.dtypes)
        named = zip(head.split(","), kinds, strict=False)
        attributes = "".join(f"@ATTRIBUTE {name} {kind}\n" for name, kind in named)
        text = f"@RELATION r\n{attributes}@DATA\n{rows}"
    data = text.encode(errors="surrogatepass")
    return gzip.compress(data, mtime=0) if suffix == ".csv.gz" else data


def _with_values(frame: pd.DataFrame, column: int, values: list[Any]) -> pd.DataFrame:
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    if not columns or len(values) != len(frame):
        return frame
    columns[column] = pd.Series(values, index=frame.index, dtype=object).infer_objects()
    return pd.concat(columns, axis=1).set_axis(frame.columns, axis=1)


_FRAMES: Mapping[str, Callable[[pd.DataFrame, int, Any], pd.DataFrame]] = {
    "cell": lambda frame, column, value: _with_values(
        frame, column, [value, *frame.iloc[1:, column]] if frame.shape[1] else []
    ),
    "column": lambda frame, column, value: _with_values(frame, column, [value] * len(frame)),
    "alternating": lambda frame, column, value: _with_values(
        frame, column, [value if i % 2 else i for i in range(len(frame))]
    ),
    "missing": lambda frame, column, _: _with_values(frame, column, [np.nan] * len(frame)),
    "doubled": lambda frame, column, _: pd.concat(
        [frame, frame.iloc[:, column : column + 1]], axis=1
    ),
    "renamed": lambda frame, column, value: frame.set_axis(
        [str(value) if i == column else name for i, name in enumerate(frame)], axis=1
    ),
    "without": lambda frame, column, _: frame.drop(columns=frame.columns[column : column + 1]),
    "no rows": lambda frame, *_: frame[:0],
    "no columns": lambda frame, *_: frame.iloc[:, :0],
}
"""By name: what is done to a table, given a column and a value."""


def _flipped(data: bytes, share: float) -> bytes:
    changed = bytearray(data)
    if data:
        changed[int(share * len(data))] ^= 1 << int(share * 1e6) % 8
    return bytes(changed)


def _inserted(data: bytes, share: float) -> bytes:
    at = int(share * len(data))
    return data[:at] + _JUNK[int(share * 1e6) % len(_JUNK)] + data[at:]


def _recoded(data: bytes, share: float) -> bytes:
    return data.decode(errors="replace").encode(_ENCODINGS[int(share * len(_ENCODINGS))], "replace")


_BYTES: Mapping[str, Callable[[bytes, float], bytes]] = {
    "truncated": lambda data, share: data[: int(share * len(data))],
    "flipped": _flipped,
    "inserted": _inserted,
    "marked": lambda data, share: _BOMS[int(share * len(_BOMS))] + data,
    "recoded": _recoded,
    "twice": lambda data, _: data + data,
    "packed": lambda data, _: gzip.compress(data, mtime=0),
}
"""By name: what is done to the bytes of a file, given a share of their number."""
