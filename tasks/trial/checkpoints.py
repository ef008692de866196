"""Checkpoints of a training in the cache, by the number of epochs done.

A checkpoint is an ordinary artifact: the model and its curve. Its key has no target epoch, trial or
study, so any later request for more epochs finds it. Superseded checkpoints are evicted first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.fitting.training import Checkpoint
from prefect_tune.tasks.objective.metric import Predictions


class Checkpoints:
    """Checkpoints of one training, by epochs in `found` as of the last lookup.

    `about` is the training's index entry under its own key, which `lineage` determines.
    """

    def __init__(self, store: ArtifactStore, about: Entry, lineage: Mapping[str, Any]) -> None:
        self._store, self._about, self._lineage = store, about, lineage
        self.found: dict[int, Entry] = {}
        self._keys: dict[int, str] = {}
        self.load_seconds = 0.0

    def key_after(self, epochs: int) -> str:
        """Return the key of the checkpoint after some epochs."""
        if epochs not in self._keys:
            self._keys[epochs] = prefix_key({"training": self._about.key, "epochs": epochs})
        return self._keys[epochs]

    def look_up(self, most: int) -> None:
        """Look up all checkpoints of up to `most` epochs in one query."""
        keys = {self.key_after(epochs): epochs for epochs in range(1, most + 1)}
        entries = self._store.index.entries(list(keys))
        self.found = {keys[key]: entry for key, entry in entries.items() if entry.is_present}

    def largest(self, most: int, unless: int = 0) -> Checkpoint | None:
        """Return the latest readable checkpoint of up to `most` epochs.

        If the checkpoint has exactly `unless` epochs, its model is not read and is None.
        """
        for epochs in sorted(self.found, reverse=True):
            if epochs <= most:
                has_history = "history" in self.found[epochs].parts
                whole = ["curve", "estimator", *(("history",) if has_history else ())]
                names = ["curve"] if epochs == unless else whole
                if (read := self._read(epochs, names)) is not None:
                    curve, history = tuple(read["curve"].tolist()), read.get("history", {})
                    return Checkpoint(epochs, read.get("estimator"), curve, history)
        return None

    def predictions(self, epochs: int, epoch: int) -> Predictions | None:
        """Return the predictions after an epoch if the checkpoint after `epochs` has them."""
        if epochs not in self.found or "history" not in self.found[epochs].parts:
            return None
        read = self._read(epochs, ["history"])
        return read["history"].get(epoch) if read is not None else None

    def seconds_until(self, epochs: int) -> float:
        """Return the time that training up to a checkpoint took."""
        return self.found[epochs].cost_seconds if epochs in self.found else 0.0

    def count_hit(self, epochs: int) -> None:
        """Count a checkpoint as served by the cache."""
        self._store.index.count_hit(self.found[epochs])

    def save(self, checkpoint: Checkpoint, summary: Mapping[str, Any], seconds: float) -> None:
        """Store a checkpoint, with its seconds from the start, and keep it in memory, too."""
        epochs = checkpoint.epochs
        curve = canonical(np.array(checkpoint.curve))
        parts: dict[str, Any] = {"estimator": checkpoint.estimator, "curve": curve}
        if checkpoint.history:
            parts["history"] = checkpoint.history
        entry = replace(self._about, key=self.key_after(epochs))
        lineage = {**self._lineage, "training": self._about.key, "epochs": epochs}
        kept = self._store.write(entry, Made(parts, summary, seconds, ("estimator",)), lineage)
        if kept.is_present:
            self.found[epochs] = kept

    def forget(self, epochs: int) -> None:
        """Forget a checkpoint that is no longer needed."""
        if (entry := self.found.pop(epochs, None)) is not None:
            self._store.forget(entry)

    def _read(self, epochs: int, names: Sequence[str]) -> Mapping[str, Any] | None:
        started = perf_counter()
        read = self._store.read(self.found[epochs], names)
        self.load_seconds += perf_counter() - started
        if read is None:
            del self.found[epochs]
        return read
