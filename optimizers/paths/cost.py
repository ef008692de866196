"""Predicted seconds of paths: the sum over their steps, with cached steps at their load time.

This is the additive model that FLASH's prefix cache needs (Zhang et al. 2016, section 3.4). A code
stands for a prefix of a pipeline. Codes are equal if the same steps ran with the same values. Steps
are in running order, and steps that pass their input on do not count.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.paths.shared_values import BestValues, SharedValues
from prefect_tune.optimizers.paths.step_seconds import RunningOrder, StepSeconds
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Choice, Configuration, default_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.costs import Costs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

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
        self._step = np.concatenate([of_algorithm, space.columns.step])
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

    def take(self, best: BestValues) -> None:
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
        positions = features[:, len(space.encoding.algorithms) :]
        positions = np.where(positions < 0, np.nan, positions)
        columns = defaultdict[tuple[str, str], list[int]](list)
        for j, (step, algorithm, _) in enumerate(space.encoding.columns):
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
