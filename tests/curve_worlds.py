"""Curves of `net`, a model trained in epochs, and of `knn`, a model without epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any

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
    """Return a space of one model with two numbers: the final loss and the speed of its curve."""
    return Space("nets", (Step("model", (_NET,)),))


def mixed_nets() -> Space:
    """Return a space of a scaler and two models: `net`, and a model without epochs."""
    models = _NET, algorithm("knn", _K)
    return Space("mixed nets", (Step("scale", (NONE, UNIT)), Step("model", models)))


def net(level: float, rate: float = 0.5) -> Configuration:
    """Return a configuration of `nets`."""
    return Configuration.of(nets(), ("net",), [{"level": float(level), "rate": rate}])


def at(level: float, scale: str = "none") -> Configuration:
    """Return a configuration of `mixed_nets` that uses the net and a choice of scaler."""
    values = {"level": float(level), "rate": 0.5}
    return Configuration.of(mixed_nets(), (scale, "net"), [{}, values])


def knn(k: float, scale: str = "none") -> Configuration:
    """Return a configuration of `mixed_nets` with the model without epochs."""
    return Configuration.of(mixed_nets(), (scale, "knn"), [{}, {"k": float(k)}])


def stretch(
    number: int,
    configuration: Configuration,
    losses: Sequence[float] | float,
    epochs: int | None = None,
    **evaluation: Any,
) -> Trial:
    """Return a finished partial run, with the losses of all epochs or only of the last epoch.

    The number of requested epochs is the number of losses unless given.
    """
    curve = () if isinstance(losses, float) else tuple(losses)
    asked = epochs or len(curve) or T_MAX
    loss = losses if isinstance(losses, float) else min(losses)
    query = Query(configuration, epochs=None if asked == T_MAX else asked)
    known = {"cost_seconds": 1.0, "best_epoch": int(np.argmin(curve)) + 1 if curve else None}
    ended = Evaluation(loss, (loss,), curve=curve, **{**known, **evaluation})
    return Trial(number, query).started().completed(ended)


def crashed(number: int, configuration: Configuration, epochs: int) -> Trial:
    """Return a partial run that failed after a hundred seconds."""
    failure = Failure(FailureKind.CRASHED, "its worker died", cost_seconds=100.0)
    return Trial(number, Query(configuration, epochs=epochs)).started().failed(failure)


def curves_from(
    *trials: Trial, space: Space | None = None
) -> Mapping[Configuration, LearningCurve]:
    """Return the curves of trials, in `nets` or `mixed_nets` unless another space is given."""
    known = nets() if len(trials[0].query.configuration.path) == 1 else mixed_nets()
    return curves_of(recorded(*trials), space or known, CURVES, T_MAX)


def curve(*trials: Trial) -> LearningCurve:
    """Return the curve of the trials of one configuration."""
    (only,) = curves_from(*trials).values()
    return only


def bapi(space: Space | None = None, epochs: int = T_MAX, **options: Any) -> Bapi:
    """Return BAPI, on `nets` unless another space is given."""
    return Bapi(space or nets(), 0, replace(CURVES, epochs=epochs), **options)


def power_law(optimizer: Optimizer, query: Query) -> Evaluation:
    """Return losses that fall to the level of the configuration; an epoch takes 1 to 7 seconds."""
    values = {name: float(value) for name, value in query.configuration["model"].values}
    is_net, t_max = query.configuration.path[-1] == "net", optimizer.objective.epochs or 1
    epochs, rate = query.epochs or t_max, values.get("rate", 0.5)
    end = 5 + 120 * (values.get("level", 0.5) - 0.3) ** 2 + 20 * values.get("k", 0.0)
    t = np.arange(1, epochs + 1) / t_max
    losses = tuple((end + (90 - end) * (1 + exp(4 * rate) * t) ** -1.2).tolist())
    new = share_to_do(query, optimizer) * t_max
    seconds = new * exp(2 * rate)
    step = StepCost("model", 0, seconds, 0.0, hit=False, key=query.configuration.canonical)
    if not is_net:
        return Evaluation(losses[-1], losses[-1:], seconds, seconds)
    of_net = {"curve": losses, "best_epoch": epochs, "resumed_from": round(epochs - new)}
    return Evaluation(losses[-1], losses[-1:], seconds, seconds, (step,), **of_net)
