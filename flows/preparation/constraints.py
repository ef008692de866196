"""Constraints of a study: checked against its data and folds, and explained to the user."""

from collections.abc import Iterable, Sequence

import pandas as pd

from prefect_tune.flows.preparation.study_input import Note
from prefect_tune.flows.text import counted
from prefect_tune.optimizers.registry import METHODS, method_named
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.constraint import check_measurable
from prefect_tune.tasks.objective.quantities import absent_groups
from prefect_tune.tasks.objective.quantity import Quantity, QuantityBound

_SHOWN_GROUPS = 5


def check_constraints(bounds: Sequence[QuantityBound], dataset: Dataset, split: Split) -> None:
    """Check constraints against the data and its folds.

    Raises:
        BadInput, UnknownName: If a quantity cannot be measured, or is bounded twice.
    """
    for position, bounded in enumerate(bounds):
        quantity = bounded.quantity
        check_measurable(quantity, dataset)
        _absent_groups(quantity, dataset, split)
        if any(quantity == other.quantity for other in bounds[:position]):
            raise BadInput(
                "given twice", option="constraint", value=quantity.text, remedy="leave one out"
            )


def quantity_digests(bounds: Iterable[QuantityBound]) -> dict[str, str]:
    """Return the digest of each bounded quantity, by its text."""
    return {bounded.quantity.text: bounded.quantity.digest for bounded in bounds}


def constraint_notes(
    bounds: Sequence[QuantityBound], dataset: Dataset, split: Split, method: str
) -> list[Note]:
    """Return what a user should know of how constraints are kept."""
    if not bounds:
        return []
    features = set(dataset.X) if isinstance(dataset.X, pd.DataFrame) else set()
    notes = [
        Note(
            f"column {column} gives the groups of a constraint, and is a feature too",
            "drop",
            column,
            f"--drop {column} leaves it out of the features alone",
        )
        for column in dict.fromkeys(b.quantity.column for b in bounds)
        if column in features
    ]
    notes += [
        Note(
            f"{counted(len(absent), 'group')} of {b.quantity.text} ({_shown(absent)}) without a "
            "row in some fold: compared in the others only",
            "constraint",
            b.quantity.text,
            "take wider groups or fewer --folds to compare them in all",
        )
        for b in bounds
        if (absent := _absent_groups(b.quantity, dataset, split))
    ]
    if not method_named(method).honours_constraints:
        honouring = " or ".join(m.name for m in METHODS.values() if m.honours_constraints)
        notes.append(
            Note(
                f"{method} ignores constraints while searching; they only choose among its trials",
                "method",
                method,
                f"--method {honouring} searches within them",
            )
        )
    return notes


def _absent_groups(quantity: Quantity, dataset: Dataset, split: Split) -> dict[str, list[int]]:
    """Return the groups that some folds hold out no row of, each with those folds.

    Raises:
        BadInput: If a fold has no two groups to compare.
    """
    if not quantity.column or dataset.columns is None:
        return {}
    absent, fewest = absent_groups(dataset.columns[quantity.column], quantity.bins, split)
    if fewest < 2:
        raise BadInput(
            "groups are compared, and some fold holds out rows of "
            f"{counted(fewest, 'group')} (in one or another there is none of {_shown(absent)})",
            option="constraint",
            value=quantity.text,
            remedy="take wider groups, fewer --folds or a larger --holdout",
        )
    return absent


def _shown(names: Iterable[str]) -> str:
    first = list(names)
    return ", ".join(first[:_SHOWN_GROUPS]) + ", ..." * (len(first) > _SHOWN_GROUPS)
