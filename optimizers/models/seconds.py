"""Predicted run times of queries, by Bayesian linear regressions for each algorithm of a step.

Trial limits, racing and improvement per second use these predictions. An algorithm has two targets:
ln seconds of a fit on one fold, and ln seconds for 1,000 held-out rows. Both targets are linear in

    1, ln((training rows + fixed) / 1,000), and the positions of hyperparameters in [0, 1],

with conjugate normal-inverse-gamma priors. An algorithm's `growth` can declare prior weights and
the number of `fixed` rows, which is 500 by default. The prior weight of the rows is 1 ± 0.3 for a
fit and 0.1 ± 0.3 for held-out rows. The prior weight of a hyperparameter is 0 ± 1, or its declared
growth ± 0.3. The prior level comes from earlier studies in the same store or, without earlier
studies, from the step's other algorithms. The prior level is corrected by the declared growth with
columns and classes, and its standard deviation is at least 1. Another regression predicts the
overhead.

On large data, a pilot runs before the first trial of a new model. The worker fits the pipeline on
about 1,000 rows in a fraction of a second, and reports the seconds of each step for later
predictions. If the full trial would take too long, the trial is not started.
"""

from collections.abc import Iterable, Mapping
from math import exp, inf, log
from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import Constant, Hyperparameter, NumericalHyperparameter

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import plain_value
from prefect_tune.optimizers.models.path_linear import LinearPosterior, LinearRegression
from prefect_tune.optimizers.space.algorithm import GROWTH
from prefect_tune.optimizers.space.configuration import Choice, Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, to_unit
from prefect_tune.optimizers.trials.objective import MANY_ROWS, Objective, PortableSeconds
from prefect_tune.optimizers.trials.outcome import FailureKind, Pilot, StepCost
from prefect_tune.optimizers.trials.trial import Trial

_REST = "", ""
"""Key of the overhead of a trial."""
PER_ROWS, _PER_COLUMNS = 1000.0, 10
"""Number of rows, and of columns, for which levels are stored. The number of rows is also the
minimum of a partial run, and the default if the number is unknown."""
LEAST_SECONDS = 1e-4
"""Lower bound of measured seconds, which may be 0 or negative because clocks differ."""
_SURE, _UNSURE = 0.3, 1.0
"""Prior standard deviations in log seconds: of equal fits and declared weights, and of all other
weights."""
_NOISE_WEIGHT = 2.0
"""Weight of the noise prior, as a number of observations."""
LIKELY = 0.5
"""Number of standard deviations above the median predicted run time within which two of three
trials end."""
_PARTIAL_SHARE, _LEAST_SECONDS = 1 / 60, 3.0
"""Largest fraction of all worker-seconds for a configuration's first trial on part of the rows, so
that a search can start many configurations; and seconds always allowed for a first trial."""
_SLOW_GROWTH = 0.5
"""Growth (see `Algorithm.growth`) of the overhead with the rows, and of a run time with the largest
number of rounds if training stops early."""
_CUT_TIMES = 2.0
"""Assumed run time of a fit ended by a time limit, as a multiple of the time spent."""


class _Algorithm:
    """Two regressions of an algorithm's log seconds: for a fit (0) and for 1,000 held-out rows (1).

    Attributes:
        slopes: Prior weights of the rows and of the hyperparameters, for each regression.
        regressions: Statistics of the two regressions.
        moved: Declared effect of the data's columns and classes on the level.
    """

    def __init__(
        self,
        hyperparameters: Iterable[Hyperparameter[Any, Any]],
        growth: Mapping[str, float],
        objective: Objective,
    ) -> None:
        self._hyperparameters = [h for h in hyperparameters if not isinstance(h, Constant)]
        growth = {**GROWTH, **growth}
        self._fixed = growth["fixed"]
        slopes = [
            growth[h.name] * log(h.upper / h.lower)
            if growth.get(h.name) and isinstance(h, NumericalHyperparameter)
            else 0.0
            for h in self._hyperparameters
        ]
        self.slopes = [np.array([growth[name], *slopes]) for name in ("rows", "held_out")]
        self.regressions = [LinearRegression(2 + len(slopes)) for _ in self.slopes]
        n_classes = objective.n_classes or 0
        of_columns = growth["columns"] * log((objective.n_columns or _PER_COLUMNS) / _PER_COLUMNS)
        # With more than two classes, an algorithm may fit one model per class.
        self.moved = of_columns + growth["classes"] * log(n_classes if n_classes > 2 else 1)

    def features(self, rows: float, choice: Choice | None = None) -> Array:
        """Return the features of a fit on `rows` rows. If `choice` is None, values are central."""
        values = dict(choice.values) if choice else {}
        positions = [
            to_unit(h, values[h.name]) - 0.5 if h.name in values else 0.0
            for h in self._hyperparameters
        ]
        return np.array([1.0, log((rows + self._fixed) / PER_ROWS), *positions])

    def add(self, k: int, features: Array, seconds: float) -> None:
        """Add the seconds of a fit (k = 0), or of 1,000 held-out rows (k = 1)."""
        self.regressions[k].add(features, log(max(seconds, LEAST_SECONDS)))

    def is_known(self, k: int = 0) -> bool:
        """Return whether a fit (k = 0) or held-out rows (k = 1) have been measured."""
        return self.regressions[k].n > 0

    def level(self, k: int) -> float:
        """Return the mean log seconds on 1,000 rows at central values, given the prior slopes."""
        return self.regressions[k].level(self.slopes[k])

    def posterior(self, k: int, level: float, deviation: float) -> LinearPosterior:
        """Return the posterior of regression k, given the prior mean and deviation of the level."""
        mean = np.array([level, *self.slopes[k]])
        deviations = np.where(mean == 0, _UNSURE, _SURE)
        deviations[0] = deviation
        return self.regressions[k].posterior(mean, deviations, _SURE, _NOISE_WEIGHT)


