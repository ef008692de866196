"""Predicted seconds of paths: the sum over their steps, with cached steps at their load time.

This is the additive model that FLASH's prefix cache needs (Zhang et al. 2016, section 3.4). A code
stands for a prefix of a pipeline. Codes are equal if the same steps ran with the same values. Steps
are in running order, and steps that pass their input on do not count.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.paths.shared_values import BestValues, SharedValues
from prefect_tune.optimizers.space.configuration import Choice, Configuration, default_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array, Candidates, CandidateSpace
from prefect_tune.optimizers.surrogates.costs import Costs
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
        """Return the seconds of each step's algorithms, of one load, and of everything else.

        They are for all folds. A failed trial is charged to the steps that had ended, and the rest
        to the failed step. Without measured steps, it is charged to one step, less typical seconds
        of earlier steps.
        """
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
            spent = sum(taken.spent.get(step, 0.0) for step in self._steps)
            rest.append(max(trial.cost_seconds - spent, 0.0))
        typical = [{i: float(np.mean(x)) for i, x in step.items()} for step in made]
        for trial, taken in failed:
            algorithms, k_failed = self._algorithms_of(trial), self._failed_step(trial)
            if not taken.made:
                at = len(self._steps) - 1 if k_failed is None else k_failed
                ran = self._order.of(trial.query.configuration.path)
                earlier = ran[: ran.index(at)] if at in ran else ()
                before = sum(typical[j].get(algorithms[j], 0.0) for j in earlier)
                made[at][algorithms[at]].append(max(trial.cost_seconds - before, 0.0))
                continue
            for k, step in enumerate(self._steps):
                if step in taken.made and k != k_failed:
                    made[k][algorithms[k]].append((n_folds / taken.n_folds) * taken.made[step])
            if k_failed is not None:
                name = self._steps[k_failed]
                others = sum(seconds for step, seconds in taken.spent.items() if step != name)
                served = taken.made.get(name, 0.0) - taken.spent.get(name, 0.0)
                seconds = max(trial.cost_seconds - others + max(served, 0.0), 0.0)
                made[k_failed][algorithms[k_failed]].append(seconds)
        for _, taken in known + failed:
            loads += [n_folds * seconds for seconds in taken.loads]
        every = [x for step in made for values in step.values() for x in values]
        tables = []
        for k, step_made in enumerate(made):
            seen = {i: float(np.mean(values)) for i, values in step_made.items()}
            unseen = float(np.mean(list(seen.values()) or every or [0])) if self._runs[k] else 0.0
            tables.append(np.array([seen.get(i, unseen) for i in range(len(self.position[k]))]))
        load, overhead = (float(np.mean(x)) if x else 0.0 for x in (loads, rest))
        return tables, load, overhead

    def done_before_failure(self, trial: Trial) -> Sequence[int]:
        """Return the searched steps a failed trial finished, in running order; empty if unknown."""
        ran = self._order.of(trial.query.configuration.path)
        failed = self._failed_step(trial)
        return ran[: ran.index(failed)] if failed in ran else ()

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


_NOTHING = 0
"""Code of the prefix in which nothing has run."""
_LATER = -2.0
"""Placeholder for features after a prefix; real features are at least -1."""


class PathPrefixes:
    """Numbers the prefixes of paths whose algorithms determine their hyperparameters."""

    def __init__(self, space: Space, order: RunningOrder) -> None:
        self._order = order
        self._is_idle = [{a.id: a.is_idle for a in s.algorithms} for s in space.searched]
        self._codes: dict[tuple[int, int, str | Choice], int] = {}

    def codes(self, path: Path, values: Mapping[int, Choice] | None = None) -> dict[int, int]:
        """Return the code of the prefix that ends with each step, in running order.

        Keys are positions of searched steps. `values` are choices, by position, whose values are
        not determined by the algorithm.
        """
        code, codes, values = _NOTHING, {}, values or {}
        for k in self._order.of(path):
            if not self._is_idle[k][path[k]]:
                made = code, k, values.get(k, path[k])
                code = self._codes.setdefault(made, len(self._codes) + 1)
            codes[k] = code
        return codes


class CandidatePrefixes:
    """Codes of the prefixes of candidates, with their values."""

    def __init__(self, space: CandidateSpace, order: RunningOrder) -> None:
        self._order = order
        steps = space.space.searched
        of_algorithm = np.repeat(np.arange(len(steps)), [len(s.algorithms) for s in steps])
        self._step = np.concatenate([of_algorithm, space.step])
        self._is_idle = [np.array([a.is_idle for a in s.algorithms]) for s in steps]

    def of(self, candidates: Candidates, features: Array) -> Sequence[NDArray[np.void]]:
        """Return, by searched step, codes of the prefixes that end with it, shape (n,) each."""
        n_steps = candidates.algorithms.shape[1]
        if self._order.is_declared:
            return [_rows(features[:, self._step <= k]) for k in range(n_steps)]
        places = self._order.places(candidates.algorithms)
        chosen = zip(self._is_idle, candidates.algorithms.T, strict=True)
        is_idle = np.column_stack([idle[column] for idle, column in chosen])
        prefixes = []
        for k in range(n_steps):
            ran = (places >= 0) & (places <= places[:, [k]]) & ~is_idle
            before = ran[:, None, :] & (places[:, None, :] < places[:, :, None])
            rank = np.where(ran, before.sum(axis=2), -1)
            inside = np.where(ran[:, self._step], features, _LATER)
            prefixes.append(_rows(np.hstack([inside, rank])))
        return prefixes


def _rows(parts: Array) -> NDArray[np.void]:
    rows = np.ascontiguousarray(parts)
    # Not by strides, which are arbitrary for a single row.
    return rows.view((np.void, rows.shape[1] * rows.itemsize)).ravel()


class PathCost:
    """Tables of one space, for predicting the seconds of its paths from any history.

    `costs` predicts the seconds of steps on all rows if trials first run on part of the rows. By
    default, predictions are means over full evaluations.
    """

    def __init__(
        self,
        space: Space,
        paths: Sequence[Path],
        shared: SharedValues | None = None,
        costs: Costs | None = None,
    ) -> None:
        self._space, self._paths, self._shared, self._costs = space, paths, shared, costs
        self._best: BestValues = shared.best() if shared else {}
        self._order = RunningOrder(space)
        self._prefixes = PathPrefixes(space, self._order)
        self._step_seconds = StepSeconds(space, self._order)
        self._position = self._step_seconds.position
        self._defaults = _default_choices(space, paths)
        self._algorithms = np.array(
            [[ids[a] for ids, a in zip(self._position, path, strict=True)] for path in paths]
        )
        self._codes = np.zeros(self._algorithms.shape, dtype=np.intp)
        self._is_free = np.ones(self._algorithms.shape, dtype=np.bool_)
        self._number_prefixes()
        self._known_codes: dict[int, dict[int, int]] = {}

    def set_shared_values(self, best: BestValues) -> None:
        """Set the shared values with which paths first run."""
        if best != self._best:
            self._best = best
            self._number_prefixes()

    def _number_prefixes(self) -> None:
        place = {step.name: k for k, step in enumerate(self._space.searched)}
        self._rows_of: dict[tuple[int, Choice], list[int]] = defaultdict(list)
        for i, path in enumerate(self._paths):
            values = {}
            if self._shared is not None:
                kind, pairs = self._shared.kind(path), self._shared.of(path)
                values = {place[step]: self._best[kind, step, a] for step, a in pairs}
            for at in values.items():
                self._rows_of[at].append(i)
            is_free = True
            for k, code in self._prefixes.codes(path, values).items():
                is_free = is_free and not self._defaults[k][path[k]].values
                self._codes[i, k], self._is_free[i, k] = code, is_free

    def seconds(self, history: History, is_new: NDArray[np.bool_] | None) -> Array:
        """Return predicted seconds of the next run of each path, shape (B,).

        `is_new`, shape (B,), marks paths that run with default values; in the others, only steps
        without hyperparameters can be cached. None predicts runs with nothing cached.
        """
        tables, load, overhead = self._tables(history)
        held = np.zeros(self._codes.shape, dtype=np.bool_)
        if is_new is not None:
            held = self._held(history) & (is_new[:, None] | self._is_free)
            held[:, -1] = False  # the model step of a configuration that never ran
        seconds = _of_algorithms(tables, self._algorithms)
        if self._costs is not None:
            for (k, choice), rows in self._rows_of.items():
                name = self._space.searched[k].name
                seconds[rows, k] = self._costs.step_seconds(name, choice)
        return overhead + _loaded(seconds, load, held)

    def typical_seconds(self, history: History) -> float:
        """Return the mean seconds of an uncached run of any path."""
        tables, _, overhead = self._tables(history)
        return overhead + sum(float(table.mean()) for table in tables)

    def _tables(self, history: History) -> tuple[list[Array], float, float]:
        tables, load, overhead = self._step_seconds.tables(history)
        if self._costs is None:
            return tables, load, overhead
        costs = self._costs
        tables = [
            np.array(
                [
                    0.0
                    if algorithm.is_passthrough
                    else costs.step_seconds(step.name, self._defaults[k][algorithm.id])
                    for algorithm in step.algorithms
                ]
            )
            for k, step in enumerate(self._space.searched)
        ]
        return tables, load, costs.overhead_seconds

    def of_candidates(
        self, history: History, space: CandidateSpace
    ) -> Callable[[Candidates, Array], Array]:
        """Return a function from candidates to predicted seconds, (n,), given the cache."""
        tables, load, overhead = self._tables(history)
        of_candidates = CandidatePrefixes(space, self._order)
        known: Sequence[NDArray[np.void]] = ()
        if _is_served(history):
            ran = space.encode(t.query.configuration for t in _of_all_folds(history.complete))
            known = of_candidates.of(ran, space.features(ran))[:-1]

        def seconds(candidates: Candidates, features: Array) -> Array:
            held = np.zeros(candidates.algorithms.shape, dtype=np.bool_)
            if known and len(candidates):
                prefixes = of_candidates.of(candidates, features)
                for k, made in enumerate(known):
                    held[:, k] = np.isin(prefixes[k], made)
            of_steps = _of_algorithms(tables, candidates.algorithms)
            if self._costs is not None:
                of_steps = self._at(self._costs, candidates, features, space)
            return overhead + _loaded(of_steps, load, held)

        return seconds

    def _at(
        self, costs: Costs, candidates: Candidates, features: Array, space: CandidateSpace
    ) -> Array:
        seconds = np.zeros(candidates.algorithms.shape)
        positions = features[:, len(space.algorithms) :]
        positions = np.where(positions < 0, np.nan, positions)
        columns = defaultdict[tuple[str, str], list[int]](list)
        for j, (step, algorithm, _) in enumerate(space.columns):
            columns[step, algorithm].append(j)
        for k, searched in enumerate(self._space.searched):
            for i, choice in enumerate(searched.algorithms):
                rows = np.flatnonzero(candidates.algorithms[:, k] == i)
                if len(rows) and not choice.is_passthrough:
                    at = positions[rows][:, columns[searched.name, choice.id]]
                    seconds[rows, k] = costs.of_positions(searched.name, choice.id, at)
        return seconds

    def _held(self, history: History) -> NDArray[np.bool_]:
        """Cached prefixes of first runs, shape (B, K); failed trials have cached earlier steps."""
        if not _is_served(history):
            return np.zeros(self._codes.shape, dtype=np.bool_)
        known: set[int] = set()
        for trial in _of_all_folds((*history.complete, *history.failed)):
            if trial.number not in self._known_codes:
                made = self._default_prefixes(trial.query.configuration)
                self._known_codes[trial.number] = dict(made)
            of_trial = self._known_codes[trial.number]
            if trial.failure is None:
                known.update(of_trial.values())
            else:
                done = self._step_seconds.done_before_failure(trial)
                known.update(of_trial[k] for k in done if k in of_trial)
        return np.isin(self._codes, list(known))

    def _default_prefixes(self, configuration: Configuration) -> Iterable[tuple[int, int]]:
        """Yield steps and codes of a configuration's prefixes while its values are defaults."""
        path, values = configuration.path, {}
        if self._shared is not None:
            pairs = self._shared.of(path)
            values = {
                k: choice
                for k, (step, choice) in enumerate(configuration.choices)
                if (step, choice.algorithm) in pairs
            }
        for k, code in self._prefixes.codes(path, values).items():
            if k not in values and configuration.choices[k][1] != self._defaults[k].get(path[k]):
                return
            yield k, code


