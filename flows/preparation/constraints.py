"""Notes on the constraints of a study, and digests of the quantities they bound."""

from collections.abc import Iterable, Sequence

import pandas as pd

from prefect_tune.flows.preparation.study_input import Note
from prefect_tune.flows.text import counted
from prefect_tune.optimizers.registry import METHODS, method_named
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.constraint import absent_groups_in, shown_groups
from prefect_tune.tasks.objective.declaration import QuantityBound


def quantity_digests(bounds: Iterable[QuantityBound]) -> dict[str, str]:
    """Return the digest of each bounded quantity, by its text."""
    return {bounded.quantity.text: bounded.quantity.digest for bounded in bounds}


def constraint_notes(
    bounds: Sequence[QuantityBound], dataset: Dataset, split: Split, method: str
) -> list[Note]:
    """Return notes on how constraints are applied."""
    if not bounds:
        return []
    features = set(dataset.X) if isinstance(dataset.X, pd.DataFrame) else set()
    notes = [
        Note(
            f"column {column} defines the groups of a constraint and is also a feature",
            "drop",
            column,
            f"--drop {column} excludes it from the features only",
        )
        for column in dict.fromkeys(b.quantity.column for b in bounds)
        if column in features
    ]
    notes += [
        Note(
            f"{counted(len(absent), 'group')} of {b.quantity.text} ({shown_groups(absent)}) have "
            "no row in at least one fold: compared in the other folds only",
            "constraint",
            b.quantity.text,
            "use larger groups or fewer --folds to compare them in all folds",
        )
        for b in bounds
        if (absent := absent_groups_in(b.quantity, dataset, split))
    ]
    if not method_named(method).honours_constraints:
        honouring = " or ".join(m.name for m in METHODS.without_plugins() if m.honours_constraints)
        notes.append(
            Note(
                f"{method} ignores constraints while searching; they only choose among its trials",
                "method",
                method,
                f"--method {honouring} searches within them",
            )
        )
    return notes
