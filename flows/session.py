"""One session of a study inside a flow run: workers up, search, final model, summary."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import flow_run
from prefect.settings import get_current_settings
from prefect.states import Crashed

from prefect_tune.flows.preparation.plan import Prepared
from prefect_tune.flows.progress import Observer, current_observer
from prefect_tune.flows.search import Limits, search
from prefect_tune.flows.study.ensemble import choose_ensemble
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.study.summary import summarize
from prefect_tune.flows.units import counted, format_seconds, loss_name
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.reaping import reap
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.storage.database import StoreLost
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.evaluate import TrialOutcome, evaluate
from prefect_tune.tasks.refit import refit
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.worker.dask_runner import drain_events

__all__ = ["bury_former_run", "run_study"]


def run_study(
    preparation: Prepared, limits: Limits, at_start: Callable[[Study], None] = lambda _: None
) -> dict[str, Any]:
    """Search within limits, fit the final model, and sum up.

    Args:
        preparation: The study.
        limits: When the search ends.
        at_start: Called with the study once it is ours.

    Raises:
        BadInput: If another process runs the study, or the cluster cannot be used.
        StudyFailed: If not a single trial was completed.
    """
    observer = current_observer()
    if get_current_settings().api.url is None:
        observer.note(
            "no Prefect server is named, so Prefect uses a temporary one, which loses task runs "
            "when it ends; wrap the call in `with prefect_tune.local_server():`, or set "
            "PREFECT_API_URL. The study itself loses nothing: everything is in its ledger"
        )
    with Study.opened(preparation.store, preparation.study, preparation.resolved) as study:
        flow_run_id = UUID(str(flow_run.id))
        former_run = study.stored.settings.get("flow_run_id")
        settings = {**preparation.resolved, "flow_run_id": str(flow_run_id)}
        study.ledger.update_study(study.name, settings=settings)
        bury_former_run(former_run, flow_run_id)
        former_state = study.stored.state
        at_start(study)
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run_id, name=f"{study.name} ({study.optimizer.name})")
        context = StudyContext(
            study.name,
            study.problem,
            preparation.store.address,
            use_cache=preparation.settings.use_cache,
            memory_limit_bytes=preparation.trial_limits.memory_bytes,
            quantities=tuple(b.quantity for b in study.bounds),
        )
        pace = ServerPace(preparation.settings.task_runs, flow_run_id, observer)
        study.set_state("running")
        preparation.store.sweep()
        try:
            with DaskTrials.started(
                context,
                flow_run_id,
                preparation.trial_limits,
                n_workers=preparation.settings.workers,
                scheduler=preparation.settings.dask,
            ) as running:
                trial_seconds = preparation.trial_limits.seconds
                _measure_missing(study, running, context, trial_seconds, observer)
                with study.session() if limits.only is None else nullcontext():
                    reason = search(study, running, limits, pace, observer)
                observer.note(f"search ended: {reason}")
                decisions = study.optimizer.decisions
                study.set_result(decisions=decisions)
                for note in decisions.get("notes", ()):
                    observer.note(f"{study.optimizer.name}: {note}")
                _refit(study, running, context, observer)
        except StudyFailed:
            study.set_state("failed")
            raise
        except BaseException:
            study.set_state("interrupted")
            raise
        study.set_state(
            "complete" if limits.only is None or former_state != "interrupted" else former_state
        )
        drain_events()
        missing = pace.wait_until_recorded(running.n_task_runs)
        if missing:
            observer.note(f"the Prefect server has not recorded {missing} task runs")
        reap(flow_run_id, Crashed(message="its process ended before it did"))
        preparation.store.index.flush()
        return summarize(preparation.store, study.name)


def _refit(study: Study, running: DaskTrials, context: StudyContext, observer: Observer) -> None:
    """Fit what was chosen on all training rows, unless that is what the study's model already is.

    Raises:
        StudyFailed: If there is no incumbent.
    """
    incumbent = study.incumbent
    if incumbent is None and study.nearest_miss():
        study.set_result(members=None, ensemble=None, test_loss=None)
        raise StudyFailed(f"study {study.name!r} ended without a model: {study.nearest_miss()}")
    if incumbent is None:
        raise StudyFailed(
            f"study {study.name!r} ended without a completed trial: {study.most_frequent_failure()}"
        )
    size = study.settings.get("ensemble") or 1
    chosen = choose_ensemble(study, size) if size > 1 else None
    weighted = chosen.members if chosen else ((incumbent, 1.0),)
    members = [{"trial": t.number, "weight": weight} for t, weight in weighted]
    what = f"trial {incumbent.number}" if len(members) == 1 else counted(len(members), "member")
    is_fitted = study.result.get("members") == members
    if is_fitted and study.store.records.is_whole(model_record(study.name)):
        return
    if chosen and len(chosen.losses) < size:
        observer.note(f"the ensemble has {len(chosen.losses)} picks; no more make it better")
    if size > 1 and chosen is None:
        observer.note(f"no ensemble is better on the held-out rows than {what}, which is taken")
    if len(members) > 1 and study.bounds:
        observer.note("each member keeps within the limits; the ensemble is slower and larger")
    observer.note(f"fitting {what} on all training rows (after the budget)")
    parameters = {
        "number": weighted[0][0].number,
        "members": [
            {"number": t.number, "query": t.query.to_json(), "weight": w} for t, w in weighted
        ],
        "context": context,
    }
    refitted = running.run(refit, parameters)
    study.set_result(
        members=members,
        ensemble=chosen.to_json() if chosen else None,
        test_loss=refitted.test_loss,
        refit_seconds=refitted.seconds,
    )
    observer.note(
        f"final model kept; {loss_name(study.problem.metric)} on the test rows "
        f"{refitted.test_loss:.4g} "
        f"(fitted in {format_seconds(refitted.seconds)})"
    )


def _measure_missing(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    limit_seconds: float,
    observer: Observer,
) -> None:
    """Measure what earlier trials were not asked for, where a limit was set later.

    A trial that cannot be measured is not within the limit.
    """
    missing = study.without_quantities()
    if missing:
        observer.note(f"measuring what is limited now in {counted(len(missing), 'earlier trial')}")
    for trial in missing:
        parameters = {
            "number": trial.number,
            "query": trial.query.to_json(),
            "context": context,
            "report": "trial",
        }
        try:
            came: TrialOutcome = running.run(evaluate, parameters, limit_seconds=limit_seconds)
        except (RuntimeError, TimeoutError) as error:  # its worker died, or it took too long
            observer.note(f"trial {trial.number} could not be measured: {error}")
            continue
        if came.lost:
            raise StoreLost(came.lost)
        if came.evaluation is not None:
            study.measure(trial.number, came.evaluation.constraints)
        elif came.failure is not None:
            observer.note(f"trial {trial.number} could not be measured: {came.failure.message}")


def bury_former_run(former: str | None, flow_run_id: UUID) -> None:
    """End the flow run of a session that was killed, and what it left open, in Prefect's eyes."""
    if former is None:
        return
    state: State[Any] = Crashed(message="its process was killed")
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(former))
        except Exception:
            return  # on another server, or deleted there
        if former != str(flow_run_id):
            if run.state is None or run.state.type not in (StateType.RUNNING, StateType.PENDING):
                return
            client.set_flow_run_state(UUID(former), state, force=True)
    reap(UUID(former), state)
