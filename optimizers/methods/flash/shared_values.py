"""Shared values: hyperparameters of steps that every path contains.

An example of a shared step is the aggregation of patient events. A linear model of paths cannot
learn the effect of a shared step, because all paths contain the step. A value may also suit only
one model family: trees can use averages that are useless to a linear model. Shared values are
therefore searched like algorithms. Each value has columns in the linear model of paths: one for all
models, and one for each model family. All columns have the same ridge penalty, so that a family
with few results borrows strength from the other families.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import eq
from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
)
from numpy.random import Generator

from prefect_tune.optimizers.documents import choices_of, plain_value, value_document
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.algorithm import Algorithm, Kind
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    Query,
    Value,
    active_hyperparameters,
    are_allowed,
    default_choice,
    default_configuration,
    is_allowed,
)
from prefect_tune.optimizers.space.sampling import ATTEMPTS
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import TIE, Array, from_unit, to_unit
from prefect_tune.optimizers.trials.history import LEAST_KNOWN, History

BestValues = Mapping[tuple[str, str, str], Choice]
"""Choice with the best values so far, by model family, step and algorithm."""
Levels = Mapping[str, tuple[Value, ...]]
"""Values to try by hyperparameter, the default first."""

VARIED_SHARE = 0.3
"""Largest fraction of the budget for varying shared values."""
_MOST_ALGORITHMS = 2
"""Largest number of algorithms in a step with shared values."""


class SharedValues:
    """Encodes, chooses and varies the shared values of a space.

    If `numbers`, shared values include numbers as well as categories.

    Attributes:
        kinds: Model families of the space (`linear`, `trees` or `other`).
        width: Number S of columns of shared values.
    """

    def __init__(self, space: Space, *, numbers: bool = True) -> None:
        self._space = space
        *before, last = space.searched
        self._kinds = {algorithm.id: _kind(algorithm) for algorithm in last.algorithms}
        self.kinds = tuple(dict.fromkeys(self._kinds.values()))
        self._levels: dict[tuple[str, str], Levels] = {
            (step.name, algorithm.id): levels
            for step in before
            if step.idle is None and len(step.algorithms) <= _MOST_ALGORITHMS
            for algorithm in step.algorithms
            if (levels := _levels(algorithm, numbers=numbers))
        }
        self._columns: dict[tuple[str, str], dict[str, range]] = {}
        n = 0
        for pair, levels in self._levels.items():
            self._columns[pair] = {}
            for name, values in levels.items():
                self._columns[pair][name] = range(n, n + len(values))
                n += len(values)
        self._n = n
        # The columns of a single family would duplicate the columns for all families.
        self._n_blocks = 1 + len(self.kinds) if len(self.kinds) > 1 else 1
        self.width = n * self._n_blocks

    @property
    def names(self) -> set[tuple[str, str, str]]:
        """Step, algorithm and hyperparameter of each shared value."""
        return {(*pair, name) for pair, levels in self._levels.items() for name in levels}

    def kind(self, path: Path) -> str:
        """Return the model family of a path."""
        return self._kinds[path[-1]]

    def of(self, path: Path) -> tuple[tuple[str, str], ...]:
        """Return the (step, algorithm) pairs of a path that have shared values."""
        pairs = zip((step.name for step in self._space.searched), path, strict=True)
        return tuple(pair for pair in pairs if pair in self._levels)

    def group(self, path: Path) -> Hashable:
        """Return a key that is equal for paths with the same best shared values."""
        return self.kind(path), self.of(path)

    def columns(self, configurations: Iterable[Configuration]) -> Array:
        """Return the indicator columns of shared values, shape (n, S).

        A number is rounded to the nearest value in the `Levels` of its hyperparameter.
        """
        rows = []
        for configuration in configurations:
            row = np.zeros((self._n_blocks, self._n))
            chosen = list(self._chosen(configuration))
            row[0, chosen] = 1.0
            if self._n_blocks > 1:
                row[1 + self.kinds.index(self.kind(configuration.path)), chosen] = 1.0
            rows.append(row.ravel())
        return np.array(rows).reshape(-1, self.width)

    def best(self, coefficients: Array | None = None) -> BestValues:
        """Return the values with the lowest loss for each model family; ties go to the defaults.

        `coefficients`, shape (S,), belong to `columns` in a linear model of the loss; None before
        the first fit.
        """
        blocks = np.zeros(self.width) if coefficients is None else coefficients
        of_blocks = blocks.reshape(self._n_blocks, self._n)
        best = {}
        for i, kind in enumerate(self.kinds):
            effects = of_blocks[0] + (of_blocks[1 + i] if self._n_blocks > 1 else 0.0)
            rounded = np.round(effects / TIE)
            for (step, algorithm), columns in self._columns.items():
                levels = self._levels[step, algorithm]
                least = {
                    name: levels[name][int(np.argmin(rounded[own.start : own.stop]))]
                    for name, own in columns.items()
                }
                of = self._space.step(step).algorithm(algorithm)
                chosen = _choice(of, least)
                is_legal = are_allowed(of, dict(chosen.values))
                best[kind, step, algorithm] = chosen if is_legal else default_choice(of)
        return best

    def applied(self, best: BestValues, configuration: Configuration) -> Configuration:
        """Return a configuration with its model family's shared values from `best`."""
        kind, changed = self.kind(configuration.path), {}
        for pair in self.of(configuration.path):
            step, algorithm = pair
            values = dict(configuration[step].values)
            chosen = dict(best[kind, step, algorithm].values)
            values |= {name: chosen[name] for name in self._levels[pair] if name in chosen}
            changed[step] = _choice(self._space.step(step).algorithm(algorithm), values)
        return with_choices(configuration, changed)

    def bases(self, paths: Iterable[Path], costs: Costs) -> list[Configuration]:
        """Return the configurations to vary, with default values, in running order.

        Each algorithm with shared values is combined with the cheapest linear model and the
        cheapest boosted trees (or other trees), in the path with the most no-op steps. If the space
        declares no model families, its first model is used. `costs` contains run times from earlier
        studies.
        """
        *before, last = self._space.searched
        plain, names = [step.simplest.id for step in before], [step.name for step in before]
        of_model: dict[str, list[Path]] = defaultdict(list)
        for path in paths:
            of_model[path[-1]].append(path)
        by_kind: dict[Kind, list[Configuration]] = defaultdict(list)
        for model in last.algorithms:
            if model.id in of_model:
                simplest = most_alike((*plain, model.id), of_model[model.id])
                by_kind[model.kind].append(default_configuration(self._space, simplest))
        named = [by_kind["linear"], by_kind["boosted_trees"] or by_kind["trees"]]
        chosen = [self._cheapest(of, costs) for of in named if of]
        bases = []
        for step, algorithm in self._levels:
            k = names.index(step)
            for path in [c.path for c in chosen or by_kind[""][:1]]:
                with_it = [p for p in of_model[path[-1]] if p[k] == algorithm]
                if with_it:
                    bases.append(default_configuration(self._space, most_alike(path, with_it)))
        return list(dict.fromkeys(bases))

    def untried(
        self, bases: Sequence[Configuration], history: History, rng: Generator
    ) -> Configuration | None:
        """Return a base or a variation of a base; None once each family has tried each value.

        Bases of the family with the fewest trials come first, with the least tried value of each
        hyperparameter, so that few trials identify all effects. Families whose trials all failed
        are not varied. `rng` breaks ties.
        """
        n_failed: Counter[Hashable] = Counter()
        works = set()
        for trial in history:
            group = self.group(trial.query.configuration.path)
            n_failed[group] += trial.failure is not None
            if trial.evaluation is not None:
                works.add(group)
        tried: dict[Hashable, Counter[int]] = defaultdict(Counter)
        n_tried: Counter[Hashable] = Counter()
        for configuration in history.asked:
            group = self.group(configuration.path)
            tried[group].update(self._chosen(configuration))
            n_tried[group] += 1
        for base in sorted(bases, key=lambda b: n_tried[self.group(b.path)]):
            group = self.group(base.path)
            is_failing = group not in works and n_failed[group] >= LEAST_KNOWN
            if is_failing or all(tried[group][c] for c in self._unconditional(base.path)):
                continue
            for _ in range(ATTEMPTS):
                varied = self._varied(base, tried[group], rng) if n_tried[group] else base
                if varied not in history.asked and is_allowed(self._space, varied):
                    return varied
        return None

    def _cheapest(self, plain: Sequence[Configuration], costs: Costs) -> Configuration:
        is_expected = all(map(costs.is_expected, plain))

        def cost(configuration: Configuration) -> tuple[int, float]:
            algorithms = self._space.algorithms(configuration.path)
            n_steps = sum(not algorithm.is_idle for algorithm in algorithms)
            return n_steps, costs.seconds(Query(configuration)) if is_expected else 0.0

        return min(plain, key=cost)

    def _unconditional(self, path: Path) -> Iterator[int]:
        """Yield the columns of values that are active in every configuration of a path."""
        for step, algorithm in self.of(path):
            parents = self._space.step(step).algorithm(algorithm).hyperparameters.parents_of
            for name, columns in self._columns[step, algorithm].items():
                if not parents[name]:
                    yield from columns

    def _chosen(self, configuration: Configuration) -> Iterator[int]:
        for step, choice in configuration.choices:
            levels = self._levels.get((step, choice.algorithm), {})
            known = self._space.step(step).algorithm(choice.algorithm).hyperparameters
            for name, value in choice.values:
                if name in levels:
                    own = self._columns[step, choice.algorithm][name]
                    yield own[_nearest(known[name], levels[name], value)]

    def _varied(
        self, base: Configuration, counts: Mapping[int, int], rng: Generator
    ) -> Configuration:
        varied = {}
        for step, algorithm in self.of(base.path):
            levels, columns = self._levels[step, algorithm], self._columns[step, algorithm]
            least = {}
            for name, values in levels.items():
                order = [int(i) for i in rng.permutation(len(values))]
                least[name] = values[min(order, key=lambda i: counts[columns[name][i]])]
            varied[step] = _choice(self._space.step(step).algorithm(algorithm), least)
        return with_choices(base, varied)


