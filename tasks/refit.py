"""The Prefect tasks of the final model: one fits a member, one puts all of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from prefect_tune.tasks.evaluate import Report, ReportedSteps, with_store
from prefect_tune.tasks.final_model import Member, fit_member, keep_model
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.worker.trial_note import trial_noted

__all__ = ["REFIT_TIMES", "MemberRefitted", "Refitted", "member_pins", "refit", "refit_member"]

REFIT_TIMES = 3
"""How many times as long as a trial a fit on all training rows may take."""


@dataclass(frozen=True, slots=True)
class MemberRefitted:
    """Outcome of the refit of a member.

    Attributes:
        n_made: Steps that were made, not served.
        n_task_runs: Task runs that were reported.
    """

    n_made: int
    n_task_runs: int


@dataclass(frozen=True, slots=True)
class Refitted:
    """Outcome of the refit.

    Attributes:
        test_loss: Loss on the test rows; None without such rows.
        single_best_test_loss: That of the best single trial; None if none is named.
        seconds: Wall time it took.
        n_task_runs: Task runs that were reported.
    """

    test_loss: float | None
    single_best_test_loss: float | None
    seconds: float
    n_task_runs: int


def member_pins(study: str, number: int | None = None) -> str:
    """Return who pins, in the cache, what the member from a trial is made of.

    Without a number, what the names of all members of the study begin with.
    """
    return f"refit {study} " + ("" if number is None else str(number))


@task(
    name="refit member",
    task_run_name="refit member: trial {number}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
)
def refit_member(
    number: int, query: Mapping[str, Any], context: StudyContext, report: Report
) -> State[MemberRefitted]:
    """Fit a member on all training rows; what it is made of stays in the cache, pinned.

    Args:
        number: Number of the trial that it comes from.
        query: `Optimizer.refit` of the trial as JSON values.
        context: The study.
        report: Which of its steps are task runs of their own.
    """
    reported, owner = ReportedSteps(report), member_pins(context.study, number)
    member = Member(number, query)
    with trial_noted(REFIT_TIMES):
        path_run = with_store(lambda: fit_member(context, member, reported.run_step, owner))
    path_run.store.index.flush()
    costs = path_run.costs()
    n_made = sum(not cost.hit for cost in costs)
    message = f"{len(costs) - n_made} of {len(costs)} steps cached"
    return Completed(message=message, data=MemberRefitted(n_made, reported.n_task_runs))


@task(
    name="refit",
    task_run_name="refit {what}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
)
def refit(
    what: str,  # noqa: ARG001 - names the task run
    members: Sequence[Member],
    context: StudyContext,
    single_best: int | None = None,
    report: Report = "steps",
) -> State[Refitted]:
    """Fit configurations on all training rows, keep them as the study's model, and test it.

    Args:
        what: What is fitted, for the name of the task run.
        members: Its members. What `refit_member` has made of them is served.
        context: The study.
        single_best: Number of the trial, one of them, that is tested alone too.
        report: Which of their steps are task runs of their own.
    """
    started, reported = perf_counter(), ReportedSteps(report)
    with trial_noted(REFIT_TIMES * len(members)):
        test_loss, alone = with_store(
            lambda: keep_model(context, members, reported.run_step, single_best)
        )
    refitted = Refitted(test_loss, alone, perf_counter() - started, reported.n_task_runs)
    message = "no test rows" if test_loss is None else f"test loss {test_loss:.4g}"
    return Completed(message=message, data=refitted)
