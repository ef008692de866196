"""The part of a program that reads a table as a study read it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from prefect_tune.storage.privacy.masking import masked
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.frames import FRAME
from prefect_tune.tasks.data.location import ARFF, CSV, PARQUET
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_files import GAPS
from prefect_tune.tasks.reproduction.described import described
from prefect_tune.tasks.reproduction.expressions import Group, Literal
from prefect_tune.tasks.reproduction.written import Imports, written

__all__ = ["TableReading"]

_BUNDLED = "sklearn:"
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,14})")
"""A category that a file may have written with `.0` behind it."""


class TableReading:
    """How a program reads the rows of a table.

    Args:
        source: Where they come from, and what is left out of them.
        dataset: The rows as the study has them.

    Attributes:
        imports: By module, the names that it imports.
        packages: Packages that it needs besides scikit-learn's, as `pip` knows them.
    """

    def __init__(self, source: Source, dataset: Dataset) -> None:
        assert isinstance(dataset.X, pd.DataFrame)  # noqa: S101 - the caller's duty
        self._source, self._dataset, self._X = source, dataset, dataset.X
        self._categories = [str(name) for name in self._X.select_dtypes("category")]
        self.imports: dict[str, tuple[str, ...]] = {}
        self.packages: tuple[str, ...] = ()
        self._kind = _kind_of(source.data)
        if self._kind == "bundled":
            self.imports["sklearn.datasets"] = (f"load_{source.data.removeprefix(_BUNDLED)}",)
        if self._kind == "arff":
            self.packages = ("liac-arff",)
        if self._kind == "folder":
            self.imports["pathlib"] = ("Path",)

    @property
    def has_test_targets(self) -> bool:
        """Whether numbers of a file of test rows decide how the others are split."""
        return self._source.test is not None and not self._dataset.classes

    @property
    def standard(self) -> tuple[str, ...]:
        """Modules of the standard library that it imports whole."""
        return ("gzip",) if self._kind == "arff" else ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of other packages that it imports whole."""
        return ("arff",) if self._kind == "arff" else ()

    def constants(self) -> Iterator[str]:
        """Yield the lines that say what is read."""
        yield from _data_lines(self._kind, self._source.data)
        yield f"TARGET = {_text(self._source.target or 'target')}"
        yield _constant("FEATURES", [str(name) for name in self._X])
        if self._categories:
            yield _constant("CATEGORIES", self._categories)
        if self._dataset.classes:
            yield _constant("CLASSES", list(self._dataset.classes))
        if self._kind != "bundled":
            yield _constant("GAPS", list(GAPS))
        if self._source.group:
            yield f"GROUP = {_text(self._source.group)}"
        if self.has_test_targets:
            yield f"TEST = {_text(masked(self._source.test or ''))}"

    def functions(self) -> Iterator[str]:
        """Yield the lines of the functions that read the rows."""
        yield "def load(path):" if self._kind != "bundled" else "def load():"
        yield '    """Return the table of a file, with gaps."""'
        yield from (f"    {line}" for line in self._table())
        if self._source.drop_missing_target:
            yield "    table = table.dropna(subset=[TARGET]).reset_index(drop=True)"
        yield "    return table"
        yield from ("", "", "def read():")
        yield f'    """Return {self._returned()}, as the study had them."""'
        yield f"    table = {'load()' if self._kind == 'bundled' else 'load(DATA)'}"
        yield "    columns = {"
        if self._categories:
            yield "        name: categories(table[name])"
            yield "        if name in CATEGORIES"
            yield '        else table[name].to_numpy("float64", na_value=np.nan)'
            yield "        for name in FEATURES"
        else:
            yield '        name: table[name].to_numpy("float64", na_value=np.nan)'
            yield "        for name in FEATURES"
        yield "    }"
        yield "    X = pd.DataFrame(columns)"
        yield from (f"    {line}" for line in (*self._target(), *self._check()))
        yield f"    return {'X, y, groups' if self._source.group else 'X, y'}"
        if self._needs_texts:
            yield from ("", "")
            yield from self._texts()
        if self._categories:
            yield from ("", "")
            yield from self._in_categories()

    @property
    def _needs_texts(self) -> bool:
        """Whether categories and groups may be written as something else than texts."""
        return self._kind != "csv" or self._source.group is not None or self._may_end_in_zero()

    def _returned(self) -> str:
        return "features, target and groups" if self._source.group else "features and target"

    def _table(self) -> Iterator[str]:
        """Yield the lines that read the table."""
        match self._kind:
            case "bundled":
                yield f"table = {self.imports['sklearn.datasets'][0]}(as_frame=True).frame"
            case "csv":
                yield "table = pd.read_csv("
                yield "    path,"
                if texts := [n for n in self._source.categorical if n in self._categories]:
                    yield f"    dtype=dict.fromkeys({_list(texts)}, str),"
                yield '    dtype_backend="numpy_nullable",'
                yield "    keep_default_na=False,"
                yield "    na_values=GAPS,"
                yield "    index_col=False,"
                yield "    low_memory=False,"
                yield ")"
            case "arff":
                yield 'opened = gzip.open if path.endswith(".gz") else open'
                yield 'with opened(path, "rt", encoding="utf-8") as file:'
                yield "    document = arff.load(file)"
                yield 'names = [name for name, _ in document["attributes"]]'
                yield 'table = pd.DataFrame(document["data"], columns=names)'
            case "folder":
                yield 'files = sorted(Path(path).rglob("*.parquet"))'
                yield 'parts = [pd.read_parquet(f, dtype_backend="numpy_nullable") for f in files]'
                yield "table = pd.concat(parts, ignore_index=True)"
            case _:
                yield 'table = pd.read_parquet(path, dtype_backend="numpy_nullable")'

    def _target(self) -> Iterator[str]:
        """Yield the lines that make the target: positions in CLASSES, or numbers."""
        classes = self._dataset.classes
        if not classes:
            yield 'y = table[TARGET].to_numpy("float64")'
        else:
            kind = {bool: "bool", int: "int64"}.get(type(classes[0]))
            labels = f'table[TARGET].astype("{kind}")' if kind else "table[TARGET].map(str)"
            yield f"labels = {labels}  # y has their positions in CLASSES"
            yield "y = pd.Categorical(labels, categories=CLASSES).codes.astype(int)"
        if self._source.group:
            yield "groups, _ = pd.factorize(texts(table[GROUP]))"

    def _check(self) -> Iterator[str]:
        n_rows = len(self._dataset)
        if self._dataset.is_test is not None:
            n_rows = int((~self._dataset.is_test).sum())
        yield f"if len(X) != {n_rows}:"
        yield (
            f'    print(f"{{DATA}} has {{len(X)}} rows, and the study had {n_rows}: losses differ")'
        )

    def _texts(self) -> Iterator[str]:
        """Yield the function that makes texts of a column."""
        yield "def texts(column):"
        yield '    """Return the values of a column as texts, with its gaps."""'
        yield "    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():"
        yield '        column = column.astype("Int64")'
        yield "    found = column.astype(object).where(column.notna(), None)"
        yield '    found = found.map(str, na_action="ignore")'
        if self._kind != "csv":
            yield "    found = found.where(~found.isin(GAPS), None)"
        if self._may_end_in_zero():
            yield r'    if found.dropna().str.fullmatch(r"-?(?:0|[1-9]\d{0,14})\.0").all():'
            yield '        found = found.str.removesuffix(".0")'
        yield "    return found"

    def _in_categories(self) -> Iterator[str]:
        """Yield the function that makes categories of a column."""
        yield "def categories(column):"
        yield '    """Return a column as categories in the order of the alphabet, with gaps."""'
        found = "texts(column)" if self._needs_texts else "column.astype(object)"
        yield f"    found = {found}"
        yield "    known = pd.Index(sorted(set(found.dropna())), dtype=object)"
        yield "    return pd.Categorical(found, categories=known)"

    def _may_end_in_zero(self) -> bool:
        """Return whether texts of a column may have lost the `.0` that gaps add to numbers."""
        if self._source.group:
            return True
        known = [self._X[name].cat.categories for name in self._categories]
        return any(all(_WHOLE.fullmatch(str(text)) for text in texts) for texts in known)


