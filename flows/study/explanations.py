"""Shortfalls of a study in one line each: no model, constraints, memory. Light to import."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from prefect_tune.flows.text import counted
from prefect_tune.optimizers.trials.outcome import FailureKind

if TYPE_CHECKING:
    from prefect_tune.flows.study.study import Study


_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


def alike(reason: str) -> str:
    """Return the reason of a failure without its numbers: with others it is the same reason."""
    return _NUMBER.sub("#", reason)


def most_frequent_failure(study: "Study") -> str:
    """Return why trials failed: the reason that most of them share."""
    reasons: dict[str, list[str]] = {}
    for trial in study.trials.values():
        if (failure := trial.failure) is not None:
            text = f"{failure.step}: {failure.message}" if failure.step else failure.message
            reasons.setdefault(alike(text), []).append(text)
    if not reasons:
        return "no trial was finished; run the same command with a larger --budget"
    most = max(reasons.values(), key=len)
    n_failed = sum(map(len, reasons.values()))
    return (
        f"{counted(n_failed, 'trial')} failed, {len(most)} of them with: {most[0]}; retry runs "
        "them again"
    )


def left_out_for_memory(study: "Study") -> str:
    """Return which algorithms trials failed with for want of memory; empty if none did."""
    lacking: Counter[str] = Counter()
    for trial in study.trials.values():
        if trial.failure is not None and trial.failure.kind == FailureKind.MEMORY:
            choices = dict(trial.query.configuration.choices)
            *_, last = choices
            step = trial.failure.step if trial.failure.step in choices else last
            lacking[f"{step}: {choices[step].algorithm}"] += 1
    if not lacking:
        return ""
    named = ", ".join(f"{name} ({n})" for name, n in lacking.most_common())
    return (
        f"{counted(lacking.total(), 'trial')} left out as memory did not suffice: {named}; fewer "
        "--workers or a larger --trial-memory give each trial more"
    )


def nearest_miss(study: "Study") -> str:
    """Return which constraints no trial meets; empty if one meets all, or none has a loss."""
    history = study.optimizer.history
    nearest = history.nearest_infeasible
    if study.incumbent is not None or nearest is None or nearest.evaluation is None:
        return ""
    measured = nearest.evaluation.constraints
    above = [
        f"{c.name} {measured[c.name]:.4g} where {c.bound:g} is allowed"
        if c.name in measured
        else f"{c.name} not measured"
        for c in history.constraints
        if c.excess(measured) > 0
    ]
    evaluated = (
        counted(len(history.complete), "completed trial")
        if history.complete
        else counted(len(history.stopped), "partial evaluation")
    )
    return (
        f"none of {evaluated} meets all constraints; trial "
        f"{nearest.number} is nearest, with {'; '.join(above)}"
    )