def most_alike(path: Path, others: Iterable[Path]) -> Path:
    """Return the path in `others` most similar to `path`, or `path` if `others` is empty."""
    return max(others, key=lambda other: sum(map(eq, other, path)), default=path)


def with_choices(configuration: Configuration, choices: Mapping[str, Choice]) -> Configuration:
    """Return a configuration with some choices replaced by `choices`, by step."""
    return replace(
        configuration,
        choices=tuple((step, choices.get(step, own)) for step, own in configuration.choices),
    )


def _kind(algorithm: Algorithm) -> str:
    return "trees" if algorithm.kind == "boosted_trees" else algorithm.kind or "other"


def _levels(algorithm: Algorithm, *, numbers: bool) -> Levels:
    levels = {}
    for name, h in algorithm.hyperparameters.items():
        if isinstance(h, Constant) or not (numbers or isinstance(h, CategoricalHyperparameter)):
            continue
        values = [plain_value(h.default_value), *map(plain_value, choices_of(h) or ())]
        if choices_of(h) is None:
            values += [from_unit(h, 0.0), from_unit(h, 1.0)]
            if len(set(values)) < 3:
                values.append(from_unit(h, 0.5))
        distinct = {value_document(value): value for value in values}
        if len(distinct) > 1:
            levels[name] = tuple(distinct.values())
    return levels


def _nearest(h: Hyperparameter[Any, Any], levels: Sequence[Value], value: Value) -> int:
    unit = to_unit(h, value)
    return min(range(len(levels)), key=lambda i: abs(to_unit(h, levels[i]) - unit))


def _choice(algorithm: Algorithm, given: Mapping[str, Value]) -> Choice:
    values: dict[str, Value] = {}
    for h in active_hyperparameters(algorithm.hyperparameters, values):
        values[h.name] = given.get(h.name, plain_value(h.default_value))
    return Choice.of(algorithm.id, values)
