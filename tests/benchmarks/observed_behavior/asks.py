"""The first 40 proposals of every method and variant, on three worlds with four workers.

    python -m observed_behavior.asks OUT.json [--only bapi ...]

A world is a space and the outcome of each query, which depends only on the query: loss, seconds of
each step, measured quantities, or a failure. Workers are simulated, so the same code makes the same
proposals on any machine.
"""

import argparse
import json
import math
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any
from zlib import crc32

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    Integer,
)

from observed_behavior.product import made
from prefect_tune.optimizers import (
    METHODS,
    Algorithm,
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    NotYet,
    Objective,
    Query,
    Racing,
    Space,
    SpaceExhausted,
    Step,
    StepCost,
    Trial,
    make_optimizer,
)
from prefect_tune.tasks.catalogue.spaces import space_named

__all__ = ["VARIANTS", "WORLDS", "World", "asks", "observed"]

N_ASKS = 40
N_WORKERS = 4
FOLDS, EPOCHS = 3, 27
ASK_SECONDS = 0.1
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "flash": ({"variant": "paper"}, {"n_init": 6, "n_prune": 4, "r": 3}),
    "admm": ({"variant": "paper"}, {"rho": 0.1}),
    "fabolas": ({"variant": "paper"},),
    "bapi": ({"variant": "paper"}, {"horizon": 4}, {"p": 0.3, "epsilon": 0.02, "n_first": 6}),
    "bohb": ({"fidelity": "folds"}, {"fidelity": "subset"}),
    "hyperband": ({"fidelity": "folds"}, {"fidelity": "subset"}),
    "halving": ({"fidelity": "folds"}, {"fidelity": "subset"}),
}
"""Options of each method in addition to its defaults, which always run."""
RACED = ("flash", "smac", "tpe", "random")


@dataclass
class World:
    """A space, its objective, and the outcome of each query.

    Attributes:
        space: The space.
        objective: Objective as methods see it.
        trials: Maximum number of configurations to start; None for no limit.
        seconds: Worker-seconds of the budget; None for no limit.
    """

    space: Space
    objective: Objective
    trials: int | None
    seconds: float | None
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    _cached: set[str] = field(default_factory=set)

    def outcome(self, query: Query, bootstraps: int) -> tuple[Any, float]:
        """Return an evaluation or a failure, and the seconds.

        Epochs and folds that earlier queries have trained take no seconds again.
        """
        configuration = query.configuration
        folds = query.folds or FOLDS
        is_iterative = configuration.path[-1] in self.objective.iterative
        epochs = (query.epochs or EPOCHS) if is_iterative else EPOCHS
        key = f"{configuration.canonical}/{query.subset}/{query.subset_draw}"
        old_epochs, old_folds = self._begun.get(key, (0, 0))
        share = query.subset * (epochs * folds - old_epochs * old_folds) / (EPOCHS * FOLDS)
        failing = _failing(configuration)
        steps = tuple(self._steps(query, max(share, 0.0), folds, until=failing))
        seconds = sum(s.load_seconds if s.hit else s.seconds for s in steps) + 0.25
        if failing is not None:
            kind = FailureKind(("error", "timeout", "memory")[crc32(key.encode()) % 3])
            failure = made(
                Failure, kind=kind, message="planted", step=self._names[failing], fold=0,
                cost_seconds=seconds, steps=steps,
            )  # fmt: skip
            return failure, seconds
        self._begun[key] = (epochs, folds)
        known = 1 - query.subset * folds / FOLDS
        base = _level(configuration) + 6 * known * (0.5 + _unit(f"{key}/{folds}"))
        curve = [base + 30 * math.exp(-6 * (e + 1) / EPOCHS) for e in range(epochs)]
        trains = is_iterative and self.objective.epochs is not None
        loss = min(min(curve) if trains else curve[-1], 95.0)
        of_folds = tuple(loss + 0.5 * (_unit(f"{key}/fold{k}") - 0.5) for k in range(folds))
        quantities = {
            c.name: c.bound * math.exp(2 * _unit(f"{configuration.path}/{c.name}") - 1.4)
            for c in self.objective.constraints
        }
        n_risks = bootstraps if query.is_full else 0
        evaluation = made(
            Evaluation, loss=loss, fold_losses=of_folds, cost_seconds=seconds, steps=steps,
            cost_uncached_seconds=sum(s.seconds for s in steps) + 0.25, constraints=quantities,
            curve=tuple(curve) if trains else (),
            fold_curves=(tuple(curve),) * folds if trains else (),
            best_epoch=curve.index(min(curve)) + 1 if trains else None,
            resumed_from=old_epochs if trains else old_folds,
            risks=tuple(loss + 3 * (_unit(f"{key}/risk{b}") - 0.5) for b in range(n_risks)),
        )  # fmt: skip
        return evaluation, seconds

    @property
    def _names(self) -> list[str]:
        return [step.name for step in self.space.steps]

    def _steps(
        self, query: Query, share: float, folds: int, until: int | None
    ) -> Iterator[StepCost]:
        chosen = dict(query.configuration.choices)
        for fold in range(folds):
            prefix = f"{query.subset}/{query.subset_draw}/{fold}"
            for k, name in enumerate(self._names):
                if until is not None and k >= until:
                    break
                choice = chosen.get(name)
                prefix += f"/{name}:{choice.algorithm}{sorted(choice.values)}" if choice else name
                is_last = k == len(self._names) - 1
                rate = 0.2 + 4 * _unit(f"{name}/{choice.algorithm if choice else ''}") ** 2
                seconds = rate * (3 * share if is_last else query.subset) * FOLDS / max(folds, 1)
                hit = prefix in self._cached and not is_last
                self._cached.add(prefix)
                yield made(
                    StepCost, step=name, fold=fold, seconds=seconds, load_seconds=0.01,
                    hit=hit, key=f"{crc32(prefix.encode()):08x}",
                )  # fmt: skip