def _of_algorithms(tables: Sequence[Array], algorithms: NDArray[np.intp]) -> Array:
    columns = zip(tables, algorithms.T, strict=True)
    return np.column_stack([table[column] for table, column in columns])


def _loaded(seconds: Array, load: float, held: NDArray[np.bool_]) -> Array:
    return np.where(held, np.minimum(load, seconds), seconds).sum(axis=1)


def _default_choices(space: Space, paths: Sequence[Path]) -> list[dict[str, Choice]]:
    found: list[dict[str, Choice]] = [{} for _ in space.searched]
    for path in paths:
        if all(a in known for a, known in zip(path, found, strict=True)):
            continue
        for k, (_, choice) in enumerate(default_configuration(space, path).choices):
            found[k].setdefault(choice.algorithm, choice)
    for k, step in enumerate(space.searched):
        for algorithm in step.algorithms:
            found[k].setdefault(algorithm.id, Choice(algorithm.id))
    return found


def _of_all_folds(trials: Iterable[Trial]) -> list[Trial]:
    """Trials whose steps ran on all folds; other raced ones ended early, with estimated losses."""
    known = list(trials)
    n_folds = max((len(t.evaluation.fold_losses) for t in known if t.evaluation), default=1)

    def n_made(trial: Trial) -> int:
        outcome = trial.evaluation or trial.failure
        return len({cost.fold for cost in outcome.steps}) if outcome else 0

    return [t for t in known if not 0 < n_made(t) < n_folds]


def _is_served(history: History) -> bool:
    """Whether a cache exists; if a step was computed twice and never a hit, none does."""
    seen: set[str] = set()
    was_made_twice = False
    for trial in history.complete:
        for cost in trial.evaluation.steps if trial.evaluation else ():
            if cost.hit:
                return True
            was_made_twice |= cost.key in seen
            seen.add(cost.key)
    return not was_made_twice
