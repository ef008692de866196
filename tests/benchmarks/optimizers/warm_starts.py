"""Warm studies against cold ones: how soon an earlier run's observations lead to the final loss.

    tests/benchmarks/run optimizers/warm_starts [flash smac tpe] [--seeds 10] [--work 60]

Planted losses of 4 x 3 x 6 x 8 paths, each algorithm with a hyperparameter, with a noise of half a
point. The first night is a cold study. The second night is another world: the same, on another
scale, similar (a fifth of its losses come from elsewhere), or misleading (the ranking is reversed).
There a warm study, after the first night, is compared with a cold one of the same seed. Work is
counted in full evaluations. Losses are of the incumbents, without noise.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from zlib import crc32

from contracts.methods import ALL, Case
from flash_worlds import counted_space, planted_loss
from machine import Goals, describe
from scipy.special import ndtri
from simulation import Simulation, blurred, share_of, share_to_do
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import Optimizer, Prior, PriorTrial, Query, best_and_diverse

COUNTS = (4, 3, 6, 8)
NOISE = 0.5
SHARE = 1 / 3
METHODS = ("flash",)
SECOND = 500
"""Difference of the seeds of the second night."""
Loss = Callable[[Query], float | None]


def worlds(seed: int) -> dict[str, tuple[Loss, Loss]]:
    """The losses of both nights, by the kind of change in between."""
    first, other = planted_loss(COUNTS, seed), planted_loss(COUNTS, 1000 + seed)

    def changed(change: Callable[[float, float], float]) -> Loss:
        def loss(query: Query) -> float | None:
            before, elsewhere = first(query), other(query)
            return None if before is None else change(before, elsewhere or 50.0)

        return loss

    return {
        "same": (first, first),
        "scaled": (first, changed(lambda x, _: 5 + 0.7 * x)),
        "similar": (first, changed(lambda x, y: 0.8 * x + 0.2 * y)),
        "misleading": (changed(lambda x, _: 90 - 0.8 * x), first),
    }


def noisy(loss: float | None, query: Query, night: int) -> float | None:
    if loss is None:
        return None
    text = f"{night}{query.configuration.canonical}"
    return loss + NOISE * float(ndtri((crc32(text.encode()) + 0.5) / 2**32))


@dataclass
class Night:
    """A finished study: the loss of the incumbent after each amount of work."""

    optimizer: Optimizer
    curve: list[tuple[float, float]]

    @classmethod
    def of(cls, case: Case, loss: Loss, seed: int, work: float, prior: Prior | None = None):
        night = seed // SECOND
        optimizer = case.make(counted_space(COUNTS), seed)
        if prior is not None:
            optimizer.begin_after(prior)

        def outcome(query: Query) -> tuple[float | None, float]:
            seen = noisy(loss(query), query, night)
            share = share_of(query, optimizer.objective)
            return blurred(seen, query, share), share_to_do(query, optimizer)

        study = Simulation(optimizer, outcome, 1, None, work, is_end_told=True, are_asks_free=True)
        curve = []
        for stretch in study.ends():
            best = optimizer.incumbent
            if best is not None and (value := loss(Query(best.query.configuration))) is not None:
                curve.append((stretch.ended, value))
        return cls(optimizer, curve)

    @property
    def final(self) -> float:
        return self.curve[-1][1]

    def work_until(self, loss: float) -> float:
        """Work after which the incumbent is this good; infinite if it never is."""
        return next((work for work, value in self.curve if value <= loss + 1e-9), float("inf"))

    def prior(self, n_start: int) -> Prior:
        trials = tuple(
            PriorTrial(trial.query.configuration, trial.evaluation.loss)
            for trial in self.optimizer.history.complete
        )
        return Prior(trials, best_and_diverse(trials, n_start), "last night")


@dataclass(frozen=True)
class Comparison:
    """A warm and a cold study: work to the cold final loss, and the final losses."""

    warm_work: float
    cold_work: float
    warm: float
    cold: float
    weight: float

    @classmethod
    def of(cls, case: Case, pair: tuple[Loss, Loss], seed: int, work: float, n_start: int):
        before, after = pair
        prior = Night.of(case, before, seed, work).prior(n_start)
        cold = Night.of(case, after, SECOND + seed, work)
        warm = Night.of(case, after, SECOND + seed, work, prior)
        return cls(
            warm.work_until(cold.final),
            cold.work_until(cold.final),
            warm.final,
            cold.final,
            warm.optimizer.decisions["prior"]["weight"],
        )


def report(name: str, seeds: int, work: float, n_start: int, goals: Goals) -> None:
    """Print a row for each kind of change."""
    case = ALL[name]
    for kind in worlds(0):
        found = [Comparison.of(case, worlds(s)[kind], s, work, n_start) for s in range(seeds)]
        share = median(c.warm_work for c in found) / work
        of_cold = median(c.cold_work for c in found) / work
        gain = median(c.cold - c.warm for c in found)
        n_worse = sum(c.warm > c.cold + NOISE for c in found)
        print(
            f"{name:10} {kind:10} work to the cold loss: warm {share:5.2f}, cold {of_cold:.2f} of "
            f"the budget; final loss: warm {median(c.warm for c in found):.2f}, cold "
            f"{median(c.cold for c in found):.2f}, gain {gain:+.2f}, worse by {NOISE} in "
            f"{n_worse} of {seeds}; weight {median(c.weight for c in found):.2f}",
            flush=True,
        )
        if name in METHODS and kind == "misleading":
            goals.at_least(f"{name}, {kind}: median gain", gain, -NOISE / 2)
        elif name in METHODS:
            goals.at_most(f"{name}, {kind}: share of the work", share, SHARE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--work", type=float, default=60.0)
    parser.add_argument("--start", type=int, default=8)
    given = parser.parse_args()
    print(describe())
    goals = Goals()
    for name in given.methods:
        report(name, given.seeds, given.work, given.start, goals)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
