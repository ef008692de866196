"""One trial a configuration: the evaluations that a raced method is told of.

Of a configuration that ended after its first fold it is the paired estimate, of one that went on
both stretches together.
"""

from collections.abc import Sequence
from dataclasses import replace

from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, StepCost

__all__ = ["estimated", "failed_later", "joined"]


def estimated(first: Evaluation, incumbent: Evaluation, objective: Objective) -> Evaluation:
    """Return the evaluation of a configuration of which only the first fold was run.

    Each fold is as much worse than the incumbent's as the first one was, so the loss is the
    incumbent's mean plus the difference seen; within the bounds of the metric. Seconds and steps
    are those of the first fold, as spent.

    Args:
        first: Of the first fold.
        incumbent: Of the best configuration, on all folds.
        objective: Knows the bounds.
    """
    difference = first.fold_losses[0] - incumbent.fold_losses[0]
    losses = tuple(
        min(max(loss + difference, objective.lower), objective.upper)
        for loss in incumbent.fold_losses
    )
    return replace(first, loss=sum(losses) / len(losses), fold_losses=losses, risks=())


def joined(first: Evaluation, whole: Evaluation) -> Evaluation:
    """Return the evaluation of a configuration that went on, as if it had been run at once.

    Args:
        first: Of the first fold.
        whole: Of all folds, the first one served.
    """
    return replace(
        whole,
        cost_seconds=first.cost_seconds + whole.cost_seconds,
        steps=_made_steps(first.steps, whole.steps),
        resumed_from=0,
    )


def failed_later(first: Evaluation, failure: Failure) -> Failure:
    """Return the failure of a configuration that had its first fold behind it, with its cost.

    What its first fold took is known, though the failure may not say what was served.
    """
    told = {(cost.step, cost.fold) for cost in failure.steps}
    unsaid = [cost for cost in first.steps if (cost.step, cost.fold) not in told]
    return replace(
        failure,
        cost_seconds=first.cost_seconds + failure.cost_seconds,
        steps=(*unsaid, *_made_steps(first.steps, failure.steps)),
    )


def _made_steps(first: Sequence[StepCost], later: Sequence[StepCost]) -> tuple[StepCost, ...]:
    """Return the later steps, those of the first stretch as that one made them."""
    made = {(cost.step, cost.fold): cost for cost in first}
    return tuple(made.get((cost.step, cost.fold), cost) for cost in later)