def asks(optimizer: Any, world: World) -> dict[str, Any]:
    """Return the queries of an optimizer in order, and its incumbent."""
    queries: list[dict[str, Any]] = []
    running: list[tuple[float, int, Any, float]] = []
    now = spent = 0.0
    n_told = n_waits = 0
    bootstraps = getattr(optimizer.bootstraps, "n", 0)
    end = "all asked"
    while len(queries) < N_ASKS or running:
        while len(running) < N_WORKERS and len(queries) < N_ASKS and end == "all asked":
            n_begun = len(optimizer.history.asked)
            left = None if world.trials is None else world.trials - n_begun
            if left == 0 and not optimizer.resumes_configurations:
                end = "all begun"
                break
            budget = Budget(
                trials_spent=n_told,
                trials_left=left,
                seconds_spent=spent,
                seconds_left=None if world.seconds is None else world.seconds - spent,
                ask_seconds=ASK_SECONDS * len(queries),
                n_workers=N_WORKERS,
                last_ask_seconds=(ASK_SECONDS,) * min(len(queries), 10),
            )
            try:
                query = optimizer.ask(budget)
            except NotYet:
                n_waits += 1
                break
            except SpaceExhausted:
                end = "exhausted"
                break
            number = len(queries)
            queries.append(query.to_json())
            came, seconds = world.outcome(query, bootstraps)
            heappush(running, (now + seconds, number, came, seconds))
        if not running:
            break
        now, number, came, seconds = heappop(running)
        trial = Trial(number, optimizer.history[number].query).started()
        is_failure = isinstance(came, Failure)
        optimizer.tell(trial.failed(came) if is_failure else trial.completed(came))
        spent, n_told = spent + seconds, n_told + 1
    chosen = optimizer.incumbent
    return {
        "asks": queries,
        "end": end,
        "waits": n_waits,
        "failed": sum(t.failure is not None for t in optimizer.history),
        "incumbent": None if chosen is None else chosen.number,
        "weights": {str(n): w for n, w in sorted(optimizer.weights.items())},
    }


def flat() -> World:
    """Return a world of one step with three models, limited only by the number of trials."""
    models = (
        _algorithm("net", Float("rate", (1e-5, 1.0), log=True), Integer("width", (2, 200))),
        _algorithm("trees", Integer("depth", (1, 40)), Categorical("rule", ["a", "b", "c"])),
        _algorithm("line", Float("penalty", (0.0, 1.0))),
    )
    space = Space("flat", (Step("model", models),))
    return World(space, _objective(iterative=("net", "trees")), None, 900.0)


