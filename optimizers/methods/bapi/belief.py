"""The belief in learning curves and in costs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.expected_improvement import expected_improvement
from prefect_tune.optimizers.methods.bapi.costs import Rates
from prefect_tune.optimizers.methods.bapi.options import Sites
from prefect_tune.optimizers.methods.bapi.scores import Scores
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.monotone import MonotoneProcess
from prefect_tune.optimizers.surrogates.slope_sites import at_times, site_times

__all__ = ["Belief", "Epochs"]

Epochs = int | NDArray[np.intp]


@dataclass(frozen=True)
class Belief:
    """Scores, minus losses, over configurations and the time trained.

    Attributes:
        process: Of scores; t is the last input.
        t_max: Epochs of a full training.
        rates: Of costs; None before any is known.
        scores: Their unit.
        bounds: Least and largest loss that the metric has.
        sites: Where slopes are known not to be negative, of curves that are asked about too; None
            for nowhere.
    """

    process: MonotoneProcess
    t_max: int
    rates: Rates | None
    scores: Scores
    bounds: tuple[float, float]
    sites: Sites | None

    def at(self, inputs: Array, epochs: Epochs) -> Array:
        """Return rows of inputs with the time trained behind them, shape (m, width + 1)."""
        t = np.broadcast_to(np.asarray(epochs) / self.t_max, len(inputs))
        return np.column_stack([inputs, t])

    def curve(self, row: Array, *, is_known: bool = False) -> Array:
        """Return the expected loss after each epoch, shape (t_max,), never rising.

        Args:
            row: Inputs of a configuration, shape (1, width).
            is_known: Whether its slopes have been looked at already.
        """
        epochs = np.arange(1, self.t_max + 1)
        rows = self.at(np.repeat(row, self.t_max, axis=0), epochs)
        process = self.process
        if not is_known and self.sites is not None:
            sites = at_times(self.at(row, 1), row.shape[1], site_times(self.t_max))
            process = process.with_sites(sites, only_falling=self.sites == "falling")
        mean, _ = process.predict(rows)
        falling: Array = np.clip(self.scores.losses(np.maximum.accumulate(mean)), *self.bounds)
        return falling

    def predict(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of scores, shape (m,)."""
        return self.process.predict(self.at(inputs, epochs))

    def outcome(self, inputs: Array, epochs: Epochs) -> tuple[Array, Array]:
        """Return means and deviations of scores as they are observed, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        noise = self.process.noise_variance(self.at(inputs, epochs)) * self.process.scale**2
        return mean, np.sqrt(deviation**2 + noise)

    def improvement(self, inputs: Array, epochs: Epochs, best: float) -> Array:
        """Return the expected improvement of scores on the best, shape (m,)."""
        mean, deviation = self.predict(inputs, epochs)
        return expected_improvement(-mean, deviation, -best)

    def seconds(self, inputs: Array) -> Array:
        """Return seconds of an epoch, shape (m,); 1 before any is known."""
        return np.ones(len(inputs)) if self.rates is None else self.rates.seconds(inputs)
