"""Rows stored as JSON lines, so that an interrupted benchmark can continue."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["KeptRows"]


class KeptRows:
    """Rows of a file, each under a key made from some of its columns.

    Args:
        path: The file; it need not exist.
        names: Columns that make the key of a row.
    """

    def __init__(self, path: Path, *names: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.names = path, names
        lines = path.read_text().splitlines() if path.exists() else ()
        self._rows = {self._key(row): row for row in map(json.loads, lines)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of their creation."""
        return list(self._rows.values())

    def get_or_make(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the row of a key, made and stored if missing."""
        name = self._key(key)
        if name not in self._rows:
            self._rows[name] = {**key, **make()}
            with self.path.open("a") as lines:
                lines.write(json.dumps(self._rows[name]) + "\n")
        return self._rows[name]

    def _key(self, row: Mapping[str, Any]) -> str:
        return json.dumps([row[name] for name in self.names], sort_keys=True)
