"""Seconds of queries before they run: Bayesian linear regressions for each algorithm of a step.

Limits of trials, racing and improvement per second use this model. Its two targets for each
algorithm, ln seconds of a fit on one fold and ln seconds for 1,000 held-out rows, are linear in

    1, ln((training rows + fixed) / 1,000), and its hyperparameters' positions on the unit interval,

with conjugate normal-inverse-gamma priors. The prior weights of the rows are 1 +- 0.3 for a fit and
0.1 +- 0.3 for held-out rows, unless the algorithm's `growth` declares others. It also declares the
`fixed` rows, 500 by default. The prior weight of a hyperparameter is 0 +- 1, or its declared factor
+- 0.3. The level of an unseen algorithm comes from earlier studies in the same store, +- 0.7,
corrected by the declared growth with columns and classes. Without earlier studies, it is the mean
level of the step's other algorithms, with their spread. Another regression predicts overhead.

On many rows, an unseen algorithm first has a pilot. Its worker fits the pipeline on about 1,000
rows in a fraction of a second and reports the seconds of each step, which later predictions use. A
trial that would take too long is not started.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, inf, log, nan
from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import Constant, Hyperparameter, NumericalHyperparameter

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import plain_value
from prefect_tune.optimizers.space.algorithm import GROWTH
from prefect_tune.optimizers.space.configuration import Choice, Configuration, Query, Value
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, to_unit
from prefect_tune.optimizers.surrogates.path_linear import LinearPosterior, LinearRegression
from prefect_tune.optimizers.trials.objective import Objective, PortableSeconds
from prefect_tune.optimizers.trials.outcome import FailureKind, Pilot, StepCost
from prefect_tune.optimizers.trials.trial import Trial

_REST = "", ""
"""Key of the overhead of a trial."""
_PER_ROWS = 1000.0
_LEAST_SECONDS = 1e-4
_NOISE = 0.3
"""Prior deviation of ln seconds of equal fits."""
_NOISE_WEIGHT = 2.0
"""Number of fits that the prior of the noise is worth."""
_OF_REST = {"rows": 0.5, "columns": 0.0}
"""Growth of the overhead with the data; see `Algorithm.growth`."""
_FIXED_HELD_OUT = 500.0
"""Number of held-out rows that the fixed part is worth."""
_ROWS_DEVIATION = 0.3
_WEIGHT_DEVIATION, _DECLARED_DEVIATION = 1.0, 0.3
"""Prior deviations of hyperparameter weights, without and with declared growth."""
_LEVELS = log(0.03), log(0.003)
"""Prior ln seconds of a fit on 1,000 rows, and of 1,000 held-out rows."""
_LEVEL_DEVIATION = 2.0
_LEAST_SPREAD = 1.0
"""Least deviation between the levels of the algorithms of a step."""
_EARLIER_DEVIATION = 0.7
"""Deviation of a level from earlier studies: other data, maybe another machine."""
_COLUMNS = 10
"""Number of columns to which portable levels refer, with two classes."""
LIKELY = 0.5
"""Deviations above the median of predicted seconds; two of three trials end within them."""
_PARTIAL_SHARE, _LEAST_PARTIAL_SECONDS = 1 / 60, 1.5
"""Largest share of all worker-seconds for a first run on part of the rows, so that a search has
many of them; and the seconds that such a run may take in any case."""
_LEAST_SHARE_SECONDS = 5.0
_CUT_TIMES = 2.0
"""Assumed seconds of a fit cut off by a limit, as a multiple of the seconds it took."""


class _Part:
    """A regression of ln seconds of an algorithm; `slopes` are the expected weights."""

    def __init__(self, slopes: Sequence[float]) -> None:
        self._slopes = np.array(slopes)
        self._regression = LinearRegression(1 + len(slopes))

    @property
    def is_known(self) -> bool:
        return self._regression.n > 0

    @property
    def level(self) -> float:
        """Log seconds on 1,000 rows with central hyperparameters, by the expected slopes."""
        return self._regression.level(self._slopes)

    def add(self, features: Array, seconds: float) -> None:
        self._regression.add(features, log(max(seconds, _LEAST_SECONDS)))

    def posterior(self, level: float, deviation: float) -> LinearPosterior:
        """Posterior of the weights, given the prior of the level."""
        mean = np.concatenate([[level], self._slopes])
        deviations = np.where(mean == 0, _WEIGHT_DEVIATION, _DECLARED_DEVIATION)
        deviations[0], deviations[1] = deviation, _ROWS_DEVIATION
        return self._regression.posterior(mean, deviations, _NOISE, _NOISE_WEIGHT)


class _Algorithm:
    """Seconds that one algorithm of a step takes to fit, and for held-out rows."""

    def __init__(
        self,
        hyperparameters: Iterable[Hyperparameter[Any, Any]],
        growth: Mapping[str, float],
        objective: Objective,
    ) -> None:
        self._hyperparameters = [h for h in hyperparameters if not isinstance(h, Constant)]
        growth = {**GROWTH, **growth}
        slopes = [_slope(h, growth) for h in self._hyperparameters]
        self.parts = _Part([growth["rows"], *slopes]), _Part([growth["held_out"], *slopes])
        self._fixed = growth["fixed"]
        n_classes = objective.n_classes or 0
        of_columns = growth["columns"] * log((objective.n_columns or _COLUMNS) / _COLUMNS)
        # A model for each class, but a single one for two classes.
        self.moved = of_columns + growth["classes"] * log(n_classes if n_classes > 2 else 1)

    def positions(self, values: Mapping[str, Value]) -> Array:
        """Positions of hyperparameters in [0, 1], NaN for those without a value."""
        hyperparameters = self._hyperparameters
        return np.array(
            [to_unit(h, values[h.name]) if h.name in values else nan for h in hyperparameters]
        )

    def features_at(self, rows: float, positions: Array) -> Array:
        """Features of fits on so many rows, shape (n, d), at positions."""
        n = len(positions)
        of_rows = np.full(n, log((rows + self._fixed) / _PER_ROWS))
        return np.column_stack([np.ones(n), of_rows, np.nan_to_num(positions - 0.5, nan=0.0)])

    def features(self, rows: float, choice: Choice | None = None) -> Array:
        values = dict(choice.values) if choice else {}
        return self.features_at(rows, self.positions(values)[None])[0]


def _slope(h: Hyperparameter[Any, Any], growth: Mapping[str, float]) -> float:
    """Declared effect of a hyperparameter's whole range on ln seconds."""
    exponent = growth.get(h.name, 0.0)
    if not exponent or not isinstance(h, NumericalHyperparameter):
        return 0.0
    return float(exponent * log(h.upper / h.lower))


