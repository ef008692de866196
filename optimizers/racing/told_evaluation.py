"""One trial a configuration: the evaluations that a raced method is told of.

Of a configuration that ended after a stretch it is the paired estimate, of one that went on all
stretches together.
"""

from collections.abc import Sequence
from dataclasses import replace

from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, StepCost

__all__ = ["as_on_all_rows", "estimated", "failed_later", "joined"]


def estimated(
    stretch: Evaluation,
    incumbent: Evaluation,
    objective: Objective,
    difference: float | None = None,
) -> Evaluation:
    """Return the evaluation of a configuration of which only a first stretch was run.

    Each fold is as much worse than the incumbent's as the stretch was, so the loss is the
    incumbent's mean plus the difference seen; within the bounds of the metric. Seconds and steps
    are those of the stretch, as spent.

    Args:
        stretch: Of the first fold, or of all stretches together.
        incumbent: Of the best configuration, on all folds.
        objective: Knows the bounds.
        difference: To the incumbent in the same stretch; None for that on the first fold.
    """
    if difference is None:
        difference = stretch.fold_losses[0] - incumbent.fold_losses[0]
    losses = tuple(
        min(max(loss + difference, objective.lower), objective.upper)
        for loss in incumbent.fold_losses
    )
    return replace(stretch, loss=sum(losses) / len(losses), fold_losses=losses, risks=())


def as_on_all_rows(look: Evaluation, share: float) -> Evaluation:
    """Return the evaluation of a part of the rows with steps that took as long as all rows would.

    Seconds of steps are taken to be proportional to the rows. What was spent stays as it is.

    Args:
        look: Of the part.
        share: Of the rows, in (0, 1].
    """
    steps = (replace(cost, seconds=cost.seconds / share) for cost in look.steps)
    return look if share == 1 else replace(look, steps=tuple(steps))


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
