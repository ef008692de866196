"""Tables and event logs with damaged cells and bytes."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
from flow_studies import prepare_study
from hypothesis import strategies as st
from inputs import events, table

from fuzzing.ground import Ground, leaves_nothing
from fuzzing.values import texts
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source

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
    """One damaged input of a study or of its predictions.

    Attributes:
        role: Role of the input: `table`, `events`, `labels`, or `new` for rows to predict.
        suffix: Suffix of the file.
        column: Position of the damaged column.
        rows: Rows with another value: the first row, every second row, all rows or none.
        value: Value that replaces the cells of these rows.
        bytes: Damage to the bytes of the file: operations, each with a number for the place.
        options: Options of the command.
    """

    role: str
    suffix: str
    column: int
    rows: slice
    value: Any
    bytes: list[tuple[str, float]]
    options: Mapping[str, Any]


def damaged() -> st.SearchStrategy[Damaged]:
    """Return inputs, each with some damage."""
    options = {
        "categorical": st.sampled_from((["a"], ["count"], ["color"])),
        "group": st.sampled_from(("count", "color")),
        "time": st.sampled_from(("count", "a", "prediction_time")),
        "format": st.sampled_from(("table", "events")),
        "holdout": st.just(0.3),
    }
    return st.builds(
        Damaged,
        st.sampled_from(("table", "table", "events", "labels", "new")),
        st.sampled_from((".csv", ".csv.gz", ".parquet", ".arff")),
        st.integers(0, 6),
        st.sampled_from((slice(1), slice(0, None, 2), slice(None), slice(0))),
        st.sampled_from(_CELLS) | texts(),
        st.lists(st.tuples(st.sampled_from(sorted(_BYTES)), st.floats(0, 0.999)), max_size=2),
        st.fixed_dictionaries({}, optional=options),
    )


def check(ground: Ground, case: Damaged) -> None:
    """Prepare a study of the file, or read rows to predict."""
    with ground.case() as folder, leaves_nothing(folder / "store"):
        if case.role == "new":
            training = read_source(Source(str(ground.table), target="target"))
            read_features(_written(case, table(60), folder / "new"), None, training)
        else:
            prepare_study(_parameters(ground, case, folder))


def _parameters(ground: Ground, case: Damaged, folder: Path) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(OPTIONS) | {"store": str(folder / "store")}
    if case.role == "table":
        given |= {"data": _written(case, table(60), folder / "table"), "target": "target"}
        return given | {"space": "small", **case.options}
    given |= {"data": str(ground.folder / "events.csv")}
    given |= {"labels": str(ground.folder / "labels.csv")}
    is_log = case.role == "events"
    frame = events()[0 if is_log else 1]
    given["data" if is_log else "labels"] = _written(case, frame, folder / case.role)
    kept = {"holdout", "time"} & {*case.options}
    return given | {name: case.options[name] for name in kept}


def _written(case: Damaged, frame: pd.DataFrame, stem: Path) -> str:
    name = frame.columns[case.column % frame.shape[1]]
    cells = frame[name].astype(object).tolist()
    cells[case.rows] = [case.value] * len(cells[case.rows])
    frame = frame.assign(**{name: pd.Series(cells, dtype=object).infer_objects()})
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
        except (ValueError, TypeError, OverflowError):  # Arrow's own refusals among them
            return frame.astype(str).to_parquet(index=False)
    text = frame.to_csv(index=False)
    if suffix == ".arff":
        attributes = "".join(f"@ATTRIBUTE {name} STRING\n" for name in frame)
        text = f"@RELATION r\n{attributes}@DATA\n{text.partition(chr(10))[2]}"
    data = text.encode(errors="surrogatepass")
    return gzip.compress(data, mtime=0) if suffix == ".csv.gz" else data


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
