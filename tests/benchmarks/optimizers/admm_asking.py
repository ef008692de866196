"""What ADMM takes to ask over 200 trials.

    tests/benchmarks/run optimizers/admm_asking

The artificial objective on the small space; seconds are processor time of one ask, one thread.
`optimizers/artificial_objective` compares with scikit-optimize.
"""

import warnings
from statistics import median
from time import process_time

from loss_worlds.artificial import A3, ArtificialLoss, artificial_space
from machine import Goals, describe
from threadpoolctl import threadpool_limits
from worlds import told

from prefect_tune.optimizers import Admm, Budget, Objective

UNIT = Objective("artificial", "", 0.0, 1.0)
N_TRIALS = 200


def asks(optimizer: Admm) -> list[float]:
    """Seconds of each ask."""
    loss_of, seconds = ArtificialLoss(A3, 0), []
    for number in range(N_TRIALS):
        started = process_time()
        query = optimizer.ask(Budget(trials_spent=number, trials_left=N_TRIALS - number))
        seconds.append(process_time() - started)
        optimizer.tell(told(number, query, loss_of(query)))
    return seconds


def main() -> None:
    print(describe())
    warnings.simplefilter("ignore")
    goals = Goals()
    seconds = asks(Admm(artificial_space(A3), 0, UNIT))
    goals.at_most(f"median ask over {N_TRIALS} trials, s", median(seconds), 0.06)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
