"""How well the end of learning curves is predicted from the first fifth of them.

    tests/benchmarks/run optimizers/extrapolation FOLDER [--tables histgb,puma8NH,mlp,...]
        [--draws 40] [--method bapi:score=raw]

FOLDER keeps the tables of `curve_tables`. Each draw takes 20 configurations of a table: all known
up to a fifth of their epochs (0+20), or 8 of them to the end (8+12). What bapi learns of them
predicts the least loss at the end of the others; errors are mean absolute ones in percent points,
with standard errors over the draws, and beside them what they are relative to the plain process:
the same kernel, theta and points of the curves, but nothing known of slopes. Besides: the last
value known as prediction; sites at all of some times (2 spaced evenly, 3 and 5 evenly by the
logarithm); and what bapi uses, sites where the mean falls otherwise. `with floor` is the latter
where no prediction is worse than what is known already. Falling are steps from epoch to epoch in
which the mean gets worse.
"""

import argparse
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from anytime import Contestant
from curve_replay import objective_of
from curve_tables import Table, load_table
from machine import Goals, describe
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import History, Query, Trial, TrialState
from prefect_tune.optimizers.methods.bapi.curves import curves_of
from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner
from prefect_tune.optimizers.surrogates.monotone import MonotoneProcess, at_times
from prefect_tune.optimizers.trials.outcome import Evaluation

BOOSTING, NETWORKS = ("histgb", "puma8NH"), ("mlp", "olivetti")
TABLES = (*BOOSTING, *NETWORKS, "mnist_t10k", "sgd", "pipe")
DESIGNS = {"0+20": (0, 20), "8+12": (8, 12)}
SHARE = 0.2
EVERYWHERE: dict[str, Callable[[int], np.ndarray]] = {
    "2 linspace": lambda t_max: np.linspace(1 / t_max, 1.0, 2),
    "3 log-spaced": lambda t_max: np.geomspace(1 / t_max, 1.0, 3),
    "5 log-spaced": lambda t_max: np.geomspace(1 / t_max, 1.0, 5),
}


@dataclass(frozen=True)
class Draw:
    """What is believed of some curves, and the truth of those that are not known to their end.

    Attributes:
        belief: As bapi has it.
        inputs: Of the unfinished configurations, shape (m, width).
        last: Their last losses known, least so far, shape (m,).
        truth: Their least losses of all, shape (m,).
    """

    belief: CurveBelief
    inputs: np.ndarray
    last: np.ndarray
    truth: np.ndarray

    @property
    def plain(self) -> MonotoneProcess:
        """The process that knows nothing of slopes."""
        return MonotoneProcess.of(self.belief.process.process, np.empty((0, self.width + 1)))

    @property
    def width(self) -> int:
        """Number of inputs before t."""
        return int(self.inputs.shape[1])

    def on(self, times: np.ndarray) -> MonotoneProcess:
        """The process with sites at all of these times of the unfinished curves."""
        sites = at_times(self.belief.at(self.inputs, 1), self.width, times)
        return MonotoneProcess.of(self.belief.process.process, sites, only_falling=False)

    def outcomes(self) -> Iterator[tuple[str, float, float | None]]:
        """Each way of predicting, with its mean absolute error and its share of falling steps."""
        yield "last value", self._error(self.last), None
        t_max = self.belief.t_max
        told = {name: self.on(times(t_max)) for name, times in EVERYWHERE.items()}
        for name, process in {"plain": self.plain, **told, "bapi": self.belief.process}.items():
            rows = at_times(self.belief.at(self.inputs, 1), self.width, _epochs(t_max) / t_max)
            scores = process.predict(rows)[0].reshape(-1, t_max)
            losses = self.belief.scores.losses(scores[:, -1])
            yield name, self._error(losses), float((np.diff(scores) < 0).mean())
        yield "with floor", self._error(np.minimum(losses, self.last)), None

    def _error(self, losses: np.ndarray) -> float:
        return float(np.abs(losses - self.truth).mean())


def _epochs(t_max: int) -> np.ndarray:
    return np.arange(1, t_max + 1)


def drawn(name: str, table: Table, design: str, number: int, settings: Settings) -> Draw:
    """A draw of a table."""
    n_known, n_unfinished = DESIGNS[design]
    rng = np.random.default_rng([zlib.crc32(f"{name} {design}".encode()), number])
    places = rng.permutation(len(table.configurations))[: n_known + n_unfinished]
    objective, t_max = objective_of(name, table), table.epochs
    early = int(SHARE * t_max)
    history = History()
    for k, place in enumerate(places):
        epochs = t_max if k < n_known else early
        curve = tuple(map(float, table.losses[place, :epochs]))
        query = Query(table.configurations[place], epochs=None if epochs == t_max else epochs)
        state = TrialState.COMPLETE if query.is_full else TrialState.STOPPED
        evaluation = Evaluation(min(curve), (min(curve),), curve=curve)
        history.record(Trial(k, query, state, evaluation))
    learner = CurveLearner(table.space, objective, settings, t_max)
    curves = list(curves_of(history, table.space, objective, t_max).values())
    belief, _ = learner.learn(curves, {}, rng)
    unfinished = places[n_known:]
    candidates = learner.inputs.encode(table.configurations[place] for place in unfinished)
    least = np.minimum.accumulate(table.losses[unfinished], axis=1)
    return Draw(belief, learner.inputs.of(candidates), least[:, early - 1], least[:, -1])


def print_table(name: str, table: Table, draws: int, settings: Settings) -> dict[str, float]:
    """Print all figures of a table; return, by design, how the error is relative to the plain."""
    relative = {}
    for design in DESIGNS:
        errors: dict[str, list[float]] = {}
        falling: dict[str, list[float]] = {}
        for number in range(draws):
            for way, error, share in drawn(name, table, design, number, settings).outcomes():
                errors.setdefault(way, []).append(error)
                if share is not None:
                    falling.setdefault(way, []).append(share)
        plain = float(np.mean(errors["plain"]))
        print(f"{name}, {design}")
        for way, values in errors.items():
            mean, deviation = float(np.mean(values)), float(np.std(values) / np.sqrt(draws))
            falls = f"{np.mean(falling[way]):5.1%} falling" if way in falling else ""
            print(f"  {way:13} {mean:6.3f} ± {deviation:.3f} {mean / plain - 1:+5.0%}  {falls}")
        relative[design] = float(np.mean(errors["bapi"])) / plain
    return relative


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--method", default="bapi")
    options = parser.parse_args()
    settings = Settings.of(BapiOptions(**Contestant.of(options.method).options))
    print(describe())
    print(f"{options.method}, {options.draws} draws")
    goals = Goals()
    for name in options.tables.split(","):
        table = load_table(name, options.folder)
        relative = print_table(name, table, options.draws, settings)["0+20"]
        if name in BOOSTING:
            goals.at_most(f"error of {name} by that of the plain process", relative, 0.75)
        if name in NETWORKS:
            goals.at_most(f"error of {name} by that of the plain process", relative, 1.05)
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
