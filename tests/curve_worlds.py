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


_LEVEL, _RATE, _K = (Float(name, (0.0, 1.0), default=0.5) for name in ("level", "rate", "k"))
_NET = algorithm("net", _LEVEL, _RATE)


def nets() -> Space:
    """One model with two numbers: where its curve ends, and how soon."""
    return Space("nets", (Step("model", (_NET,)),))


def mixed_nets() -> Space:
    """The same behind a scaler, beside a model that is fitted at once."""
    models = _NET, algorithm("knn", _K)
    return Space("mixed nets", (Step("scale", (NONE, UNIT)), Step("model", models)))


def net(level: float, rate: float = 0.5) -> Configuration:
    """A net of `nets`."""
    return Configuration.of(nets(), ("net",), [{"level": float(level), "rate": rate}])


def at(level: float, scale: str = "none") -> Configuration:
    """A net of `mixed_nets`, behind a scaler."""
    return Configuration.of(
        mixed_nets(), (scale, "net"), [{}, {"level": float(level), "rate": 0.5}]
    )


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
        number: Number of the trial.
        configuration: The configuration.
        losses: Losses of all epochs from the first, or the one at the end.
        epochs: Epochs that were requested; by default as many as there are losses.
        **evaluation: More fields of the evaluation.
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
        optimizer: The method that asks: epochs done are not done again.
        seed: Seed of the noise.
    """

    optimizer: Optimizer
    seed: int = 0

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
            (step,) if iterative else (),
            curve=tuple(losses) if iterative else (),
            best_epoch=best if iterative else None,
            resumed_from=round(epochs - new) if iterative else 0,
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
        """Seconds of an epoch, from 1 to 7."""
        return exp(2 * float(dict(configuration["model"].values).get("rate", 0.5)))
