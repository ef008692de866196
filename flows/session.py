"""One session of a study inside a flow run: workers, search, final model and summary."""

import shlex
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import replace
from math import inf
from typing import Any
from uuid import UUID

from dask.system import CPU_COUNT
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.settings import get_current_settings

from prefect_tune.flows.ending.final_model import ending_seconds, fit_final_model
from prefect_tune.flows.ending.reevaluation import recheck_finalists
from prefect_tune.flows.flow_run_page import send_event, shown_on_page
from prefect_tune.flows.options.store_location import store_options
from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.reading.commands import continue_command
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.running.run_requests import RunRequests
from prefect_tune.flows.search import StudySearch, progress_of
from prefect_tune.flows.series.next_study import SeriesStudy
from prefect_tune.flows.series.promotion import decide_promotion
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.study.notices import StudyNotices
from prefect_tune.flows.study.progress import Observer, current_observer
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.wording.text import format_seconds
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.server_pace import (
    OutageNote,
    ServerPace,
    close_previous_flow_run,
)
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.notices import noticed_by, warn
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.dask_runner import drain_events
from prefect_tune.tasks.user_code import changed_files

_NO_SERVER = (
    "no Prefect server is set, so the study's task runs are lost at the end; wrap the call in "
    "`with prefect_tune.local_server():`, or set PREFECT_API_URL"
)


def run_study(
    prepared: PreparedStudy,
    numbers: Collection[int] | None = None,
    at_start: Callable[[Study], None] = lambda _: None,
) -> dict[str, Any]:
    """Search until the stop rule is met, fit the final model, and return a summary.

    If `numbers` is given, only the waiting trials with these numbers are run. `at_start` is called
    with the study as soon as this process holds the study's lease. The summary is the output of
    `prefect-tune show --json`. Raises `BadInput` if another process runs the study or the cluster
    cannot be used, and `StudyFailed` if nothing was evaluated or no trial can become the final
    model.
    """
    flow_run_id = UUID(str(flow_run.id))
    observer = StudyNotices(current_observer(), str(flow_run_id))
    if get_current_settings().api.url is None:
        observer.note(_NO_SERVER)
    plan = replace(prepared.plan, flow_run_id=str(flow_run_id))
    opened = Study.opened(prepared.store, prepared.name, prepared.plan)
    with noticed_by(observer.take), opened as study:
        observer.attach(study)
        close_previous_flow_run(study.former_flow_run, flow_run_id)
        study.set_plan(plan, prepared.notes)
        at_start(study)
        method, series = study.optimizer.name, plan.options.series
        tags = [*flow_run.tags, f"study:{study.name}", f"method:{method}"]
        tags += [f"series:{series}"] * (series is not None)
        with get_client(sync_client=True) as client:
            title = f"{study.name} ({method})"
            client.update_flow_run(flow_run_id, name=title, tags=list(dict.fromkeys(tags)))
        outage = OutageNote(observer)
        pace = ServerPace(plan.options.task_runs, flow_run_id, observer, outage)
        study.set_state("running")
        prepared.store.sweep()
        with shown_on_page(
            study, observer, progress_of(study, plan.options.stop_rule), outage
        ) as page:
            try:
                # In a comparison, the study has waited for other studies.
                since = None if prepared.is_compared else prepared.since
                counted = study.clock.running(since) if numbers is None else nullcontext()
                with counted, RunRequests.watched(flow_run_id) as requests:
                    n_task_runs = _run(prepared, study, pace, page, numbers, requests)
            except BaseException as error:
                state = "failed" if isinstance(error, StudyFailed) else "interrupted"
                with suppress(StoreLost):
                    if isinstance(error, StudyFailed):
                        study.record(replace(study.facts, no_model=str(error)))
                    observer.write()
                study.set_state(state)
                if isinstance(error, Exception):  # otherwise a person has ended the study
                    can_resume = not isinstance(error, StudyFailed)
                    _send(study, "study-failed", reason=str(error), can_resume=can_resume)
                raise
            is_still_cut = numbers is not None and study.former_state == "interrupted"
            study.set_state("interrupted" if is_still_cut else "complete")
            study.record(replace(study.facts, no_model=None))
            # In a comparison, other studies of this process still send events.
            if not prepared.is_compared:
                drain_events()
            pace.finish(n_task_runs)
            prepared.store.index.usage.flush()
            observer.write()
            view = read_study(prepared.store, study.name)
            if view.state == "complete":  # false after a retry of an interrupted study
                loss = None if view.incumbent is None else view.incumbent.loss
                seconds, test_loss = view.seconds.total, view.test_loss
                _send(study, "study-completed", loss=loss, test_loss=test_loss, seconds=seconds)
        return view.to_json()


