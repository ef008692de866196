"""The part of a program that has prefect-tune read patient events, and split them."""

from collections.abc import Iterator
from typing import Any

from prefect_tune.optimizers.space.query import Query
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.reproduction.described import described
from prefect_tune.tasks.reproduction.splitting_text import Shares
from prefect_tune.tasks.reproduction.written import Imports, written

__all__ = ["EventReading"]

_DATA = "prefect_tune.tasks.data"
_URLS = ("labels", "test")
"""Fields of a source, besides its data, that may be URLs."""


class EventReading:
    """How a program reads and splits rows of patient events.

    Args:
        source: Where they come from.
        dataset: The rows as the study has them.
        split: Their split in the study.
        shares: What that was made by.
        query: What the trial evaluated.

    Attributes:
        imports: By module, the names that it imports.
        packages: Packages that it needs besides scikit-learn's, as `pip` knows them.
        standard: Modules of the standard library that it imports whole.
        modules: Modules of other packages that it imports whole.
    """

    def __init__(
        self,
        source: Source,
        dataset: Dataset,
        split: Split,
        shares: Shares,
        query: Query,
    ) -> None:
        self._source, self._dataset, self._split = source, dataset, split
        self._shares, self._query = shares, query
        self.imports: dict[str, tuple[str, ...]] = {
            f"{_DATA}.reading": ("read_source",),
            f"{_DATA}.source": ("Source",),
            f"{_DATA}.split": ("make_split",),
        }
        self.packages: tuple[str, ...] = ()
        self.standard: tuple[str, ...] = ()
        self.modules: tuple[str, ...] = ()

    def constants(self) -> Iterator[str]:
        """Yield the lines that say what is read."""
        data = masked(self._source.data)
        yield f"DATA = sys.argv[1] if len(sys.argv) > 1 else {_written(data)}"
        yield f"CLASSES = {_written(list(self._dataset.classes))}"

    def functions(self) -> Iterator[str]:
        """Yield the lines of the functions that read and split the rows."""
        given = {
            name: value
            for name, value in self._shown_source().items()
            if name != "data" and value not in (None, [], False)
        }
        arguments = "".join(
            f", {name}={_written(tuple(value) if isinstance(value, list) else value)}"
            for name, value in given.items()
        )
        yield "def read():"
        yield '    """Return the rows: prefect-tune reads patient events."""'
        yield f"    return read_source(Source(DATA{arguments}))"
        yield from ("", "", "def split(dataset):")
        yield '    """Yield the training and the held-out rows of each fold, as in the study."""'
        of, seed = self._shares, self._split.seed
        yield f"    parts = make_split(dataset, {of.folds}, {of.test_size}, {seed}, {of.holdout})"
        n_folds = self._query.folds or self._split.n_folds
        part = f"{self._query.subset!r}, {self._query.subset_draw}"
        yield f"    for fold in range({n_folds}):"
        yield f"        train = parts.training(fold, dataset.strata, {part}, dataset.groups)"
        yield "        yield train, parts.held_out(fold)"

    def _shown_source(self) -> dict[str, Any]:
        """Return the fields of the source, with stars for passwords in its URLs."""
        fields = self._source.to_json()
        return fields | {url: masked(fields[url]) for url in _URLS if fields[url]}


def _written(value: object) -> str:
    return written(described(value), Imports([]))
