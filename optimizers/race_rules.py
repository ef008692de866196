"""The rules of a race: the rungs, the tests for being behind, and the outcomes told to the method.

A configuration runs on a part of the rows, on one fold, and on all folds. After each rung, its loss
is compared with the incumbent's on the same rung, since hard rows are hard for both. Finished
configurations show how much of a difference is chance. The method is told one evaluation per
configuration: a paired estimate if it was stopped early, else all rungs together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Self

import numpy as np

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import MANY_ROWS, Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, StepCost

_LOOK = 10_000
"""Fewest rows of a look (a run on part of the rows), as in FLAML 2.7."""
_LEAST_ROWS = 1_000
"""Fewest rows of a look if more would not end in time."""
_LOOK_RAREST = 100
"""Fewest rows of the rarest class in a look, if the data has so many."""
_RUNG = 4
"""Factor between the rows of successive looks, the usual factor of ASHA."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung: the part of an evaluation that one trial runs; `folds` is None for all."""

    subset: float = 1.0
    folds: int | None = None
    held_out: float = 1.0

    @classmethod
    def asked(cls, query: Query) -> Self:
        """Return the rung of a query."""
        return cls(query.subset, query.folds, query.held_out)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Sort key by the amount of work."""
        return self.subset, inf if self.folds is None else self.folds, self.held_out

    def of(self, whole: Query) -> Query:
        """Return the query of this rung of a whole evaluation."""
        return replace(whole, subset=self.subset, folds=self.folds, held_out=self.held_out)

    def fits(self, query: Query) -> bool:
        """Return whether a query has exactly this fidelity."""
        return (query.subset, query.folds) == (self.subset, self.folds)

    def fits_in_part(self, query: Query) -> bool:
        """Return whether a query has these folds, and at most these rows."""
        return query.subset <= self.subset and query.folds == self.folds


def is_large(objective: Objective) -> bool:
    """Return whether the rows are so many that a look at part of them comes first."""
    return _share(objective) < 1


def rungs_of(objective: Objective) -> tuple[Rung, ...]:
    """Return the rungs of a configuration, the whole evaluation last.

    The first rung is one fold. With more than 20,000 training rows, looks at parts of that fold
    come before. The first look has the smallest share 2^-k of the rows with 10,000 rows and 100 of
    the rarest class. Each next look has four times as many, up to a quarter. The first look is
    judged on the smallest 2^-k of the held-out rows by the same rule; each next look on four times
    as many. A `ValueError` is raised if no rung precedes the whole evaluation.
    """
    is_split = objective.n_folds is None or objective.n_folds > 1
    folds = (Rung(folds=1),) if is_split else ()
    share, judged = _share(objective), _held_out_share(objective)
    looks: list[Rung] = []
    while share < 1 and (not looks or share <= 1 / _RUNG):
        looks.append(Rung(share, 1 if is_split else None, judged))
        share, judged = _RUNG * share, min(_RUNG * judged, 1.0)
    if not looks and not folds:
        raise ValueError(
            f"a race needs 2 folds or more, or more than {MANY_ROWS:,} training rows; there is "
            f"{objective.n_folds} fold"
        )
    return (*looks, *folds, Rung())


def _share(objective: Objective) -> float:
    n_rows = objective.n_rows or 0
    if n_rows <= MANY_ROWS:
        return 1.0
    is_known = objective.n_classes and objective.n_rarest is not None
    return _halved(n_rows, (objective.n_rarest or 0) if is_known else inf)


def _halved(n_rows: int, n_rarest: float) -> float:
    share = 1.0
    while share * n_rows / 2 >= _LOOK and share * n_rarest / 2 >= _LOOK_RAREST:
        share /= 2
    return share


def smaller_shares(objective: Objective, share: float) -> list[float]:
    """Return a share, half of it, and so on down to 1,000 rows; the share itself always counts."""
    shares = [share]
    while shares[-1] / 2 * (objective.n_rows or 0) >= _LEAST_ROWS:
        shares.append(shares[-1] / 2)
    return shares


def _held_out_share(objective: Objective) -> float:
    n_rows = objective.n_held_out or 0
    rarest = inf
    if objective.n_classes and objective.n_rarest and objective.n_rows:
        rarest = objective.n_rarest * n_rows / objective.n_rows
    return _halved(n_rows, rarest)


LEAST_COMPARED = 3
"""Number of other configurations that must have run all folds to trust the spread."""


def is_behind(
    first: Evaluation, incumbent: Evaluation, history: History, sign: float = 1.0
) -> bool:
    """Return whether a configuration is worse on its first fold by more than a margin.

    Before the margin is known, it must be worse than the incumbent's worst fold (Bergman, Purucker
    and Hutter 2024, "Don't Waste Your Time: Early Stopping Cross-Validation", arXiv 2405.03389: the
    forgiving rule, after one fold). With a sign of -1, test whether it is better.
    """
    known, loss = margin(incumbent, history), sign * first.fold_losses[0]
    if known is None:
        return loss > max(sign * other for other in incumbent.fold_losses)
    return loss - sign * incumbent.fold_losses[0] > known


def margin(incumbent: Evaluation, history: History) -> float | None:
    """Return the difference on one fold that chance may explain; None if too few are known.

    The margin is s sqrt(1 - 1/K). The spread s of a configuration's differences to the incumbent is
    over K folds, pooled over all full configurations.
    """
    n_folds = len(incumbent.fold_losses)
    others = [
        trial.evaluation.fold_losses
        for trial in history.complete
        if trial.evaluation is not None
        and trial.evaluation is not incumbent
        and len(trial.evaluation.fold_losses) == n_folds
    ]
    if n_folds < 2 or len(others) < LEAST_COMPARED:
        return None
    differences = np.array(others) - np.array(incumbent.fold_losses)
    spread = sqrt(float(np.mean(np.var(differences, axis=1, ddof=1))))
    return spread * sqrt(1 - 1 / n_folds)


def is_behind_on_part(
    difference: float, incumbent: Evaluation, known: Sequence[tuple[float, float]]
) -> bool:
    """Return whether a loss is worse on a part of the rows by more than a margin.

    `difference` is the loss less the incumbent's. The incumbent is the best configuration, or the
    one that ran furthest. The margin is the root mean square error of a look, over the `known`
    differences of others on the part and in all, so it includes the effect of more rows. Before
    three are known, it is the difference between the incumbent's worst and best fold. With one
    fold, no loss is behind then.
    """
    if len(known) >= LEAST_COMPARED:
        looks, wholes = np.array(known).T
        return difference > sqrt(float(np.mean((looks - wholes) ** 2)))
    if len(incumbent.fold_losses) < 2:
        return False
    return difference > max(incumbent.fold_losses) - min(incumbent.fold_losses)


def estimated(
    rung: Evaluation,
    incumbent: Evaluation,
    objective: Objective,
    difference: float | None = None,
) -> Evaluation:
    """Return the evaluation of a configuration stopped after its first rung.

    Each fold is assumed to differ from the incumbent's by `difference`, by default as on the first
    fold, within the bounds of the metric. Seconds and steps are as spent.
    """
    if difference is None:
        difference = rung.fold_losses[0] - incumbent.fold_losses[0]
    losses = tuple(
        min(max(loss + difference, objective.lower), objective.upper)
        for loss in incumbent.fold_losses
    )
    return replace(rung, loss=sum(losses) / len(losses), fold_losses=losses, risks=())


def as_on_all_rows(look: Evaluation, growth: Mapping[str, float]) -> Evaluation:
    """Return a look's evaluation with steps slowed by their `growth` and the same seconds spent."""
    steps = (replace(cost, seconds=growth[cost.step] * cost.seconds) for cost in look.steps)
    return replace(look, steps=tuple(steps))


def joined(first: Evaluation, whole: Evaluation) -> Evaluation:
    """Return the evaluation of all folds as if the first fold had not been run before."""
    return replace(
        whole,
        cost_seconds=first.cost_seconds + whole.cost_seconds,
        steps=_made_steps(first.steps, whole.steps),
        resumed_from=0,
    )


def failed_later(first: Evaluation, failure: Failure) -> Failure:
    """Return the failure of a configuration after its first fold, with the cost of that fold."""
    told = {(cost.step, cost.fold) for cost in failure.steps}
    unsaid = [cost for cost in first.steps if (cost.step, cost.fold) not in told]
    return replace(
        failure,
        cost_seconds=first.cost_seconds + failure.cost_seconds,
        steps=(*unsaid, *_made_steps(first.steps, failure.steps)),
    )


def _made_steps(first: Sequence[StepCost], later: Sequence[StepCost]) -> tuple[StepCost, ...]:
    """Later steps, with hits of the first rung's results replaced by the steps that made them."""
    made = {(cost.step, cost.fold): cost for cost in first}
    return tuple(made.get((cost.step, cost.fold), cost) for cost in later)