def conditional() -> World:
    """Return a world of two steps with conditions, a constraint, and forbidden pairs and values."""
    kind = Categorical("kernel", ["rbf", "poly", "linear"])
    degree, gamma = Integer("degree", (2, 5)), Float("gamma", (1e-4, 10.0), log=True)
    svm = _algorithm("svm", Float("C", (1e-3, 1e3), log=True), kind, degree, gamma)
    svm.hyperparameters.add(EqualsCondition(degree, kind, "poly"))
    svm.hyperparameters.add(EqualsCondition(gamma, kind, "rbf"))
    a, b = Categorical("a", ["x", "y"]), Categorical("b", [1, 2, 3])
    grid = _algorithm("grid", a, b)
    clauses = ForbiddenEqualsClause(a, "y"), ForbiddenEqualsClause(b, 2)
    grid.hyperparameters.add(ForbiddenAndConjunction(*clauses))
    net = _algorithm("net", Float("rate", (1e-5, 1.0), log=True))
    models = (svm, grid, net, Algorithm(id="bayes", estimator="x.Bayes", ignores=("scale",)))
    power = _algorithm("power", Float("p", (0.5, 2.0)), Integer("bins", (2, 64), log=True))
    before = (Algorithm(id="none"), Algorithm(id="unit", estimator="x.Unit"), power)
    forbidden = frozenset({(("scale", "none"), ("model", "svm"))})
    steps = Step("scale", before), Step("model", models)
    space = Space("conditional", steps, forbidden=forbidden)
    objective = _objective(("latency_us",), iterative=("net", "svm"))
    return World(space, objective, N_ASKS, None)


def healthcare() -> World:
    """Return a world in the space for patient events, with two constraints and both limits."""
    space = space_named("healthcare")
    models = sorted(a.id for a in space.steps[-1].algorithms)
    objective = _objective(("latency_us", "model_size_bytes"), iterative=models[::2])
    return World(space, objective, 60, 1200.0)


WORLDS: Mapping[str, Callable[[], World]] = {
    "flat": flat, "conditional": conditional, "healthcare": healthcare
}  # fmt: skip


def observed(only: Collection[str] = (), worlds: Collection[str] = ()) -> dict[str, Any]:
    """Return the proposals, or the refusal, of each method and variant in each world."""
    found: dict[str, Any] = {}
    for method in only or METHODS:
        for options in ({}, *VARIANTS.get(method, ())):
            name = ":".join([method, *(f"{k}={v}" for k, v in options.items())])
            found[name] = {w: _in_world(method, options, w) for w in worlds or WORLDS}
        if method in RACED:
            of_worlds = {w: _in_world(method, {}, w, raced=True) for w in worlds or WORLDS}
            found[f"{method} raced"] = of_worlds
    return found


def _in_world(
    method: str, options: Mapping[str, Any], name: str, *, raced: bool = False
) -> dict[str, Any]:
    started, world = time.perf_counter(), WORLDS[name]()
    try:
        optimizer = make_optimizer(method, world.space, 7, world.objective, options)
    except (LookupError, TypeError, ValueError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    try:
        return asks(Racing(optimizer) if raced else optimizer, world)
    except Exception as error:
        traceback.print_exc()
        return {"raised": f"{type(error).__name__}: {error}"}
    finally:
        seconds = time.perf_counter() - started
        print(f"{method} {options} {name}: {seconds:.1f} s", file=sys.stderr, flush=True)


def _objective(constraints: tuple[str, ...] = (), *, iterative: Any) -> Objective:
    bounds = tuple(Constraint(name, 100.0) for name in constraints)
    return made(
        Objective, chance=50.0, constraints=bounds, n_rows=9_000, n_held_out=4_500, n_classes=2,
        n_rarest=3_000, n_folds=FOLDS, epochs=EPOCHS, iterative=frozenset(iterative),
    )  # fmt: skip


def _algorithm(name: str, *hyperparameters: Any) -> Algorithm:
    space = ConfigurationSpace(space=list(hyperparameters))
    return Algorithm(id=name, estimator=f"x.{name.title()}", hyperparameters=space)


def _unit(text: str) -> float:
    """Return a number in [0, 1) derived from a text."""
    return crc32(text.encode()) / 2**32


def _failing(configuration: Any) -> int | None:
    """Return the position of the step at which a configuration fails, or None."""
    number = crc32(f"fails {configuration.canonical}".encode())
    return number // 12 % len(configuration.path) if number % 12 == 0 else None


def _level(configuration: Any) -> float:
    """Return the loss after full training: a weight per algorithm, and a square per value."""
    total = 5.0
    for step, choice in configuration.choices:
        name = f"{step}/{choice.algorithm}"
        total += 10 * _unit(name)
        for key, value in choice.values:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            size = math.log1p(abs(value)) if is_number else _unit(f"{name}/{key}/{value}")
            total += 8 * (size / (1 + size) - _unit(f"{name}/{key}")) ** 2
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="methods")
    parser.add_argument("--worlds", nargs="+", default=[], choices=WORLDS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found = observed(chosen.only, chosen.worlds)
    chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
