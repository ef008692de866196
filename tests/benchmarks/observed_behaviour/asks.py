"""The first 40 asks of every method and kept variant, on three worlds with four workers.

    python -m observed_behaviour.asks OUT.json [--only bapi ...]

A world is a space and the outcome of each query, which depends on nothing but the query: its loss,
the seconds of each step, measured quantities, and whether it fails. Workers are simulated, so the
same code asks the same whatever the machine does.
"""

import argparse
import json
import math
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
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

from observed_behaviour.internals import internal, made
from prefect_tune import optimizers
from prefect_tune.optimizers import (
    METHODS,
    Algorithm,
    Budget,
    Constraint,
    Evaluation,
    Failure,
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

__all__ = ["VARIANTS", "WORLDS", "World", "asks", "observed"]

N_ASKS = 40
N_WORKERS = 4
FOLDS, EPOCHS = 3, 27
ASK_SECONDS = 0.1
_KIND = getattr(optimizers, "FailureKind", str)  # older revisions have no such class
_OF_OLDER = hasattr(optimizers.Optimizer, "can_go_on")
_RESUMES = "can_go_on" if _OF_OLDER else "resumes_configurations"
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "flash": ({"variant": "paper"}, {"n_init": 6, "n_prune": 4, "r": 3, "keep": 0.0}),
    "admm": ({"variant": "paper"}, {"theta_solver": "trust_region"}, {"rho": 0.0, "rho_g": 1.0}),
    "fabolas": ({"variant": "paper"},),
    "bapi": (
        {"variant": "paper"},
        {"horizon": 1},
        {"p": 0.3, "epsilon": 0.02, "n_first": 6},
    ),
    "bohb": ({"fidelity": "folds"}, {"fidelity": "subset"}),
    "hyperband": ({"fidelity": "folds"}, {"fidelity": "subset"}),
    "halving": ({"fidelity": "folds"}, {"fidelity": "subset"}),
}
"""Options of each method besides its defaults, which always run."""
RACED = ("flash", "smac", "tpe", "random")

Outcome = tuple[Any, float]
"""An evaluation or a failure, and the seconds that it took."""


@dataclass
class World:
    """A space, what is known of its objective, and the outcome of each query.

    Attributes:
        space: The space.
        objective: What methods are told of the objective.
        trials: Configurations that may be begun; None for no limit.
        seconds: Worker-seconds of the budget; None for no limit.
    """

    space: Space
    objective: Objective
    trials: int | None
    seconds: float | None
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    _cached: set[str] = field(default_factory=set)

    def outcome(self, query: Query, bootstraps: int) -> Outcome:
        """Return the outcome of a query; epochs and folds of earlier ones are resumed.

        Args:
            query: The query.
            bootstraps: How many risks a full evaluation has.
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
            kind = _KIND(("error", "timeout", "memory")[crc32(key.encode()) % 3])
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
        evaluation = made(
            Evaluation,
            loss=loss,
            fold_losses=of_folds,
            cost_seconds=seconds,
            cost_uncached_seconds=sum(s.seconds for s in steps) + 0.25,
            steps=steps,
            constraints={
                c.name: c.bound * math.exp(2 * _unit(f"{configuration.path}/{c.name}") - 1.4)
                for c in self.objective.constraints
            },
            curve=tuple(curve) if trains else (),
            fold_curves=tuple(tuple(curve) for _ in range(folds)) if trains else (),
            best_epoch=curve.index(min(curve)) + 1 if trains else None,
            resumed_from=old_epochs if trains else old_folds,
            risks=tuple(
                loss + 3 * (_unit(f"{key}/risk{b}") - 0.5) for b in range(bootstraps)
            ) if query.is_full else (),
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
    """Return the queries of an optimizer in the order of its asks, and its answer."""
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
            if left == 0 and not getattr(optimizer, _RESUMES):
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
            queries.append(_document(query))
            came, seconds = world.outcome(query, bootstraps)
            heappush(running, (now + seconds, number, came, seconds))
        if not running:
            break
        now, number, came, seconds = heappop(running)
        trial = Trial(number, optimizer.history[number].query).started()
        is_failure = isinstance(came, Failure)
        completed = getattr(trial, "ended", trial.completed)  # older revisions have two functions
        optimizer.tell(trial.failed(came) if is_failure else completed(came))
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
    """One step of three models without conditions, no constraint, no limit but the trials."""
    models = (
        _algorithm("net", Float("rate", (1e-5, 1.0), log=True), Integer("width", (2, 200))),
        _algorithm("trees", Integer("depth", (1, 40)), Categorical("rule", ["a", "b", "c"])),
        _algorithm("line", Float("penalty", (0.0, 1.0))),
    )
    space = Space("flat", (Step("model", models),))
    return World(space, _objective(iterative=("net", "trees")), None, 900.0)


def conditional() -> World:
    """Two steps with conditions, a forbidden pair, forbidden values, and a constraint."""
    kernel = ConfigurationSpace(
        space=[
            Float("C", (1e-3, 1e3), log=True),
            Categorical("kernel", ["rbf", "poly", "linear"]),
            Integer("degree", (2, 5)),
            Float("gamma", (1e-4, 10.0), log=True),
        ],
        seed=0,
    )
    kernel.add(EqualsCondition(kernel["degree"], kernel["kernel"], "poly"))
    kernel.add(EqualsCondition(kernel["gamma"], kernel["kernel"], "rbf"))
    grid = ConfigurationSpace(space=[Categorical("a", ["x", "y"]), Categorical("b", [1, 2, 3])])
    grid.add(
        ForbiddenAndConjunction(
            ForbiddenEqualsClause(grid["a"], "y"), ForbiddenEqualsClause(grid["b"], 2)
        )
    )
    before = (Algorithm(id="none"), Algorithm(id="unit", estimator="x.Unit"))
    models = (
        Algorithm(id="svm", estimator="x.Svm", hyperparameters=kernel),
        Algorithm(id="grid", estimator="x.Grid", hyperparameters=grid),
        _algorithm("net", Float("rate", (1e-5, 1.0), log=True)),
        Algorithm(id="bayes", estimator="x.Bayes", ignores=("scale",)),
    )
    power = _algorithm("power", Float("p", (0.5, 2.0)), Integer("bins", (2, 64), log=True))
    space = Space(
        "conditional",
        (Step("scale", (*before, power)), Step("model", models)),
        forbidden=frozenset({(("scale", "none"), ("model", "svm"))}),
    )
    objective = _objective(("latency_us",), iterative=("net", "svm"))
    return World(space, objective, N_ASKS, None)


def healthcare() -> World:
    """The catalogue's space for patients' events, with two constraints and both limits."""
    space = internal("space_named")("healthcare")
    models = sorted(a.id for a in space.steps[-1].algorithms)
    objective = _objective(("latency_us", "model_size_bytes"), iterative=models[::2])
    return World(space, objective, 60, 1200.0)


WORLDS: Mapping[str, Callable[[], World]] = {
    "flat": flat, "conditional": conditional, "healthcare": healthcare
}  # fmt: skip


def observed(only: tuple[str, ...] = (), worlds: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the asks of each method and variant in each world; a refusal is its message."""
    found: dict[str, Any] = {}
    for method in METHODS:
        if only and method not in only:
            continue
        variants: tuple[Mapping[str, Any], ...] = ({}, *VARIANTS.get(method, ()))
        for options in variants:
            name = ":".join([method, *(f"{k}={v}" for k, v in options.items())])
            found[name] = _in_worlds(method, options, worlds, name)
        if method in RACED:
            name = f"{method} raced"
            found[name] = _in_worlds(method, {}, worlds, name, raced=True)
    return found


