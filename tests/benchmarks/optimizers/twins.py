"""Two problems alike in full: in one subsets tell what is good, in the other they tell nothing.

    tests/benchmarks/run optimizers/twins FOLDER [--methods fabolas,fabolas:gate=false,ei]
        [--seeds 6]

The loss is `|x - x*|^2 + 0.2 (1 - s)^2` with noise of sd 0.003, `s` the size of the subset on a
logarithmic scale from 1/256, and an evaluation costs `60^(s - 1)` of a full one. The bad twin has
at `s < 0.8` noise alone, with the mean and about the spread of the losses. Costs are in full
evaluations until the incumbent is within 0.03 sqrt(d) of x*, and stays there; a full one takes
1000 s of the simulated clock, on which asks take the processor time that they take here. FOLDER
keeps the runs (`twin_runs.jsonl`); those that are there are not run again.
"""

import argparse
import math
import zlib
from pathlib import Path

import numpy as np
from anytime import Contestant, Curve, Curves, named, watched
from ConfigSpace import ConfigurationSpace, Float
from machine import Goals, describe
from simulation import Outcome
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import (
    Algorithm,
    Configuration,
    Objective,
    Query,
    Space,
    Step,
    make_optimizer,
)

BEST = (0.37, 0.62)
N_ROWS, LEAST_SHARE = 12_800, 1 / 256
NOISE, DROP, FULL_SECONDS = 0.003, 60.0, 1000.0
SIGNAL_FROM = 0.8
WITHIN = 0.03
MOST = 40.0
"""Full evaluations after which every run ends."""
EVALUATIONS = {"fabolas": 100, "ei": 40}
OBJECTIVE = Objective(
    metric="twin",
    unit="",
    lower=-math.inf,
    upper=math.inf,
    n_rows=N_ROWS,
    n_held_out=2_000,
    n_classes=0,
    n_folds=1,
)


class Twin:
    """One of the problems, with its own noise.

    Attributes:
        space: As many hyperparameters as it has dimensions, in [0, 1].
        best: Where the loss of full evaluations is least.
    """

    def __init__(self, n_dimensions: int, seed: int, *, is_good: bool) -> None:
        names = [f"x{i}" for i in range(n_dimensions)]
        cube = ConfigurationSpace(space=[Float(n, (0.0, 1.0), default=0.5) for n in names])
        model = Algorithm(id="twin", estimator="x.Twin", hyperparameters=cube)
        self.space = Space("twin", (Step("model", (model,)),))
        self.best = np.array(BEST[:n_dimensions])
        self.is_good = is_good
        self._rng = np.random.default_rng(seed)
        distances = ((self._rng.random((10_000, n_dimensions)) - self.best) ** 2).sum(axis=1)
        self._mean, self._spread = float(distances.mean()), float(distances.std())

    def outcome(self, query: Query) -> Outcome:
        """Loss and seconds."""
        s = max(1 + math.log(query.subset) / math.log(1 / LEAST_SHARE), 0.0)
        loss = self.distance(query.configuration) ** 2 + self._rng.normal(0, NOISE)
        if not self.is_good and s < SIGNAL_FROM:
            loss = self._rng.normal(self._mean, self._spread)
        return float(loss + 0.2 * (1 - s) ** 2), FULL_SECONDS * DROP ** (s - 1)

    def distance(self, configuration: Configuration) -> float:
        """How far it is from the best."""
        values = [value for _, value in dict(configuration.choices)["model"].values]
        return float(np.linalg.norm(np.array(values) - self.best))


def run(contestant: Contestant, n_dimensions: int, seed: int, *, is_good: bool) -> Curve:
    """One run of a method on one of the problems."""
    number = zlib.crc32(f"twin{n_dimensions}{seed}".encode())
    twin = Twin(n_dimensions, number, is_good=is_good)
    optimizer = make_optimizer(contestant.method, twin.space, number, OBJECTIVE, contestant.options)
    return watched(
        optimizer,
        twin.outcome,
        twin.distance,
        evaluations=EVALUATIONS.get(contestant.method, 1_000),
        seconds=MOST * FULL_SECONDS,
    )


def report(text: str, curves: list[Curve], within: float) -> float:
    """Print what a method needed; return the median cost."""
    costs = [c.lasting(within) / FULL_SECONDS for c in curves]
    far = [c.worths[-1] for c in curves]
    n_full = [sum(s == 1 for s in c.shares) for c in curves]
    spent = np.median([c.ends[-1] for c in curves]) / FULL_SECONDS
    ask = np.median(np.concatenate([c.asks for c in curves]))
    n = np.median([len(c.ends) for c in curves])
    print(
        f"  {text}: {np.median(costs):.2f} full evaluations; at the end {np.median(far):.3f} from "
        f"the best (worst {max(far):.3f}) after {spent:.1f} in {n:.0f} evaluations, "
        f"{np.median(n_full):.0f} full; ask {ask:.3f} s"
    )
    print(f"    each seed: {' '.join(f'{x:.2f}' for x in costs)}", flush=True)
    return float(np.median(costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--methods", default="fabolas,fabolas:gate=false,ei")
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    print(describe())
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = Curves(folder / "twin_runs.jsonl")
    goals = Goals()
    for n_dimensions in (1, 2):
        for is_good in (True, False):
            name = f"{'good' if is_good else 'bad'} twin, d = {n_dimensions}"
            print(name)
            medians = {}
            for contestant in named(options.methods):
                curves = [
                    runs.get(
                        {"twin": name, "method": contestant.text, "seed": seed},
                        lambda c=contestant, d=n_dimensions, s=seed, g=is_good: run(
                            c, d, s, is_good=g
                        ),
                    )
                    for seed in range(options.seeds)
                ]
                within = WITHIN * math.sqrt(n_dimensions)
                medians[contestant.text] = report(contestant.text, curves, within)
            if not is_good and {"fabolas", "ei"} <= medians.keys():
                goals.at_most(f"{name}: fabolas / ei", medians["fabolas"] / medians["ei"], 1.3)
            if is_good and {"fabolas", "fabolas:gate=false"} <= medians.keys():
                ratio = medians["fabolas"] / medians["fabolas:gate=false"]
                goals.at_most(f"{name}: with the gate / without", ratio, 1.1)
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