def _kind_of(data: str) -> str:
    """Return how rows are to be read."""
    if data.startswith(_BUNDLED):
        return "bundled"
    if data.startswith(FRAME):
        return "frame"
    path = data.lower().partition("?")[0] if "://" in data else data.lower()
    for kind, suffixes in (("csv", CSV), ("parquet", PARQUET), ("arff", ARFF)):
        if path.endswith(suffixes):
            return kind
    return "folder"


def _data_lines(kind: str, data: str) -> Iterator[str]:
    match kind:
        case "bundled":
            yield f"DATA = {_text(data)}"
        case "frame":
            yield "# The study was given a DataFrame: keep it with"
            yield '# frame.assign(target=y).to_parquet("rows.parquet"), and name the file.'
            yield 'DATA = sys.argv[1] if len(sys.argv) > 1 else "rows.parquet"'
        case _:
            yield f"DATA = sys.argv[1] if len(sys.argv) > 1 else {_text(masked(data))}"


def _constant(name: str, values: Sequence[Any]) -> str:
    return f"{name} = {_list(values, len(name) + 3)}"


def _list(values: Sequence[Any], before: int = 0) -> str:
    items = tuple(described(value) for value in values)
    return written(Group("[]", items), Imports([]), 0, before)


def _text(text: str) -> str:
    found = described(text)
    assert isinstance(found, Literal)  # noqa: S101 - of a text it is one
    return found.text
