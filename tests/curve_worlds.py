"""Where learning curves are known: spaces of nets and their trials, and a study of power laws.

Spaces of a model that trains in epochs, `net`, and one that is fitted at once, `knn`.

Curves that fall as a power of the time trained, and what training them takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any
from zlib import crc32

import numpy as np
from ConfigSpace import Float
from simulation import share_to_do
from worlds import NONE, UNIT, algorithm, recorded

from prefect_tune.optimizers import (
    Algorithm,
    Configuration,
    Evaluation,
    Failure,
    FailureKind,
    Objective,
    Optimizer,
    Query,
    Space,
    Step,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, curves_of

T_MAX = 20
CURVES = Objective(n_held_out=1_000, n_folds=1, epochs=T_MAX, iterative=frozenset({"net"}))
"""Percent error, of 20 epochs."""


def _numbers(*names: str) -> list[Float]:
    return [Float(name, (0.0, 1.0), default=0.5) for name in names]


def _net() -> Algorithm:
    return algorithm("net", *_numbers("level", "rate"))


def nets() -> Space:
    """One model with two numbers: where its curve ends, and how soon."""
    return Space("nets", (Step("model", (_net(),)),))


def mixed_nets() -> Space:
    """The same behind a scaler, beside a model that is fitted at once."""
    models = _net(), algorithm("knn", *_numbers("k"))
    return Space("mixed nets", (Step("scale", (NONE, UNIT)), Step("model", models)))


def net(level: float, rate: float = 0.5, scale: str | None = None) -> Configuration:
    """A net; of `mixed_nets` if it has a scaler."""
    values = {"level": float(level), "rate": float(rate)}
    if scale is None:
        return Configuration.of(nets(), ("net",), [values])
    return Configuration.of(mixed_nets(), (scale, "net"), [{}, values])


def knn(k: float, scale: str = "none") -> Configuration:
    """A model of `mixed_nets` that is fitted at once."""
    return Configuration.of(mixed_nets(), (scale, "knn"), [{}, {"k": float(k)}])


def stretch(
    number: int,
    configuration: Configuration,
    losses: Sequence[float] | float,
    epochs: int | None = None,
    **evaluation: Any,
) -> Trial:
    """A stretch that has ended.

    Args:
        number: Of the trial.
        configuration: That was trained.
        losses: Of all epochs from the first, or that at the end alone.
        epochs: That were asked for; by default as many as there are losses.
        **evaluation: Of `Evaluation`.
    """
    curve = () if isinstance(losses, float) else tuple(losses)
    asked = epochs or len(curve) or T_MAX
    loss = losses if isinstance(losses, float) else min(losses)
    query = Query(configuration, epochs=None if asked == T_MAX else asked)
    known = {"cost_seconds": 1.0, "best_epoch": int(np.argmin(curve)) + 1 if curve else None}
    ended = Evaluation(loss, (loss,), curve=curve, **{**known, **evaluation})
    return Trial(number, query).started().completed(ended)


def crashed(
    number: int, configuration: Configuration, epochs: int | None, at: float = 0.5
) -> Trial:
    """A stretch that has failed."""
    failure = Failure(FailureKind.CRASHED, "its worker died", cost_seconds=at)
    return Trial(number, Query(configuration, epochs=epochs)).started().failed(failure)


def curves_from(
    *trials: Trial, space: Space | None = None
) -> Mapping[Configuration, LearningCurve]:
    """The curves of trials."""
    return curves_of(recorded(*trials), space or nets(), CURVES, T_MAX)


def curve(*trials: Trial, space: Space | None = None) -> LearningCurve:
    """The curve of the trials of one configuration."""
    (only,) = curves_from(*trials, space=space).values()
    return only


def bapi(space: Space | None = None, seed: int = 0, epochs: int = T_MAX, **options: Any) -> Bapi:
    """The method with quick settings, unless others are given."""
    objective = Objective(n_held_out=1_000, n_folds=1, epochs=epochs, iterative=frozenset({"net"}))
    return Bapi(space or nets(), seed, objective, **options)


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
