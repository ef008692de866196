"""Balancing of classes (FLASH, Table 5, second block)."""

from prefect_tune.optimizers.space.algorithm import Algorithm, Step

__all__ = ["BALANCE"]

BALANCE = Step(
    "balance", (Algorithm(id="none"), Algorithm(id="weighting", class_weights="balanced"))
)