def cheap_configuration(space: Space, configuration: Configuration) -> Configuration:
    """Return a configuration for a pilot, with least values of what multiplies seconds."""
    choices = []
    for step, choice in configuration.choices:
        algorithm = space.step(step).algorithm(choice.algorithm)
        values = {
            name: plain_value(h.lower)
            if algorithm.growth.get(name, 0.0) > 0 and isinstance(h, NumericalHyperparameter)
            else value
            for name, value in choice.values
            for h in [algorithm.hyperparameters[name]]
        }
        choices.append((step, Choice.of(choice.algorithm, values)))
    return Configuration(tuple(choices))


_Pair = tuple[str, str]
"""A step and an algorithm."""


class Costs:
    """Predicts uncached seconds of queries from the trials told.

    `models` are ids of the last step's algorithms; `seen` are models with a told trial that
    started.
    """

    def __init__(self, space: Space, objective: Objective) -> None:
        self._space, self._objective = space, objective
        self._last = space.steps[-1].name
        self.models = frozenset(algorithm.id for algorithm in space.steps[-1].algorithms)
        self.seen: set[str] = set()
        self._algorithms = {_REST: _Algorithm((), _OF_REST, objective)}
        self._earlier = {
            (step, algorithm): of for step, algorithm, *of in objective.earlier_seconds
        }
        for step in space.steps:
            for algorithm in step.algorithms:
                self._algorithms[step.name, algorithm.id] = _Algorithm(
                    algorithm.hyperparameters.values(), algorithm.growth, objective
                )
        self._posteriors: dict[tuple[_Pair, int], LinearPosterior] = {}

    def tell(self, trial: Trial) -> None:
        """Record a trial that has ended. Its cached steps are not measured."""
        outcome, query = trial.evaluation or trial.failure, trial.query
        assert outcome is not None  # noqa: S101 - the caller's duty
        if trial.failure is None or not trial.failure.is_unstarted:
            self.seen.add(self.model_of(query.configuration))
        choices = self._choices(query.configuration)
        rows, held_out_rows = self.rows(query), self._held_out_rows(query)
        made = [cost for cost in outcome.steps if not cost.hit]
        if outcome.pilot is not None:
            self.tell_pilot(query.configuration, outcome.pilot)
        for cost in made:
            is_part = cost.step == self._last and query.epochs is not None
            if cost.step in choices and not is_part:
                self._add(cost, choices[cost.step], rows, held_out_rows)
        of_pilot = outcome.pilot.own_seconds if outcome.pilot else 0.0
        of_steps = (c.load_seconds + (0.0 if c.hit else c.seconds) for c in outcome.steps)
        rest = outcome.cost_seconds - of_pilot - sum(of_steps)
        if trial.evaluation is not None and made and query.epochs is None:
            n_folds = len({cost.fold for cost in outcome.steps})
            part, _ = self._algorithms[_REST].parts
            part.add(self._algorithms[_REST].features(rows), rest / n_folds)
        elif trial.failure is not None and trial.failure.kind == FailureKind.TIMEOUT:
            step = trial.failure.step
            if step is not None and step in choices and query.epochs is None:
                cut = StepCost(step, 0, _CUT_TIMES * rest, 0.0, hit=False, key="")
                self._add(cut, choices[step], rows, held_out_rows)
        self._posteriors.clear()

    def tell_pilot(self, configuration: Configuration, pilot: Pilot) -> None:
        """Record the seconds of the steps of a cheap configuration on few rows."""
        choices = self._choices(cheap_configuration(self._space, configuration))
        for cost in pilot.steps:
            if cost.step in choices:
                self._add(cost, choices[cost.step], pilot.rows, pilot.held_out_rows)
        self._posteriors.clear()

    def model_of(self, configuration: Configuration) -> str:
        """Return the id of a configuration's last algorithm."""
        return self._choices(configuration)[self._last].algorithm

    def is_known(self, configuration: Configuration) -> bool:
        """Return whether a configuration's last algorithm was ever measured."""
        part, _ = self._algorithms[self._last, self.model_of(configuration)].parts
        return part.is_known

    def has_unknown(self, configuration: Configuration) -> bool:
        """Return whether its last algorithm, or another with declared growth, is unmeasured."""
        for step, choice in self._choices(configuration).items():
            may_be_slow = self._space.step(step).algorithm(choice.algorithm).growth
            part, _ = self._algorithms[step, choice.algorithm].parts
            if not part.is_known and (may_be_slow or step == self._last):
                return True
        return False

    def is_expected(self, configuration: Configuration) -> bool:
        """Return whether its last algorithm was measured, here or in earlier studies."""
        pair = self._last, self.model_of(configuration)
        return self.is_known(configuration) or pair in self._earlier

    def portable(self) -> list[PortableSeconds]:
        """Return the measurements, for `earlier_seconds` of later studies."""
        return [
            (*pair, of_fit.level - algorithm.moved, of_held_out.level - algorithm.moved)
            if of_held_out.is_known
            else (*pair, of_fit.level - algorithm.moved, None)
            for pair, algorithm in self._algorithms.items()
            for of_fit, of_held_out in [algorithm.parts]
            if of_fit.is_known
        ]

    def rows(self, query: Query) -> float:
        """Return the number of training rows in one fold of a query."""
        return query.subset * (self._objective.n_rows or _PER_ROWS)

    def seconds(self, query: Query, deviations: float = 0.0, folds_done: int = 0) -> float:
        """Return predicted seconds of a query: the median, plus some deviations of ln seconds.

        The parts have medians m_k, with sum M, and deviations s_k of ln seconds. By the delta
        method, the deviation of the whole is sqrt(sum of (m_k s_k / M)^2). `folds_done` folds ran
        before on the same rows and are only loaded.
        """
        parts = [part for step in self._parts(query).values() for part in step]
        of_fold = sum(median for median, _ in parts)
        spread = sum((median * deviation) ** 2 for median, deviation in parts) ** 0.5
        n_folds = max((query.folds or self._objective.n_folds or 1) - folds_done, 0)
        return n_folds * of_fold * exp(deviations * spread / of_fold)

    def held_out_seconds(self, configuration: Configuration, n_rows: int) -> float:
        """Return median seconds of predicting rows after a fit on all rows; 0 if never measured."""
        rows = self._objective.n_rows or _PER_ROWS
        seconds = 0.0
        for step, choice in self._choices(configuration).items():
            pair = step, choice.algorithm
            if 1 in self._measured(pair):
                features = self._algorithms[pair].features(rows, choice)[None]
                (mean,), _ = self._posterior(pair, 1).predict(features)
                seconds += self._times(1, n_rows) * exp(mean)
        return seconds

    def step_seconds(self, step: str, choice: Choice) -> float:
        """Return median seconds of a step on all folds and rows, with the values of a choice."""
        positions = self._algorithms[step, choice.algorithm].positions(dict(choice.values))
        return float(self.of_positions(step, choice.algorithm, positions[None])[0])

    def of_positions(self, step: str, algorithm: str, positions: Array) -> Array:
        """Return median seconds of a step on all folds and rows, shape (n,).

        Positions of the algorithm's hyperparameters are in [0, 1], NaN if inactive, in the order of
        `Encoding.columns`, shape (n, d).
        """
        known, n_rows = self._algorithms[step, algorithm], self._objective.n_rows or _PER_ROWS
        features = known.features_at(n_rows, positions)
        seconds = np.zeros(len(positions))
        for k in self._measured((step, algorithm)):
            mean, _ = self._posterior((step, algorithm), k).predict(features)
            seconds += self._times(k, self._objective.n_held_out or _PER_ROWS) * np.exp(mean)
        return seconds * (self._objective.n_folds or 1)

    @property
    def overhead_seconds(self) -> float:
        """Median seconds of a full evaluation outside the searched steps."""
        fixed = [s for s in self._space.steps if s.fixed and not s.algorithms[0].is_passthrough]
        of_fixed = sum(self.step_seconds(s.name, Choice(s.algorithms[0].id)) for s in fixed)
        return of_fixed + float(self.of_positions(*_REST, np.empty((1, 0)))[0])

    def growth(self, query: Query, step: str) -> float:
        """Return the factor by which a step of a query would take longer on all rows."""
        of_part, of_all = (
            sum(median for median, _ in self._parts(asked).get(step, ()))
            for asked in (query, replace(query, subset=1.0, held_out=1.0))
        )
        return of_all / of_part if of_part else 1.0

    def _parts(self, query: Query) -> dict[str, list[tuple[float, float]]]:
        rows, held_out_rows = self.rows(query), self._held_out_rows(query)
        choices = self._choices(query.configuration)
        chosen = [((step, choice.algorithm), choice) for step, choice in choices.items()]
        parts: dict[str, list[tuple[float, float]]] = {}
        for pair, choice in (*chosen, (_REST, None)):
            features = self._algorithms[pair].features(rows, choice)[None]
            parts[pair[0]] = []
            for k in self._measured(pair):
                (mean,), (deviation,) = self._posterior(pair, k).predict(features)
                times = self._times(k, held_out_rows)
                parts[pair[0]].append((times * exp(mean), float(deviation)))
        return parts

    def _times(self, k: int, held_out_rows: float) -> float:
        return (held_out_rows + _FIXED_HELD_OUT) / _PER_ROWS if k else 1.0

    def share_seconds(self, configuration: Configuration, budget: Budget) -> float:
        """Return the share of the remaining worker-seconds for a configuration's next trial.

        The first trial of a model shares them equally with all unseen models; other trials have
        all. Near the end, if the time does not suffice for all, a first trial has at least five
        seconds, or half of the time left on a worker if that is less. With less, a pilot would
        reject the trial and waste its seconds.
        """
        left = inf if budget.seconds_left is None else max(budget.seconds_left, 0.0)
        if self.model_of(configuration) in self.seen:
            return left
        least = min(_LEAST_SHARE_SECONDS, left / max(budget.n_workers, 1) / 2)
        return max(left / len(self.models - self.seen), least)

    def allowed_seconds(self, query: Query, budget: Budget, *, is_first: bool = True) -> float:
        """Return the longest that a query may be expected to take if it starts now.

        It is the minimum of its share of the worker-seconds left, the user's limit and the time
        left. For the first run on a part of the rows, it is also at most a sixtieth of all
        worker-seconds, or 1.5 s.
        """
        left = inf if budget.seconds_left is None else max(budget.seconds_left, 0.0)
        share = self.share_seconds(query.configuration, budget)
        of_run = max(_PARTIAL_SHARE * (budget.seconds_spent + left), _LEAST_PARTIAL_SECONDS)
        if query.subset == 1 or not is_first:
            of_run = inf
        return min(share, of_run, left / max(budget.n_workers, 1), budget.trial_seconds or inf)

    def _held_out_rows(self, query: Query) -> float:
        return query.held_out * (self._objective.n_held_out or _PER_ROWS)

    def _add(self, cost: StepCost, choice: Choice, rows: float, held_out_rows: float) -> None:
        algorithm = self._algorithms[cost.step, choice.algorithm]
        features = algorithm.features(rows, choice)
        of_fit, of_held_out = algorithm.parts
        of_fit.add(features, cost.seconds - cost.held_out_seconds)
        if cost.held_out_seconds and held_out_rows:
            in_all = held_out_rows + _FIXED_HELD_OUT
            of_held_out.add(features, cost.held_out_seconds * _PER_ROWS / in_all)

    def _measured(self, pair: _Pair) -> tuple[int, ...]:
        """Parts of a prediction; held-out rows are a part if they were measured separately."""
        of_fit, of_held_out = self._algorithms[pair].parts
        is_apart = of_held_out.is_known or (not of_fit.is_known and self._is_apart)
        return (0, 1) if pair != _REST and is_apart else (0,)

    @property
    def _is_apart(self) -> bool:
        is_here = any(algorithm.parts[1].is_known for algorithm in self._algorithms.values())
        return is_here or any(of[1] is not None for of in self._earlier.values())

    def _choices(self, configuration: Configuration) -> dict[str, Choice]:
        chosen = dict(configuration.choices)
        return {
            step.name: chosen.get(step.name, Choice(algorithm.id))
            for step, algorithm in self._space.pipeline(configuration.path)
            if not algorithm.is_passthrough or step.name == self._last
        }

    def _posterior(self, pair: _Pair, k: int) -> LinearPosterior:
        if (pair, k) not in self._posteriors:
            part = self._algorithms[pair].parts[k]
            self._posteriors[pair, k] = part.posterior(*self._level(pair, k))
        return self._posteriors[pair, k]

    def _level(self, pair: _Pair, k: int) -> tuple[float, float]:
        """Prior mean and deviation of a level, from earlier studies or the step's other members."""
        known = self._earlier.get(pair, (None, None))[k]
        if known is not None:
            return known + self._algorithms[pair].moved, _EARLIER_DEVIATION
        levels = [
            algorithm.parts[k].level
            for other, algorithm in self._algorithms.items()
            if other[0] == pair[0] and other != pair and algorithm.parts[k].is_known
        ]
        if not levels:
            return _LEVELS[k], _LEVEL_DEVIATION
        return float(np.mean(levels)), max(float(np.std(levels)), _LEAST_SPREAD)
