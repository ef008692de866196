"""Warm starts: what a new study of a series takes over from the earlier ones."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.prior import Prior, PriorTrial, best_and_diverse
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.series import Series

_STUDIES, _TRIALS = 3, 200
"""Most studies, and most full trials of all of them together, that a prior is made from."""


def warm_start(ledger: Ledger, series: Series, plan: StudyPlan, space: Space) -> Prior | None:
    """Return the prior of a new study from the newest studies of its series; None without trials.

    Trials outside the space, or that violate the constraints of the new study, are skipped. Initial
    configurations that the user gave replace those that the prior would evaluate first; these take
    at most half of a given number of trials.
    """
    trials: list[PriorTrial] = []
    used: list[str] = []
    for runs_ago, run in enumerate(reversed(series.runs), 1):
        if len(used) == _STUDIES:
            break
        found = sorted(_full_trials(ledger, run.study, plan, space), key=lambda known: known[1])
        if found:
            used.append(run.study)
        chosen = _spread(len(found), _TRIALS - len(trials))
        trials += [PriorTrial(*found[position], runs_ago) for position in chosen]
    if not trials:
        return None
    start = best_and_diverse(trials)
    if plan.options.trials is not None:  # a short night is not spent on repetitions alone
        start = start[: max(1, plan.options.trials // 2)]
    if plan.options.start is not None:
        start = tuple(Configuration.from_json(c, space) for c in plan.start_configurations)
    return Prior(tuple(trials), start, name=", ".join(used))


def _full_trials(
    ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> Iterator[tuple[Configuration, float]]:
    constraints = [bound.constraint for bound in plan.options.bounds]
    with documents_of(study):
        for document in ledger.trials(study, TrialState.COMPLETE):
            evaluation = document["evaluation"]
            if violation(constraints, evaluation["constraints"]) > 0:
                continue
            with suppress(ValueError):  # a configuration outside the space
                query = Query.from_json(document["query"], space)
                yield query.configuration, float(evaluation["loss"])


def _spread(n: int, most: int) -> Sequence[int]:
    """Return positions among n ranked trials: the best half of `most`, and others evenly."""
    if n <= most:
        return range(n)
    n_best = most // 2
    others = np.linspace(n_best, n - 1, most - n_best).round().astype(int)
    return [*range(n_best), *others.tolist()]
