"""Refits of what a study has chosen: members side by side, then the model that is made of them."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter

from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.database import StoreLost
from prefect_tune.tasks.evaluate import Report
from prefect_tune.tasks.final_model import Member, RefitFailed
from prefect_tune.tasks.refit import REFIT_TIMES, Refitted, member_pins, refit, refit_member
from prefect_tune.tasks.study_context import StudyContext

__all__ = ["refit_model"]


def refit_model(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    weighted: Sequence[tuple[Trial, float]],
    single_best: Trial,
) -> tuple[Refitted, float]:
    """Fit members on all training rows and keep the model that is made of them.

    They are fitted side by side, each by a task of its own, and handed over by the cache, where
    they stay pinned until then. Without a cache one task fits them one after the other.

    Args:
        study: The study.
        running: Workers to fit on, none of which is needed by a trial.
        context: The study, for the workers.
        weighted: Trials that the model is made of, and their weights.
        single_best: The best trial, which is tested alone too.

    Returns:
        The outcome, and the seconds that it took.

    Raises:
        RefitFailed: If a member cannot be fitted or takes too long, or the worker of a task died in
            each attempt; names the trial.
        StoreLost: If the store cannot go on.
    """
    started = perf_counter()
    members = [_member(study, trial, weight) for trial, weight in weighted]
    what = f"trial {members[0].number}" if len(members) == 1 else f"ensemble of {len(members)}"
    is_member = single_best.number in {member.number for member in members}
    alone = [] if is_member else [_member(study, single_best, 0.0)]
    parameters = {
        "what": what, "members": [*members, *alone], "context": context,
        "single_best": single_best.number,
    }  # fmt: skip
    pins, limit_seconds = study.store.index.pins, REFIT_TIMES * study.plan.trial_limits().seconds
    pins.release_beginning(member_pins(study.name))  # of a session that was killed
    try:
        if len(members) == 1 or not context.use_cache:
            limit_seconds *= len(members) + len(alone)
            refitted: Refitted = running.run(refit, parameters, limit_seconds=limit_seconds)
            return refitted, perf_counter() - started
        asked = study.plan.execution.task_runs
        report: Report = "steps" if asked == "auto" else asked
        jobs = [_job(member, context, report) for member in _in_turn(members)]
        running.run_all(jobs, limit_seconds=limit_seconds)
        with suppress(RefitFailed, TimeoutError):  # it is only to be compared with
            jobs = [_job(member, context, report) for member in alone]
            running.run_all(jobs, limit_seconds=limit_seconds)
        put_together = {**parameters, "report": "trial"}
        refitted = running.run(refit, put_together, limit_seconds=limit_seconds)
    except StoreLost:
        raise
    except (RuntimeError, TimeoutError) as error:
        is_named = isinstance(error, RefitFailed) or len(members) > 1
        raise RefitFailed(f"{error}" if is_named else f"refit of {what}: {error}") from error
    finally:
        pins.release_beginning(member_pins(study.name))
    return refitted, perf_counter() - started


def _member(study: Study, trial: Trial, weight: float) -> Member:
    return Member(trial.number, study.optimizer.refit(trial).to_json(), weight)


def _in_turn(members: Sequence[Member]) -> list[Member]:
    """Return members so that as few as can be begin while what they begin with is being made.

    The first of each prefix come first, then the second ones: side by side, those of one prefix
    would wait for each other.
    """
    n_before: Counter[str] = Counter()
    turns = []
    for member in members:
        *prefix, _ = member.query["configuration"].items()
        turns.append(n_before[text := json.dumps(prefix)])
        n_before[text] += 1
    return [members[i] for i in sorted(range(len(members)), key=turns.__getitem__)]


def _job(member: Member, context: StudyContext, report: Report) -> Job:
    parameters = {
        "number": member.number, "query": member.query, "context": context, "report": report,
    }  # fmt: skip
    return Job(refit_member, parameters, f"refit of trial {member.number}")
