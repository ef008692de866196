"""The Prefect tasks of the final model: to fit a member, to put all together, to score on tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from prefect_tune.storage.key import model_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.evaluate import Report, ReportedSteps, with_store
from prefect_tune.tasks.final_model import Member, fit_member, fitted_pipeline, keep_model
from prefect_tune.tasks.fitting.final_scoring import LossOnTest, loss_on_test
from prefect_tune.tasks.study_context import StudyContext, open_store
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.worker.trial_note import trial_noted

__all__ = [
    "REFIT_TIMES",
    "MemberRefitted",
    "Refitted",
    "Scored",
    "member_pins",
    "refit",
    "refit_member",
    "score",
]

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
        seconds: Wall time it took.
        n_task_runs: Task runs that were reported.
    """

    seconds: float
    n_task_runs: int


@dataclass(frozen=True, slots=True)
class Scored:
    """Outcome of scoring on the test rows.

    Attributes:
        test: Loss of the model, or of the trial that was named.
        n_task_runs: Task runs that were reported.
    """

    test: LossOnTest
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
    report: Report = "steps",
) -> State[Refitted]:
    """Fit configurations on all training rows, and keep them as the study's model.

    Args:
        what: What is fitted, for the name of the task run.
        members: Its members. What `refit_member` has made of them is served.
        context: The study.
        report: Which of their steps are task runs of their own.
    """
    started, reported = perf_counter(), ReportedSteps(report)
    with trial_noted(REFIT_TIMES * len(members)):
        with_store(lambda: keep_model(context, members, reported.run_step))
    refitted = Refitted(perf_counter() - started, reported.n_task_runs)
    return Completed(message=f"stored after {refitted.seconds:.1f} s", data=refitted)


@task(
    name="score",
    task_run_name="score {what}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
)
def score(
    what: str,  # noqa: ARG001 - names the task run
    context: StudyContext,
    alone: Member | None = None,
    report: Report = "trial",
) -> State[Scored]:
    """Score the study's model on the test rows, or one trial alone.

    Args:
        what: What is scored, for the name of the task run.
        context: The study.
        alone: The trial. Its pipeline comes from the model if the trial is a member. If not, it is
            fitted.
        report: Which steps of that fit are task runs of their own.
    """
    reported = ReportedSteps(report)
    with trial_noted(REFIT_TIMES):
        test = with_store(lambda: _scored(context, alone, reported))
    if test.loss is not None:
        message = f"test loss {test.loss:.4g}"
    else:
        message = f"undefined: {test.undefined}" if test.undefined else "no test rows"
    return Completed(message=message, data=Scored(test, reported.n_task_runs))


def _scored(context: StudyContext, alone: Member | None, reported: ReportedSteps) -> LossOnTest:
    store, problem = open_store(context.store), context.problem
    problem.find_space()  # a user's classes are needed to read the model
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    if not len(split.held_out(REFIT)):
        return LossOnTest(None)
    model = _pipeline_alone(context, alone, reported) if alone else _stored(context)["model"]
    with one_thread():
        return loss_on_test(model, dataset, split, problem.find_metric())


def _stored(context: StudyContext) -> Mapping[str, Any]:
    return open_store(context.store).records.get(model_record(context.study))


def _pipeline_alone(context: StudyContext, alone: Member, reported: ReportedSteps) -> Any:
    """Return the pipeline of one trial, from the stored model if the trial is one of several."""
    parts = _stored(context)
    numbers = [member["trial"] for member in parts["about"]["members"]]
    if alone.number in numbers and len(numbers) > 1:
        return parts["model"].members_[numbers.index(alone.number)]
    return fitted_pipeline(context, alone, reported.run_step)
