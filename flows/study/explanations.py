"""Explanations of why a study has no model, or differs from its code, in one line."""

from typing import TYPE_CHECKING

from prefect_tune.flows.wording.text import FailureGroups, counted, number_text
from prefect_tune.tasks.code_behind import changed_files

if TYPE_CHECKING:
    from prefect_tune.flows.study.plan import StudyPlan
    from prefect_tune.flows.study.study import Study


def most_frequent_failure(study: "Study") -> str:
    """Return the most frequent reason why trials failed."""
    failures = FailureGroups()
    for trial in study.trials.values():
        failures.add(trial.number, trial.failure)
    if not len(failures):
        return "no trial finished; rerun the command with a larger --budget"
    largest = failures.found()[0]
    n = len(largest.trials)
    which = "all" if n == len(failures) else f"{n} of them"
    return (
        f"{counted(len(failures), 'trial')} failed, {which} with an error like this: "
        f"{largest.text}; rerun them with retry"
    )


def changed_code(plan: "StudyPlan") -> str:
    """Return a note on files that changed since the study read them; empty if none did."""
    problem, quantities = plan.problem, [bounded.quantity for bounded in plan.options.bounds]
    texts = [(problem.space.partition(":")[0], problem.space_code, problem.behind)]
    texts += [(q.name.rpartition(":")[0], q.code, q.behind) for q in quantities if q.code]
    changed = dict.fromkeys(file for text in texts for file in changed_files(*text))
    if not changed:
        return ""
    return (
        f"changed since the study started: {', '.join(changed)}; the study keeps the earlier "
        "modules, and data files as each step found them; start a new study to use the changes"
    )


def nearest_miss(study: "Study") -> str:
    """Return a note on constraints no trial meets; empty if one does, or no trial has a loss."""
    history = study.optimizer.history
    nearest = history.nearest_infeasible
    if study.incumbent is not None or nearest is None or nearest.evaluation is None:
        return ""
    measured = nearest.evaluation.constraints
    above = [
        f"{c.name} {number_text(measured[c.name])} (allowed: {c.bound:g})"
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
