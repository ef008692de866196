"""Hyperband on simulated workers: how busy 16 are, and that nothing is trained twice.

    tests/benchmarks/run optimizers/brackets

Eta 3 and four rungs, over epochs (27) and over subsets. Nothing is trained: a full evaluation takes
simulated seconds, log-normal over configurations with deviation 1 of the logarithm, parts of it in
proportion; epochs are gone on from, a subset is a training of its own. The cost of whole rounds is
compared with the sum of the stretches in the table of brackets, at the mean seconds of those that
ran. The goal of busy workers holds while configurations may be begun (a time budget). The end of a
trial budget is said beside it: the last survivors go on one after another, however many workers
there are, and the longest takes many times the mean.
"""

from math import exp
from zlib import crc32

import numpy as np
from flash_worlds import counted_space
from machine import Goals, describe
from simulation import Outcome, Simulation, share_of, share_to_do

from prefect_tune.optimizers import Objective, Query, make_optimizer
from prefect_tune.optimizers.methods.halving import hyperband_plan

N_WORKERS = 16
ROUND = 27 + 12 + 6 + 4
OBJECTIVE = Objective(
    epochs=27, iterative=frozenset({"a0"}), n_rows=27_000, n_classes=2, n_rarest=9_000, n_folds=3
)


def simulated(
    method: str,
    fidelity: str,
    *,
    is_even: bool = False,
    n_workers: int = N_WORKERS,
    **limits: float,
) -> Simulation:
    """A study whose full evaluations take one second each, or as they come."""
    space = counted_space((3, 4), 2)
    optimizer = make_optimizer(method, space, 0, OBJECTIVE, {"fidelity": fidelity, "n_rungs": 4})

    def outcome(query: Query) -> Outcome:
        u = crc32(query.configuration.canonical.encode()) / 2**32
        z = np.sqrt(2) * np.sqrt(-np.log(1 - u)) * np.cos(2 * np.pi * (1e4 * u % 1))
        share = (
            share_to_do(query, optimizer) if fidelity == "epochs" else share_of(query, OBJECTIVE)
        )
        return 100 * ((1e3 * u) % 1), share * (1.0 if is_even else exp(z))

    return Simulation(optimizer, outcome, n_workers, **limits)  # type: ignore[arg-type]


def stretches_of_a_round(*, goes_on: bool) -> float:
    """Full evaluations that a round of four rungs is, from the table of brackets."""
    total = 0.0
    for index in range(4):
        plan = hyperband_plan(index, 4, 3)
        n, below = plan.size, 0.0
        for rung in range(plan.first, 4):
            share = 3.0 ** (rung - 3)
            total += n * (share - below)
            n, below = max(1, n // 3), share if goes_on else 0.0
    return total


def main() -> None:
    print(describe())
    goals = Goals()
    for fidelity in ("epochs", "subset"):
        study = simulated("hyperband", fidelity, is_even=True, n_workers=4, trials=10 * ROUND).run()
        cost = sum(s.ended - s.started for s in study.stretches)
        expected = 10 * stretches_of_a_round(goes_on=fidelity == "epochs")
        print(
            f"{fidelity}: ten rounds, {10 * ROUND} configurations in {len(study.stretches)} "
            f"stretches: {cost:.2f} full evaluations; the stretches of the table {expected:.2f}"
        )
        goals.at_most(f"cost / sum of stretches, {fidelity}", cost / expected, 1.05)
        for method in ("halving", "hyperband", "bohb"):
            timed = simulated(method, fidelity, seconds=40.0).run()
            counted = simulated(method, fidelity, trials=500).run()
            end = max(s.ended for s in counted.stretches)
            busy = timed.busy_share(40.0)
            print(
                f"{fidelity}, {method}: {len(timed.stretches)} stretches in 40 s, waited "
                f"{timed.n_waits} times; 500 configurations in {end:.1f} s, busy "
                f"{100 * counted.busy_share(end):.1f} %, waited {counted.n_waits} times"
            )
            goals.at_least(f"16 workers busy in 40 s, {method} over {fidelity}", busy, 0.9)
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