def cheap_configuration(space: Space, configuration: Configuration) -> Configuration:
    """Return a configuration for a pilot.

    Hyperparameters that multiply the run time (see `Algorithm.growth`) get their smallest values.
    """
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
    """Predicts the run times of queries without cache, from the trials finished so far.

    Attributes:
        models: Ids of the last step's algorithms.
        seen: Ids of the models in finished trials that were actually started.
    """

    def __init__(self, space: Space, objective: Objective) -> None:
        self._space, self._objective = space, objective
        self._last = space.steps[-1].name
        self._rows = objective.n_rows or PER_ROWS
        self._held_out_rows = objective.n_held_out or PER_ROWS
        self.models = frozenset(algorithm.id for algorithm in space.steps[-1].algorithms)
        self.seen: set[str] = set()
        self._algorithms = {
            _REST: _Algorithm((), {"rows": _SLOW_GROWTH, "columns": 0.0}, objective)
        }
        for step in space.steps:
            for algorithm in step.algorithms:
                growth = dict(algorithm.growth)
                if algorithm.rounds and self._rows > MANY_ROWS and objective.epochs is None:
                    growth[algorithm.rounds] = _SLOW_GROWTH
                self._algorithms[step.name, algorithm.id] = _Algorithm(
                    algorithm.hyperparameters.values(), growth, objective
                )
        self._earlier = {(step, name): levels for step, name, *levels in objective.earlier_seconds}
        # Whether the seconds of held-out rows are measured separately from fits.
        self._is_apart = any(levels[1] is not None for levels in self._earlier.values())
        self._loads: list[float] = []
        self._posteriors: dict[tuple[_Pair, int], LinearPosterior] = {}
        self._lines: dict[_Pair, Array] = {}

    def tell(self, trial: Trial) -> None:
        """Add the measurements of a trial that has ended. Cached steps have no measurement."""
        outcome, query = trial.evaluation or trial.failure, trial.query
        assert outcome is not None  # noqa: S101 - the caller's duty
        if trial.failure is None or not trial.failure.is_unstarted:
            self.seen.add(self.model_of(query.configuration))
        if outcome.pilot is not None:
            self.tell_pilot(query.configuration, outcome.pilot)
        choices, rows = self._choices(query.configuration), self.rows(query)
        made = [cost for cost in outcome.steps if not cost.hit]
        self._loads += [cost.load_seconds for cost in outcome.steps if cost.hit]
        of_steps = sum(cost.load_seconds for cost in outcome.steps) + sum(c.seconds for c in made)
        of_pilot = outcome.pilot.own_seconds if outcome.pilot else 0.0
        rest = outcome.cost_seconds - of_pilot - of_steps
        if trial.evaluation is not None and made and query.epochs is None:
            n_folds, overhead = len({cost.fold for cost in outcome.steps}), self._algorithms[_REST]
            overhead.add(0, overhead.features(rows), rest / n_folds)
        elif (failure := trial.failure) and failure.kind == FailureKind.TIMEOUT and failure.step:
            made.append(StepCost(failure.step, 0, _CUT_TIMES * rest, 0.0, hit=False, key=""))
        for cost in made:
            if cost.step in choices and (cost.step != self._last or query.epochs is None):
                held_out_rows = query.held_out * self._held_out_rows
                self._add(cost, choices[cost.step], rows, held_out_rows)
        self._posteriors.clear()
        self._lines.clear()

    def tell_pilot(self, configuration: Configuration, pilot: Pilot) -> None:
        """Add the measurements of a pilot, which ran the `cheap_configuration` on few rows."""
        choices = self._choices(cheap_configuration(self._space, configuration))
        for cost in pilot.steps:
            if cost.step in choices:
                self._add(cost, choices[cost.step], pilot.rows, pilot.held_out_rows)
        self._posteriors.clear()
        self._lines.clear()

    def model_of(self, configuration: Configuration) -> str:
        """Return the id of a configuration's model, the algorithm of the last step."""
        return self._choices(configuration)[self._last].algorithm

    def is_known(self, configuration: Configuration) -> bool:
        """Return whether a configuration's model was measured in this study."""
        return self._algorithms[self._last, self.model_of(configuration)].is_known()

    def has_unknown(self, configuration: Configuration) -> bool:
        """Return whether the model or another algorithm with declared growth was never measured."""
        return any(
            not self._algorithms[step, choice.algorithm].is_known()
            for step, choice in self._choices(configuration).items()
            if step == self._last or self._space.step(step).algorithm(choice.algorithm).growth
        )

    def is_expected(self, configuration: Configuration) -> bool:
        """Return whether a configuration's model was measured in this or an earlier study."""
        pair = self._last, self.model_of(configuration)
        return self.is_known(configuration) or pair in self._earlier

    def portable(self) -> list[PortableSeconds]:
        """Return the measured levels, for the `earlier_seconds` of later studies."""
        found: list[PortableSeconds] = []
        for pair, known in self._algorithms.items():
            if known.is_known():
                held_out = known.level(1) - known.moved if known.is_known(1) else None
                found.append((*pair, known.level(0) - known.moved, held_out))
        return found

    def rows(self, query: Query) -> float:
        """Return the number of training rows in one fold of a query."""
        return query.subset * self._rows

    def seconds(self, query: Query, deviations: float = 0.0, folds_done: int = 0) -> float:
        """Return the predicted seconds of a query.

        The parts of a query have medians m_k with sum M, and standard deviations s_k of log
        seconds. By the delta method, the log seconds of the query have standard deviation sqrt(sum
        (m_k s_k / M)^2).

        Args:
            query: Query to predict.
            deviations: Number of standard deviations of log seconds to add to the median.
            folds_done: Number of folds already evaluated on the same rows; such folds take no time.
        """
        medians, spreads = [], []
        chosen = self._choices(query.configuration).items()
        pairs = [((step, choice.algorithm), choice) for step, choice in chosen]
        for pair, choice in (*pairs, (_REST, None)):
            features = self._algorithms[pair].features(self.rows(query), choice)[None]
            for k in self._measured(pair):
                (mean,), (deviation,) = self._posterior(pair, k).predict(features)
                medians.append(_times(k, query.held_out * self._held_out_rows) * exp(mean))
                spreads.append(medians[-1] * deviation)
        of_fold = sum(medians)
        n_folds = max((query.folds or self._objective.n_folds or 1) - folds_done, 0)
        return n_folds * of_fold * exp(deviations * float(np.linalg.norm(spreads)) / of_fold)

    def held_out_seconds(self, configuration: Configuration, n_rows: int) -> float:
        """Return the median seconds to predict `n_rows` rows after a fit on all rows.

        Steps whose held-out rows are not measured separately count as 0 s.
        """
        seconds = 0.0
        for step, choice in self._choices(configuration).items():
            pair = step, choice.algorithm
            if 1 in self._measured(pair):
                features = self._algorithms[pair].features(self._rows, choice)
                seconds += _times(1, n_rows) * exp(features @ self._posterior(pair, 1).mean)
        return seconds

    def lines(self, step: str, algorithm: str) -> Array:
        """Return an algorithm's median log seconds, on all folds and rows, as two linear functions.

        The functions describe the fit and the held-out rows, shape (2, 1 + number of
        hyperparameters). The first column is the level at central values, or -inf if the part is
        not measured separately. The other columns are the slopes over hyperparameter positions.
        """
        pair, known = (step, algorithm), self._algorithms[step, algorithm]
        if pair in self._lines:
            return self._lines[pair]
        lines = np.zeros((2, len(known.slopes[0])))
        lines[:, 0] = -inf
        for k in self._measured(pair):
            mean = self._posterior(pair, k).mean
            n_times = (self._objective.n_folds or 1) * _times(k, self._held_out_rows)
            level = float(known.features(self._rows) @ mean) + log(n_times)
            lines[k] = level, *mean[2:]
        self._lines[pair] = lines
        return lines

    @property
    def overhead_seconds(self) -> float:
        """Median seconds of a full evaluation that are not spent in searched steps."""
        fixed = [s for s in self._space.steps if s.fixed and not s.algorithms[0].is_passthrough]
        pairs = [*((s.name, s.algorithms[0].id) for s in fixed), _REST]
        return sum(float(np.exp(self.lines(*pair)[:, 0]).sum()) for pair in pairs)

    @property
    def load_seconds(self) -> float:
        """Mean seconds to load a cached step on all folds; inf before the first load."""
        n_folds = self._objective.n_folds or 1
        return n_folds * sum(self._loads) / len(self._loads) if self._loads else inf

    def share_seconds(self, configuration: Configuration, budget: Budget) -> float:
        """Return the worker-seconds that a configuration's next trial may take.

        For the first trial of a model, the worker-seconds are divided equally among all models
        without a trial. Near the end, a first trial may still take three seconds, or half of the
        time left on a worker if shorter; with less, a pilot would reject the trial and waste time.
        Other trials may take all worker-seconds.
        """
        left = inf if budget.seconds_left is None else max(budget.seconds_left, 0.0)
        if self.model_of(configuration) in self.seen:
            return left
        least = min(_LEAST_SECONDS, left / max(budget.n_workers, 1) / 2)
        return max(left / len(self.models - self.seen), least)

    def allowed_seconds(self, query: Query, budget: Budget, *, is_first: bool = True) -> float:
        """Return the longest predicted run time with which a query may start now.

        The result is the minimum of `share_seconds`, the user's limit and the time left. If
        `is_first` and the query uses part of the rows, the result is also at most 1/60 of all
        worker-seconds or 3 s, whichever is more.
        """
        left = inf if budget.seconds_left is None else max(budget.seconds_left, 0.0)
        share = self.share_seconds(query.configuration, budget)
        of_run = max(_PARTIAL_SHARE * (budget.seconds_spent + left), _LEAST_SECONDS)
        if query.subset == 1 or not is_first:
            of_run = inf
        return min(share, of_run, left / max(budget.n_workers, 1), budget.trial_seconds or inf)

    def _add(self, cost: StepCost, choice: Choice, rows: float, held_out_rows: float) -> None:
        algorithm = self._algorithms[cost.step, choice.algorithm]
        features = algorithm.features(rows, choice)
        algorithm.add(0, features, cost.seconds - cost.held_out_seconds)
        if cost.held_out_seconds and held_out_rows:
            algorithm.add(1, features, cost.held_out_seconds / _times(1, held_out_rows))
            self._is_apart = True

    def _measured(self, pair: _Pair) -> tuple[int, ...]:
        """Return the regressions to use: 0 (fit), and 1 (held-out rows) if measured separately."""
        known = self._algorithms[pair]
        is_apart = known.is_known(1) or (not known.is_known() and self._is_apart)
        return (0, 1) if pair != _REST and is_apart else (0,)

    def _choices(self, configuration: Configuration) -> dict[str, Choice]:
        chosen = dict(configuration.choices)
        return {
            step.name: chosen.get(step.name, Choice(algorithm.id))
            for step, algorithm in self._space.pipeline(configuration.path)
            if not algorithm.is_passthrough or step.name == self._last
        }

    def _posterior(self, pair: _Pair, k: int) -> LinearPosterior:
        """Return the posterior of regression k of an algorithm.

        The prior level comes from earlier studies, or else from the other algorithms of the step.
        Without such measurements, the prior level is the algorithm's own level or, for a step
        without measurements, the lowest level of all steps. Before any measurement, a fit is
        assumed to take the shortest time that can be measured.
        """
        if (pair, k) in self._posteriors:
            return self._posteriors[pair, k]
        algorithm = self._algorithms[pair]
        earlier = self._earlier.get(pair, (None, None))[k]
        levels = [] if earlier is None else [earlier]
        if not levels:
            known = {p: a.level(k) - a.moved for p, a in self._algorithms.items() if a.is_known(k)}
            levels = [level for p, level in known.items() if p[0] == pair[0] and p != pair]
            levels = levels or [known.get(pair, min(known.values(), default=log(LEAST_SECONDS)))]
        level, deviation = float(np.mean(levels)), max(float(np.std(levels)), _UNSURE)
        self._posteriors[pair, k] = algorithm.posterior(k, level + algorithm.moved, deviation)
        return self._posteriors[pair, k]


def _times(k: int, held_out_rows: float) -> float:
    """Return 1 for a fit (k = 0), or the number of held-out and fixed rows in thousands (k = 1)."""
    return (held_out_rows + GROWTH["fixed"]) / PER_ROWS if k else 1.0
