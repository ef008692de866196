"""Quantities of a fitted pipeline that a study may bound.

Cheap to import, because every command that shows a study reads its plan. `quantities` measures.
"""

from dataclasses import dataclass

from prefect_tune.optimizers.trials.objective import Constraint


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that a fitted pipeline has on the held-out rows of a fold; smaller is better.

    Attributes:
        name: One of `measurement.QUANTITIES`, or `FILE.py:FUNCTION`.
        column: The column whose values or bins are the groups; empty where there are none.
        bins: Edges of the bins, ascending; empty to take each value as a group.
        metric: Name of the metric that compares groups; empty for the study's.
        code: Text of the user's file.
    """

    name: str
    column: str = ""
    bins: tuple[float, ...] = ()
    metric: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """The quantity as users write it, and as `Evaluation.constraints` names it."""
        arguments = [self.column] if self.column else []
        arguments += [f"bins={':'.join(f'{edge:.15g}' for edge in self.bins)}"] if self.bins else []
        arguments += [f"metric={self.metric}"] if self.metric else []
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name

    @property
    def digest(self) -> str:
        """The digest of what is measured, the user's code included."""
        from prefect_tune.storage.key import (  # noqa: PLC0415 - lists need no digest
            code_digest,
            content_digest,
        )

        code = code_digest("code", [self.code])
        return content_digest("quantity", [self.text.encode(), code.encode()])


@dataclass(frozen=True, slots=True)
class QuantityBound:
    """A constraint of a study: a quantity and the largest value allowed.

    Attributes:
        quantity: What is measured.
        bound: Largest value allowed, in the quantity's unit.
    """

    quantity: Quantity
    bound: float

    @property
    def constraint(self) -> Constraint:
        """The constraint as optimizers see it, by the quantity's text."""
        return Constraint(self.quantity.text, self.bound)
