"""The fidelity that a study is halved in: the one that is asked for, or the best it can have."""

from prefect_tune.optimizers.method import Fidelity
from prefect_tune.optimizers.methods.declarations import BracketOptions
from prefect_tune.optimizers.methods.rungs import Rungs, counted_levels, highest_s
from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Objective

_LEAST_ROWS = 100
"""Of a subset: losses of models of fewer rows hardly tell what they are of all."""
_MOST_SUBSETS = 4
"""Rungs of subsets, unless it is said otherwise."""
_MANY_SUBSETS = 3
"""With so many rungs the smallest subset saves more than folds do."""
_ORDER: tuple[Fidelity, ...] = ("epochs", "subset", "folds")


def choose_rungs(space: Space, objective: Objective, options: BracketOptions) -> tuple[Rungs, str]:
    """Return the rungs of a study, and why in this fidelity, for people.

    Numbers of rows that the objective does not know exclude no subsets.

    Raises:
        ValueError: If the study cannot have the fidelity, or none; says which it can have.
    """
    obstacles = {fidelity: _obstacle(fidelity, space, objective, options) for fidelity in _ORDER}
    possible = [fidelity for fidelity in _ORDER if not obstacles[fidelity]]
    if options.fidelity is not None:
        if options.fidelity not in possible:
            instead = " or ".join(f"fidelity={fidelity}" for fidelity in possible)
            raise ValueError(
                f"fidelity={options.fidelity} is not possible: {obstacles[options.fidelity]}; "
                f"{instead or 'a method without fidelities'} would serve"
            )
        return _rungs(options.fidelity, objective, options), "as asked for"
    if not possible:
        listed = "; ".join(f"{fidelity}: {obstacles[fidelity]}" for fidelity in _ORDER)
        raise ValueError(
            f"nothing is less than a full evaluation here ({listed}); "
            "a method without fidelities would serve"
        )
    if "epochs" in possible:
        return _rungs("epochs", objective, options), "models train in epochs"
    if "subset" in possible:
        rungs = _rungs("subset", objective, options)
        if len(rungs) >= min(_MANY_SUBSETS, options.n_rungs or _MANY_SUBSETS):
            return rungs, "no model trains in epochs, and the rows are many"
        if "folds" not in possible:
            return rungs, "no model trains in epochs, and there is one fold"
    return _rungs("folds", objective, options), "no model trains in epochs, and the rows are few"


def _obstacle(
    fidelity: Fidelity, space: Space, objective: Objective, options: BracketOptions
) -> str:
    """Return why a study cannot have a fidelity; empty if it can."""
    if fidelity == "epochs":
        if objective.epochs is None:
            return "the study trains models at once, as it has no number of epochs (--epochs)"
        if objective.epochs < 2:
            return f"a full training must have at least 2 epochs; it has {objective.epochs}"
        if not any(a.id in objective.iterative for s in space.steps for a in s.algorithms):
            return f"no model of space {space.name!r} trains in epochs"
    if fidelity == "folds" and (objective.n_folds is None or objective.n_folds < 2):
        return f"it takes at least 2 folds, and the study has {objective.n_folds or 'no number'}"
    if fidelity == "subset" and _n_subsets(objective, options.eta) < 1:
        of_rarest = (
            f", and {ROWS_PER_CLASS} of the rarest class (which has {objective.n_rarest})"
            if objective.n_classes
            else ""
        )
        return (
            f"one in {options.eta} of the {objective.n_rows} training rows of a fold is too few: a "
            f"subset takes {_least_rows(objective)} rows{of_rarest}"
        )
    return ""


def _rungs(fidelity: Fidelity, objective: Objective, options: BracketOptions) -> Rungs:
    eta = options.eta
    if fidelity == "subset":
        most = (options.n_rungs or _MOST_SUBSETS) - 1
        s = min(_n_subsets(objective, eta), most)
        return Rungs("subset", tuple(1 / eta**k for k in range(s, -1, -1)))
    total = objective.epochs if fidelity == "epochs" else objective.n_folds
    assert total is not None  # noqa: S101 - an obstacle otherwise
    s = highest_s(total, eta)
    if options.n_rungs is not None:
        s = min(s, options.n_rungs - 1)
    return Rungs(fidelity, counted_levels(total, eta, s))


def _n_subsets(objective: Objective, eta: int) -> int:
    """Return the largest s for which a subset of `eta^-s` of the rows is not too small."""
    s = 0
    while s < 32 and _is_enough(objective, eta ** (s + 1)):
        s += 1
    return s


def _is_enough(objective: Objective, divisor: int) -> bool:
    rows, rarest = objective.n_rows, objective.n_rarest
    if rows is not None and rows < divisor * _least_rows(objective):
        return False
    is_class = bool(objective.n_classes) and rarest is not None
    return not (is_class and rarest is not None and rarest < divisor * ROWS_PER_CLASS)


def _least_rows(objective: Objective) -> int:
    return max(_LEAST_ROWS, ROWS_PER_CLASS * (objective.n_classes or 0))
