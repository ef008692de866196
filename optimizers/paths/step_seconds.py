"""Measured seconds of the steps of a space, by algorithm."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["StepSeconds"]


class StepSeconds:
    """Reads from any history how long steps take.

    Args:
        space: The space.

    Attributes:
        position: By searched step, the positions of its algorithms by id.
    """

    def __init__(self, space: Space) -> None:
        self._steps = [s.name for s in space.searched]
        self.position = [{a.id: i for i, a in enumerate(s.algorithms)} for s in space.searched]

    def tables(self, history: History) -> tuple[list[NDArray[np.float64]], float, float]:
        """Return the seconds of each step's algorithms, of a load, and of all else."""
        made, loads, overhead = self._measured(history)
        known = [x for step in made for values in step.values() for x in values]
        tables = []
        for k, step in enumerate(made):
            seen = {i: float(np.mean(values)) for i, values in step.items()}
            unseen = float(np.mean(list(seen.values()))) if seen else float(np.mean(known or [0]))
            tables.append(np.array([seen.get(i, unseen) for i in range(len(self.position[k]))]))
        return tables, float(np.mean(loads)) if loads else 0.0, overhead

    def _measured(
        self, history: History
    ) -> tuple[list[defaultdict[int, list[float]]], list[float], float]:
        """Return the measured seconds of steps by algorithm, of loads, and of all else."""
        made: list[defaultdict[int, list[float]]] = [defaultdict(list) for _ in self._steps]
        loads: list[float] = []
        rest: list[float] = []
        for trial in history:
            if trial.evaluation is None or not trial.evaluation.steps:
                continue
            path = trial.query.configuration.path
            seconds = dict.fromkeys(self._steps, 0.0)
            spent = 0.0
            for cost in trial.evaluation.steps:
                if cost.step not in seconds:
                    continue
                seconds[cost.step] += cost.seconds
                spent += cost.load_seconds + (0.0 if cost.hit else cost.seconds)
                if cost.hit:
                    loads.append(cost.load_seconds * _n_folds(trial))
            for k, step in enumerate(self._steps):
                made[k][self.position[k][path[k]]].append(seconds[step])
            rest.append(max(trial.cost_seconds - spent, 0.0))
        typical = [{i: float(np.mean(x)) for i, x in step.items()} for step in made]
        for trial in history.failed:
            self._blame(trial, made, typical)
        return made, loads, float(np.mean(rest)) if rest else 0.0

    def _blame(
        self,
        trial: Trial,
        made: list[defaultdict[int, list[float]]],
        typical: Sequence[Mapping[int, float]],
    ) -> None:
        """Charge a failed trial, less what earlier steps take, to the step that failed.

        It is the last one where that is not known.
        """
        if trial.failure is None:
            return
        algorithms = self._algorithms_of(trial)
        failed = self.failed_step(trial)
        k = len(self._steps) - 1 if failed is None else failed
        before = sum(typical[j].get(algorithms[j], 0.0) for j in range(k))
        made[k][algorithms[k]].append(max(trial.failure.cost_seconds - before, 0.0))

    def _algorithms_of(self, trial: Trial) -> list[int]:
        path = trial.query.configuration.path
        return [ids[a] for ids, a in zip(self.position, path, strict=True)]

    def failed_step(self, trial: Trial) -> int | None:
        """Return position of the searched step in which a trial failed, if it was one."""
        step = trial.failure.step if trial.failure else None
        return self._steps.index(step) if step in self._steps else None


def _n_folds(trial: Trial) -> int:
    return max(1, len(trial.evaluation.fold_losses)) if trial.evaluation else 1