def _send(study: Study, event: str, **payload: Any) -> None:
    """Send a Prefect event about the end of a study."""
    plan, totals = study.plan, study.trials.totals
    send_event(
        "study",
        study.name,
        event,
        series=plan.options.series,
        data=plan.options.data,
        method=plan.method,
        metric=plan.metric,
        n_trials=totals.told,
        n_failed=totals.failed,
        **payload,
    )


def _run(  # noqa: PLR0917
    prepared: PreparedStudy,
    study: Study,
    pace: ServerPace,
    observer: Observer,
    numbers: Collection[int] | None,
    requests: RunRequests,
) -> int:
    """Search and fit the final model on this session's workers; return the number of task runs."""
    plan, limits = study.plan, study.plan.trial_limits()
    was_spent = plan.options.budget is not None and study.seconds_before >= plan.options.budget
    context = StudyContext(
        study.name,
        plan.problem,
        study.store.address,
        use_cache=plan.options.use_cache,
        memory_limit_bytes=limits.memory_bytes,
        trial_seconds=limits.seconds,
        cache_area=study.name if prepared.is_compared else "",
        quantities=tuple(bounded.quantity for bounded in plan.options.bounds),
        epochs=plan.options.epochs,
        bootstraps=study.optimizer.bootstraps,
    )
    n_told = study.trials.totals.told
    with DaskTrials.started(
        context,
        UUID(plan.flow_run_id),
        n_workers=1 if prepared.is_compared else plan.options.workers,
        n_sharing=(plan.options.workers or CPU_COUNT) if prepared.is_compared else 1,
        scheduler=plan.options.dask,
    ) as running:
        rule = plan.options.stop_rule if numbers is None else StopRule()
        search = StudySearch(
            study, running, rule, pace, observer, numbers=numbers, requests=requests,
            reserve=lambda seconds: ending_seconds(study, running.n_slots, seconds),
        )  # fmt: skip
        with study.searching() if numbers is None else nullcontext():
            reason = search.run()
            is_unextended = study.trials.totals.told == n_told
            if is_unextended:
                reason += f"; no trial was added (study time: {format_seconds(study.seconds())})"
            observer.note(f"search finished: {reason}")
            if numbers is None:
                observer.tick(progress_of(study, rule, phase="re-evaluation"))
                recheck_finalists(study, running, context, observer)
        decisions, seconds = study.optimizer.decisions, study.optimizer.costs.portable()
        study.record(replace(study.facts, decisions=decisions, algorithm_seconds=tuple(seconds)))
        for note in decisions.get("notes", ()):
            # The search has already reported the method's notes.
            if numbers is not None or note not in study.optimizer.notes:
                observer.note(f"{study.optimizer.name}: {note}")
        bounded = [bound.quantity for bound in plan.options.bounds]
        texts = [(plan.space.partition(":")[0], plan.problem.space_code, plan.problem.behind)]
        texts += [(q.name.rpartition(":")[0], q.code, q.behind) for q in bounded if q.code]
        if changed := dict.fromkeys(file for text in texts for file in changed_files(*text)):
            warn(
                "code",
                f"files have changed since the study started: {', '.join(changed)}; the study "
                "keeps using the earlier files; start a new study to use the changes",
            )
        if any(study.trials[n].state == TrialState.STOPPED for n in numbers or ()):
            address = store_options(study.store.address)
            again = shlex.join([*continue_command(plan, study.name), *address])
            observer.note(
                f"some reruns are partial; to evaluate the best in full, run {again} (with a "
                "larger --budget if the budget is used up)"
            )
        observer.tick(progress_of(study, plan.options.stop_rule, phase="final model"))
        # If the search had nothing left to do, this session only fits the model.
        is_for_model = was_spent or is_unextended
        seconds_left = (lambda: inf) if is_for_model or numbers is not None else study.seconds_left
        fit_final_model(study, running, context, observer, seconds_left)
        # An interrupted search stays interrupted, so that it can be resumed.
        if numbers is None or study.former_state != "interrupted":
            locked = prepared.locked if isinstance(prepared, SeriesStudy) else None
            decide_promotion(study, running, context, observer, locked)
        return running.n_task_runs
