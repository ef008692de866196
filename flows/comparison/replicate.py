"""One replicate of a comparison: runs the search, then scores the incumbents at fixed times."""

from dataclasses import replace
from typing import Protocol

from prefect.exceptions import PrefectSignal
from prefect.runtime import flow_run

from prefect_tune.flows.comparison.comparison import Replicate
from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.comparison.standings import FRACTIONS, state_at
from prefect_tune.flows.progress import Observer
from prefect_tune.flows.refitting import member_of, score_model
from prefect_tune.flows.run_requests import RunRequests
from prefect_tune.flows.search import StudySearch
from prefect_tune.flows.study.explanations import most_frequent_failure
from prefect_tune.flows.study.facts import ModelFacts, WeightedTrial
from prefect_tune.flows.study.notices import StudyNotices
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.text import LossWords, bracketed, format_seconds
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.optimizers.registry import method_named
from prefect_tune.optimizers.trials.objective import bootstraps_of
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.final_model import RefitFailed
from prefect_tune.tasks.prefect_tasks import refit
from prefect_tune.tasks.problem import StudyContext


class Interrupted(Exception):  # noqa: N818 - the name states the event
    """Another replicate has failed, or the flow is ending."""


class CheckedObserver(Observer, Protocol):
    """Observer that can also end its replicate."""

    def check(self) -> None:
        """Raise `Interrupted` if the replicate should end."""


def replicate_context(replicate: Replicate) -> StudyContext:
    """Return the worker context of a replicate, with a separate cache area."""
    prepared, plan = replicate.prepared, replicate.plan
    options = method_named(plan.method).options(**plan.options.option)
    return StudyContext(
        prepared.name,
        plan.problem,
        prepared.store.address,
        use_cache=plan.options.use_cache,
        memory_limit_bytes=plan.trial_limits().memory_bytes,
        trial_seconds=plan.trial_limits().seconds,
        cache_area=prepared.name,
        epochs=plan.options.epochs,
        bootstraps=bootstraps_of(options),
    )


def run_replicate(
    replicate: Replicate,
    running: DaskTrials,
    pace: ServerPace,
    observer: CheckedObserver,
    requests: RunRequests,
) -> str:
    """StudySearch until the stop rule holds, then score; return a message with the outcome, or "".

    Raises `BadInput` if another process runs the study, and `Interrupted` if the session is ending.
    """
    prepared = replicate.prepared
    plan = replace(replicate.plan, flow_run_id=str(flow_run.id))
    notices = StudyNotices(observer, str(flow_run.id))
    with notices.listening(), Study.opened(prepared.store, prepared.name, plan) as study:
        notices.attach(study)
        study.set_plan(plan)
        study.set_state("running")
        try:
            with study.timed(), study.searching():
                try:
                    rule = plan.options.stop_rule
                    StudySearch(study, running, rule, pace, notices, requests=requests).run()
                except PrefectSignal as signal:  # raised again once all replicates have ended
                    raise Interrupted from signal
            study.record(replace(study.facts, decisions=study.optimizer.decisions))
            _score(study, running, replicate, observer)
        except BaseException:
            study.set_state("interrupted")
            raise
        notices.write()
        if study.incumbent is None:
            study.set_state("failed")
            observer.note(f"no trial was completed: {most_frequent_failure(study)}")
            return ""
        study.set_state("complete")
        message = _message(study, study.incumbent)
        observer.note(message)
        return message


def _score(
    study: Study, running: DaskTrials, replicate: Replicate, observer: CheckedObserver
) -> None:
    """Refit the incumbents of fixed times, and score them; the last one becomes the study's model.

    A failed fit has no test loss and ranks last. It is retried when the comparison is resumed.
    """
    losses, undefined = dict(study.facts.test_losses), dict(study.facts.test_losses_undefined)
    context = replicate_context(replicate)
    numbers = _incumbents(study, replicate)
    for number in numbers:
        members, key = (WeightedTrial(number, 1.0),), str(number)
        is_model = number != numbers[-1] or study.facts.model.members == members
        if is_model and (losses.get(key) is not None or key in undefined):
            continue
        member = member_of(study, study.trials[number])
        parameters = {"what": f"trial {number}", "members": [member], "context": context}
        try:
            observer.check()
            seconds = running.run(refit, parameters, check=observer.check)
        except (StoreLost, Interrupted):
            raise
        except Exception as error:  # as in a trial, a failure is a result
            text = f"trial {number} could not be fitted on all training rows: {error}"
            observer.note(str(error) if isinstance(error, RefitFailed) else text)
            losses[key] = None
            study.record(replace(study.facts, test_losses=dict(losses), model=ModelFacts()))
            continue
        test = score_model(running, context)
        losses[key] = test.loss
        if test.undefined:
            if test.is_final:
                undefined[key] = test.undefined
            name = LossWords(study.plan.metric).name
            text = f"{name} of trial {number} on the test rows is undefined: {test.undefined}"
            observer.note(text)
        model = ModelFacts(
            members=members,
            test_loss=test.loss,
            test_loss_undefined=test.undefined or None,
            single_best_test_loss=test.loss,
            refit_seconds=seconds,
            is_scored=True,
        )
        facts = replace(study.facts, test_losses=dict(losses), model=model)
        study.record(replace(facts, test_losses_undefined=dict(undefined)))


def _incumbents(study: Study, replicate: Replicate) -> list[int]:
    """Return the trials that led at fixed fractions of the budget, the current incumbent last."""
    curve = curve_of(study.ledger, replicate.stored(), comparison="", method="", repeat=0)
    states = [state_at(curve, fraction)["incumbent"] for fraction in FRACTIONS]
    numbers = {int(number) for state in states for number in state.dropna()}
    last = [] if study.incumbent is None else [study.incumbent.number]
    return [*sorted(numbers.difference(last)), *last]


def _message(study: Study, incumbent: Trial) -> str:
    plan, trials = study.plan, study.trials.values()
    n_told, n_failed = sum(t.is_told for t in trials), sum(t.failure is not None for t in trials)
    begun = "" if study.n_begun == len(trials) else f"{study.n_begun} configurations in "
    losses, test = LossWords(plan.metric), study.facts.model.test_loss
    tested = "" if test is None else f", on the test rows {losses.of(test)}"
    return (
        f"{losses.named(incumbent.loss)}{bracketed(plan.whole.part(incumbent.query.to_json()))}"
        f"{tested}; {begun}{n_told} trials, {n_failed} failed, "
        f"in {format_seconds(study.seconds())} "
        f"({format_seconds(study.asking_seconds)} asking)"
    )