def _in_worlds(
    method: str,
    options: Mapping[str, Any],
    worlds: tuple[str, ...],
    name: str,
    *,
    raced: bool = False,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for world_name, make in WORLDS.items():
        if worlds and world_name not in worlds:
            continue
        started = time.perf_counter()
        world = make()
        try:
            optimizer = make_optimizer(method, world.space, 7, world.objective, options)
        except (LookupError, TypeError, ValueError) as error:
            found[world_name] = {"refused": f"{type(error).__name__}: {error}"}
            continue
        try:
            found[world_name] = asks(Racing(optimizer) if raced else optimizer, world)
        except Exception as error:
            traceback.print_exc()
            found[world_name] = {"raised": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - started
        print(f"{name} {world_name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return found


def _objective(constraints: tuple[str, ...] = (), *, iterative: Any) -> Objective:
    return Objective(
        chance=50.0,
        constraints=tuple(Constraint(name, 100.0) for name in constraints),
        n_rows=9_000,
        n_held_out=4_500,
        n_classes=2,
        n_rarest=3_000,
        n_folds=FOLDS,
        epochs=EPOCHS,
        iterative=frozenset(iterative),
    )


def _algorithm(name: str, *hyperparameters: Any) -> Algorithm:
    space = ConfigurationSpace(space=list(hyperparameters))
    return Algorithm(id=name, estimator=f"x.{name.title()}", hyperparameters=space)


def _document(query: Query) -> dict[str, Any]:
    return {
        "configuration": json.loads(query.configuration.canonical),
        "folds": query.folds,
        "subset": query.subset,
        "subset_draw": query.subset_draw,
        "epochs": query.epochs,
    }


def _unit(text: str) -> float:
    """A number in [0, 1) that a text decides."""
    return crc32(text.encode()) / 2**32


def _failing(configuration: Any) -> int | None:
    """The position of the step at which a configuration fails; None if it does not."""
    number = crc32(f"fails {configuration.canonical}".encode())
    return number // 12 % len(configuration.path) if number % 12 == 0 else None


def _level(configuration: Any) -> float:
    """The loss after a full training: a weight of each algorithm, and a bowl of its values."""
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
    found = observed(tuple(chosen.only), tuple(chosen.worlds))
    chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
