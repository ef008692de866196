"""Units change nothing: the same queries after a change of units, names or order."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest
from contracts.methods import ALL, EPOCHS
from contracts.optimizer import OBJECTIVE
from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from simulation import share_of
from worlds import algorithm, told

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Evaluation,
    Failure,
    FailureKind,
    NotYet,
    Objective,
    Optimizer,
    Query,
    Space,
    Step,
    StepCost,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.space.vectors import CandidateSpace


@dataclass(frozen=True)
class Units:
    """A study's units and names, and the order in which pending trials are told."""

    kind: str = "percent"
    loss: float = 1.0
    shift: float = 0.0
    seconds: float = 1.0
    renamed: bool = False
    reversed: bool = False


def space_of(name: Callable[[str], str]) -> Space:
    kernel = ConfigurationSpace(
        space=[
            Float("C", (1e-3, 1e3), log=True, default=1.0),
            Categorical("kernel", ["rbf", "poly"], default="rbf"),
            Integer("degree", (2, 5), default=3),
        ]
    )
    kernel.add(EqualsCondition(kernel["degree"], kernel["kernel"], "poly"))
    scale = (
        Algorithm(id=name("none")),
        algorithm(name("unit")),
        algorithm(name("power"), Float("p", (0.5, 2.0), default=1.0)),
    )
    models = (
        algorithm(name("svm"), hyperparameters=kernel),
        algorithm(name("tree"), Integer("depth", (1, 50), log=True, default=5)),
        algorithm(name("bayes")),
        algorithm(name("knn"), Integer("n", (1, 50), log=True, default=5)),
    )
    return Space("toy", (Step(name("scale"), scale), Step(name("model"), models)))


def reverse(name: str) -> str:
    return "".join(chr(219 - ord(c)) for c in name)


WEIGHTS = np.array([0.11, 0.05, 0.02]), np.array([0.08, 0.12, 0.2, 0.1])
BEST = np.array([0.31, 0.62, 0.9, 0.17, 0.41, 0.73])


def grid(x: float) -> float:
    return round(x * 2**20) / 2**20


def run(method: str, options: dict[str, Any], units: Units, n: int) -> list[Any]:
    name = reverse if units.renamed else str
    space = space_of(name)
    encoded = CandidateSpace(space)
    lower, upper = {"percent": (0.0, 1.0), "above": (0.0, inf), "any": (-inf, inf)}[units.kind]
    base = EPOCHS if method == "bapi" else OBJECTIVE
    objective = replace(
        base,
        unit="percent" if units.kind == "percent" else "",
        lower=lower * units.loss + units.shift,
        upper=upper * units.loss + units.shift,
        chance=0.75 * units.loss + units.shift,
        iterative=frozenset(map(name, ("svm", "tree"))),
    )
    optimizer = make_optimizer(method, space, 0, objective, options)
    asked = []
    pending = []
    spent = 0.0
    total = 400.0 * units.seconds
    while len(asked) < n:
        budget = Budget(
            len(asked),
            n - len(asked),
            spent,
            total - spent,
            n_workers=2,
        )
        try:
            query = optimizer.ask(budget)
        except NotYet:
            assert pending
        else:
            point = encoded.encode([query.configuration])
            values = np.where(encoded.active(point)[0], point.units[0], -1.0).tolist()
            asked.append((point.algorithms[0].tolist(), values, query.subset, query.folds, query.epochs))
            pending.append(Trial(len(asked) - 1, query))
            if len(pending) < 2:
                continue
        for trial in pending[::-1] if units.reversed else pending:
            ended = outcome(trial, encoded, objective, units)
            spent += ended.cost_seconds
            optimizer.tell(ended)
        pending = []
    return asked


def outcome(trial: Trial, encoded: CandidateSpace, objective: Objective, units: Units) -> Trial:
    query = trial.query
    point = encoded.encode([query.configuration])
    (i, j), values = point.algorithms[0], point.units[0]
    active = encoded.active(point)[0]
    share = share_of(query, objective)
    loss = WEIGHTS[0][i] + WEIGHTS[1][j] + 0.3 * float((active * (values - BEST[: len(values)]) ** 2).sum())
    worse = 0.1 * (1 - share) * (1 + ((i + j) % 3))
    seconds = share * (0.5 + [0.0, 0.3, 1.0][i] + [4.0, 1.0, 0.2, 0.6][j])
    seconds = grid(seconds) * units.seconds
    number = (i * 5 + j * 3 + int(active @ (values * 7))) % 9
    started = trial.started()
    steps = tuple(
        StepCost(step.name, 0, s * units.seconds, 0.0, False, "")
        for step, s in zip(encoded.space.steps, (grid(share * [0.0, 0.3, 1.0][i]), grid(share * [4.0, 1.0, 0.2, 0.6][j])), strict=True)
    )
    if number == 0:
        return started.failed(Failure(FailureKind.ERROR, "no loss", cost_seconds=seconds, steps=steps))
    told = grid(loss + worse) * units.loss + units.shift
    return started.completed(Evaluation(told, (told,) * 3, seconds, seconds, steps))


OPTIONS = {
    **{name: (name, {}) for name in ALL},
    **{f"{name} paper": (name, {"variant": "paper"}) for name in ("flash", "admm", "fabolas", "bapi")},
    "flash short": ("flash", {"n_init": 6, "n_prune": 4, "r": 2}),
    "admm_tr": ("admm", {"theta_solver": "trust_region"}),
}
for k in ("smac", "tpe", "jopt"):
    OPTIONS[k] = (k, {"n_startup": 4})


@cache
def reference(case: str, kind: str, n: int) -> list[Any]:
    return run(*OPTIONS[case], Units(kind), n)


CHANGES = {
    **{f"{kind} x2^{k}": Units(kind, loss=2.0**k) for kind in ("percent", "above", "any") for k in (-30, -7, 30)},
    **{f"{kind}+1024": Units(kind, shift=1024.0) for kind in ("percent", "above", "any")},
    **{f"seconds 2^{k}": Units(seconds=2.0**k) for k in (-12, -6, 10)},
    "renamed": Units(renamed=True),
    "reversed": Units(reversed=True),
}

if __name__ == "__main__":
    import sys, time
    n = 24
    for case in sys.argv[1:] or OPTIONS:
        t = time.time()
        for label, units in CHANGES.items():
            try:
                a, b = reference(case, units.kind, n), run(*OPTIONS[case], units, n)
            except Exception as e:
                print(case, label, repr(e)[:200])
                continue
            first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
            if first is not None:
                print(f"{case:16} {label:16} differs at {first}", a[first], b[first], flush=True)
        print(case, f"{time.time()-t:.1f} s", flush=True)
