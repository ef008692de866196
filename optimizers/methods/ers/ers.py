"""ERS: random configurations and their agnostic ensemble (Lacoste et al. 2014, section 5)."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.ers.declaration import ERS
from prefect_tune.optimizers.methods.esmbo.esmbo import Esmbo
from prefect_tune.optimizers.reason import Reason
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration

__all__ = ["EnsembledRandomSearch"]


class EnsembledRandomSearch(Esmbo):
    """Random configurations that end in the ensemble of ESMBO."""

    method: ClassVar[Method] = ERS

    @property
    def notes(self) -> Sequence[str]:
        """Whether the bootstraps mean little."""
        return self._notes_on_examples()

    def _next(self, rng: np.random.Generator) -> Configuration:
        self._because = Reason("random", "drawn from the whole space")
        return new_configuration(self.space, self.history.asked, rng)
