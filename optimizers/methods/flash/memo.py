"""The decisions of FLASH: all that an ask hands to the next one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.space import Path

__all__ = ["FlashMemo"]


@dataclass
class FlashMemo:
    """Decisions of the phases, None until they are made; paths stand by their index.

    Attributes:
        phase: The phase of the last ask.
        design: Paths of Phase 1 in order; once it has ended, those that ran.
        n_init: Length of Phase 1.
        n_prune: Length of Phase 2.
        shared: By step that all paths share, its best choice; empty where there is nothing to
            choose.
        ranking: The r best paths, best first, with their ln EIPS at xi = 0.
        subspace: By step, the algorithms of G'.
        n_subspace_paths: Paths of G' that can run.
        notes: Messages for people.
    """

    phase: int = 1
    design: list[int] | None = None
    n_init: int | None = None
    n_prune: int | None = None
    shared: dict[str, Choice] | None = None
    ranking: list[tuple[int, float]] | None = None
    subspace: dict[str, list[str]] | None = None
    n_subspace_paths: int | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what has been decided as JSON values."""
        document: dict[str, Any] = {"phase": self.phase}
        for name in ("design", "n_init", "n_prune", "n_subspace_paths"):
            if getattr(self, name) is not None:
                document[name] = getattr(self, name)
        if self.shared is not None:
            document["shared"] = self._shared_json()
        if self.ranking is not None:
            document["ranking"] = [[path, score] for path, score in self.ranking]
        if self.subspace is not None:
            document["subspace"] = {step: list(ids) for step, ids in self.subspace.items()}
        if self.notes:
            document["notes"] = list(self.notes)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        memo = cls(**document)
        if "shared" in document:
            found = document["shared"] or {}
            memo.shared = {step: Choice.from_json(choice) for step, choice in found.items()}
        if memo.ranking is not None:
            memo.ranking = [(path, score) for path, score in memo.ranking]
        memo.notes = list(memo.notes)
        return memo

    def rendered(self, paths: Sequence[Path]) -> dict[str, Any]:
        """Return `Flash.decisions`: the same with paths as lists of algorithm ids."""
        decisions: dict[str, Any] = {"phase": self.phase}
        for name in ("n_init", "n_prune", "n_subspace_paths"):
            if getattr(self, name) is not None:
                decisions[name] = getattr(self, name)
        if self.shared:
            decisions["shared"] = self._shared_json()
        if self.subspace is not None:
            decisions["subspace"] = self.subspace
        if self.design is not None:
            decisions["design"] = [list(paths[i]) for i in self.design]
        if self.ranking is not None:
            decisions["ranking"] = [
                {"path": list(paths[i]), "log_eips": score} for i, score in self.ranking
            ]
        return decisions | {"notes": list(self.notes)}

    def _shared_json(self) -> dict[str, Any] | None:
        chosen = self.shared or {}
        return {step: choice.to_json() for step, choice in chosen.items()} or None
