"""Hyperband (Li et al. 2018): brackets of successive halving that begin on each rung in turn."""

from typing import ClassVar

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.halving.brackets import Plan, hyperband_plan
from prefect_tune.optimizers.methods.halving.halving import Halving
from prefect_tune.optimizers.methods.hyperband.declaration import HYPERBAND

__all__ = ["Hyperband"]


class Hyperband(Halving):
    """From many configurations on the lowest rung to a few that begin on the last one."""

    method: ClassVar[Method] = HYPERBAND

    def plan(self, index: int) -> Plan:
        """Return how the bracket of that number begins."""
        return hyperband_plan(index, len(self.rungs), self.options.eta)
