"""Curves that fall as a power of the time trained, and what training them takes."""

from dataclasses import dataclass
from math import exp
from zlib import crc32

import numpy as np
from simulation import share_to_do

from prefect_tune.optimizers import Configuration, Evaluation, Optimizer, Query, StepCost

__all__ = ["PowerLaws"]


@dataclass
class PowerLaws:
    """Curves that fall to a level of their own, with a little noise, and seconds that differ.

    Attributes:
        optimizer: Whose queries are evaluated: epochs done are not done again.
        seed: Of the noise.
        with_curves: Whether evaluations have the losses of all epochs.
        seconds: Of an epoch: they are between this and 7 times as many.
        spread: Of ln seconds that nothing tells.
    """

    optimizer: Optimizer
    seed: int = 0
    with_curves: bool = True
    seconds: float = 1.0
    spread: float = 0.0

    def __call__(self, query: Query) -> Evaluation:
        """Return the evaluation of a stretch."""
        t_max = self.optimizer.objective.epochs or 1
        epochs = query.epochs or t_max
        new = share_to_do(query, self.optimizer) * t_max
        losses = self.losses(query.configuration, t_max)[:epochs]
        seconds = new * self.rate(query.configuration)
        iterative = query.configuration.path[-1] == "net"
        best = int(np.argmin(losses)) + 1
        loss = min(losses) if iterative else losses[-1]
        step = StepCost("model", 0, seconds, 0.0, hit=False, key=query.configuration.canonical)
        return Evaluation(
            loss,
            (loss,),
            seconds,
            seconds,
            (step,) if iterative and self.with_curves else (),
            curve=tuple(losses) if iterative and self.with_curves else (),
            best_epoch=best if iterative and self.with_curves else None,
            resumed_from=round(epochs - new) if iterative and self.with_curves else 0,
        )

    def losses(self, configuration: Configuration, t_max: int) -> list[float]:
        """Percent after each epoch."""
        values = dict(configuration["model"].values)
        level, rate = (float(values.get(name, 0.5)) for name in ("level", "rate"))
        end = 5 + 120 * (level - 0.3) ** 2 + 20 * float(values.get("k", 0.0))
        t = np.arange(1, t_max + 1) / t_max
        noise = np.random.default_rng([self.seed, crc32(configuration.canonical.encode())])
        losses = end + (90 - end) * (1 + exp(4 * rate) * t) ** -1.2
        return [float(x) for x in losses + noise.normal(0, 0.2, t_max)]

    def rate(self, configuration: Configuration) -> float:
        """Seconds of an epoch."""
        rate = float(dict(configuration["model"].values).get("rate", 0.5))
        noise = np.random.default_rng([self.seed, 1, crc32(configuration.canonical.encode())])
        return self.seconds * exp(2 * rate + self.spread * noise.normal())
