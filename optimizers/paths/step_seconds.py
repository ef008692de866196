"""Measured seconds of the steps of a space by algorithm, in the order in which the steps run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.optimizers.trials.trial import Trial


class RunningOrder:
    """The searched steps of any path in running order, and whether that is the declared order."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._position = {s.name: k for k, s in enumerate(space.searched)}
        self._choosing = [k for k, s in enumerate(space.searched) if s.orders]
        self.is_declared = not self._choosing
        self._known: dict[Path, tuple[int, ...]] = {}

    def of(self, path: Path) -> tuple[int, ...]:
        """Return positions of searched steps as they run, without steps that choose an order."""
        chosen = tuple(path[k] for k in self._choosing)
        if chosen not in self._known:
            pipeline = self._space.pipeline(path)
            ran = tuple(self._position[s.name] for s, _ in pipeline if not s.fixed)
            self._known[chosen] = ran
        return self._known[chosen]

    def places(self, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the place at which each step of paths runs, -1 if it does not, shape (n, K)."""
        steps = self._space.searched
        places = np.full(algorithms.shape, -1, dtype=np.intp)
        orders, rows = np.unique(algorithms[:, self._choosing], axis=0, return_inverse=True)
        for i in range(len(orders)):
            of_order = np.flatnonzero(rows.reshape(-1) == i)
            first = algorithms[of_order[0]]
            path = tuple(s.algorithms[a].id for s, a in zip(steps, first, strict=True))
            for place, k in enumerate(self.of(path)):
                places[of_order, k] = place
        return places


Measured = list[defaultdict[int, list[float]]]
"""Seconds over all folds, by step and algorithm."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The seconds of one trial.

    `made` counts each step in full, with hits at their original seconds, `spent` counts this
    trial's time, and `loads` has the seconds of each hit, per fold.
    """

    made: Mapping[str, float]
    spent: Mapping[str, float]
    loads: Sequence[float]
    n_folds: int


class StepSeconds:
    """Reads the seconds of steps from any history."""

    def __init__(self, space: Space, order: RunningOrder) -> None:
        self._order = order
        self._steps = [s.name for s in space.searched]
        self._runs = [not s.orders for s in space.searched]
        self.position = [{a.id: i for i, a in enumerate(s.algorithms)} for s in space.searched]

    def tables(self, history: History) -> tuple[list[Array], float, float]:
        """Return the seconds of each step's algorithms, of one load, and of everything else."""
        made, loads, overhead = self._measured(history)
        known = [x for step in made for values in step.values() for x in values]
        tables = []
        for k, step in enumerate(made):
            seen = {i: float(np.mean(values)) for i, values in step.items()}
            unseen = float(np.mean(list(seen.values()) or known or [0])) if self._runs[k] else 0.0
            tables.append(np.array([seen.get(i, unseen) for i in range(len(self.position[k]))]))
        return tables, float(np.mean(loads)) if loads else 0.0, overhead

    def done_before_failure(self, trial: Trial) -> Sequence[int]:
        """Return the searched steps a failed trial finished, in running order; empty if unknown."""
        ran = self._order.of(trial.query.configuration.path)
        failed = self._failed_step(trial)
        return ran[: ran.index(failed)] if failed in ran else ()

    def _measured(self, history: History) -> tuple[Measured, list[float], float]:
        """Measured seconds of steps by algorithm, of loads, and of all else, for all folds."""
        made: Measured = [defaultdict(list) for _ in self._steps]
        loads: list[float] = []
        rest: list[float] = []
        known = [
            (t, _taken(t.evaluation.steps))
            for t in history
            if t.evaluation is not None
            and t.evaluation.steps
            and t.query.subset == 1.0
            and t.query.epochs is None
        ]
        failed = [(t, _taken(t.failure.steps if t.failure else ())) for t in history.failed]
        n_folds = max((taken.n_folds for _, taken in known + failed), default=1)
        for trial, taken in known:
            algorithms, share = self._algorithms_of(trial), n_folds / taken.n_folds
            for k, step in enumerate(self._steps):
                made[k][algorithms[k]].append(share * taken.made.get(step, 0.0))
            loads += [n_folds * seconds for seconds in taken.loads]
            spent = sum(taken.spent.get(step, 0.0) for step in self._steps)
            rest.append(max(trial.cost_seconds - spent, 0.0))
        typical = [{i: float(np.mean(x)) for i, x in step.items()} for step in made]
        for trial, taken in failed:
            if taken.made:
                self._charge(trial, taken, made, n_folds)
                loads += [n_folds * seconds for seconds in taken.loads]
            else:
                self._blame(trial, made, typical)
        return made, loads, float(np.mean(rest)) if rest else 0.0

    def _charge(self, trial: Trial, taken: _Taken, made: Measured, n_folds: int) -> None:
        """Charge a failed trial to the steps that had ended, and the rest to the failed step."""
        algorithms, failed = self._algorithms_of(trial), self._failed_step(trial)
        for k, step in enumerate(self._steps):
            if step in taken.made and k != failed:
                made[k][algorithms[k]].append((n_folds / taken.n_folds) * taken.made[step])
        if failed is not None:
            name = self._steps[failed]
            others = sum(seconds for step, seconds in taken.spent.items() if step != name)
            served = taken.made.get(name, 0.0) - taken.spent.get(name, 0.0)
            seconds = max(trial.cost_seconds - others + max(served, 0.0), 0.0)
            made[failed][algorithms[failed]].append(seconds)

    def _blame(self, trial: Trial, made: Measured, typical: Sequence[Mapping[int, float]]) -> None:
        """Charge a failed trial without measured steps to one step, less typical earlier steps."""
        if trial.failure is None:
            return
        algorithms = self._algorithms_of(trial)
        failed = self._failed_step(trial)
        k = len(self._steps) - 1 if failed is None else failed
        ran = self._order.of(trial.query.configuration.path)
        earlier = ran[: ran.index(k)] if k in ran else ()
        before = sum(typical[j].get(algorithms[j], 0.0) for j in earlier)
        made[k][algorithms[k]].append(max(trial.failure.cost_seconds - before, 0.0))

    def _algorithms_of(self, trial: Trial) -> list[int]:
        path = trial.query.configuration.path
        return [ids[a] for ids, a in zip(self.position, path, strict=True)]

    def _failed_step(self, trial: Trial) -> int | None:
        """Position of the searched step that failed; if unknown, of the first unfinished step."""
        failure = trial.failure
        if failure is None or (failure.step is None and not failure.steps):
            return None
        if failure.step is not None:
            return self._steps.index(failure.step) if failure.step in self._steps else None
        ended = {cost.step for cost in failure.steps}
        ran = self._order.of(trial.query.configuration.path)
        return next((k for k in ran if self._steps[k] not in ended), ran[-1])


def _taken(costs: Iterable[StepCost]) -> _Taken:
    made: defaultdict[str, float] = defaultdict(float)
    spent: defaultdict[str, float] = defaultdict(float)
    folds, loads = set[int](), []
    for cost in costs:
        made[cost.step] += cost.seconds
        spent[cost.step] += cost.load_seconds + (0.0 if cost.hit else cost.seconds)
        folds.add(cost.fold)
        if cost.hit:
            loads.append(cost.load_seconds)
    return _Taken(made, spent, loads, max(1, len(folds)))
