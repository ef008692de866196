"""Promotion: decides after each study of a series whether its model becomes the champion.

Because models may run users' code, the models are compared in a sandbox, within the limits of a
trial. The decision and the change of the champion are one transaction. If the process is killed
before the transaction, the next session of the study decides. After the transaction, no
further decision is made on the same model.
"""

from contextlib import closing, nullcontext
from dataclasses import replace

from prefect_tune.flows.flow_run_page import RunArtifact, artifact_key
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.series.champion import set_champion
from prefect_tune.flows.series.locked import LockedSeries, SeriesBusy
from prefect_tune.flows.series.view import losses_of
from prefect_tune.flows.study.progress import Observer
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.wording.text import counted, escaped, number_text
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.documents import to_document
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import warn
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.series import Champion, Decision, Outcome, Series
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.final.promotion import DecisionRules, ModelComparison, StudyModel
from prefect_tune.tasks.objective.comparison import LEAST_ROWS, LEVEL, level_of
from prefect_tune.tasks.prefect_tasks import compare_models
from prefect_tune.tasks.problem import StudyContext


def decide_promotion(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    locked: LockedSeries | None,
) -> None:
    """Decide whether the model of a study becomes the champion, unless already decided.

    `locked` is the series if a run of the series holds its lease, and None if a person resumed the
    study by name. If `locked` is None, the decision is made only if the series still has the study
    and no run holds the lease. A failed comparison also counts as a decision. Raises `StoreLost` if
    the store becomes unusable.
    """
    name, store = study.plan.options.series, study.store
    if name is None or not store.records.exists(model_record(study.name)):
        return
    try:
        with nullcontext(locked) if locked else closing(LockedSeries(store, name)) as of_study:
            _decide(of_study, study, running, context, observer)
    except (SeriesBusy, RecordDamaged) as error:
        observer.note(f"{study.name}: no decision on its model: {error}")


def _decide(
    locked: LockedSeries,
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
) -> None:
    series, model = locked.table.find(locked.name), locked.model_copy(study.name)
    run = None if series is None else series.run_of(study.name)
    if series is None or run is None:
        return
    # If a resumed study has a new model, a new decision is made.
    decided = {run.decision.model if run.decision else "", *(c.record for c in series.champions)}
    if model not in decided:
        decision = _decision(series, study, model, running, context)
        opened = open_study(locked.store, study.name)
        best, prior = opened.facts.best_trial, opened.facts.decisions.get("prior") or {}
        run = replace(
            run,
            decision=decision,
            loss=None if best is None else opened.trial(best).loss,
            test_loss=opened.facts.model.test_loss,
            reused=replace(run.reused, weight=prior.get("weight")),
        )
        tested = replace(
            series, n_tests=series.n_tests + (decision.test_number is not None)
        ).with_run(run)
        if decision.promoted:
            champion = Champion(
                study.name, model, "test" if decision.outcome == "better" else "rule"
            )
            set_champion(locked, tested, champion, run, by=champion.by, reason=decision.reason)
        else:
            locked.table.save(tested, run)
        observer.note(f"{study.name}: {decision.reason}")
        text = f"{escaped(study.name)}: {escaped(decision.reason)}."
        text = f"# Series {escaped(series.name)}\n\n{text}"
        try:
            key = artifact_key(series.name, "champion")
            RunArtifact(key, "markdown").publish(text, decision.reason)
        except Exception as error:  # a study does not depend on Prefect's display
            warn("server", f"the decision on {study.name} is not shown in Prefect: {error}")
    locked.release_models()


def _decision(
    series: Series, study: Study, model: str, running: DaskTrials, context: StudyContext
) -> Decision:
    rule, champion = study.plan.options.promotion, series.champion
    if champion is None:
        if rule == "never":
            reason = "not promoted, because of --promotion never"
            return Decision(promoted=False, outcome="never", reason=reason, model=model)
        reason = "champion, because it is the first model of the series"
        return Decision(promoted=True, outcome="first", reason=reason, model=model)
    number = series.n_tests + 1
    level = level_of(number) if rule == "better" else LEVEL
    rules = DecisionRules(
        identity=study.plan.fixed_test or (),
        excludes_test_rows=champion.by != "rule",  # test rows may have decided the promotion
        margin=study.plan.options.margin or 0.0,
        level=level,
        decision=number,
    )
    try:
        problem = open_study(study.store, champion.study).plan.problem
        parameters = {
            "what": f"{study.name} with {champion.study}",
            "context": context,
            "champion": StudyModel(champion.record, problem),
            "challenger": StudyModel(model_record(study.name), study.plan.problem),
            "rules": rules,
        }
        comparison: ModelComparison = running.run(compare_models, parameters)
    except StoreLost:
        raise
    except Exception as error:  # for example, a process died or a study was removed
        comparison = ModelComparison(0, problem=masked(str(error).split("\n", 1)[0]))
    compared, losses = comparison.compared, losses_of(series)
    is_tested = rule == "better" and compared is not None
    if compared is not None:
        details = (
            f": {losses.named(compared.challenger.value)}, champion {champion.study} "
            f"{losses.of(compared.champion.value)}, on {counted(compared.n_rows, 'fresh row')}"
        )
    elif comparison.problem:
        details = f": the models could not be compared: {comparison.problem}"
    else:
        details = (
            f": not enough rows ({counted(comparison.n_rows, 'test row')} that the champion "
            f"{champion.study} has not seen; a comparison needs {LEAST_ROWS})"
        )
    outcome: Outcome
    if rule != "better":
        outcome, details = rule, f", because of --promotion {rule}{details}"
    elif compared is None:
        outcome = "not compared" if comparison.problem else "too few rows"
    else:
        outcome = "better" if compared.is_better else "not better"
        test = f"p = {number_text(compared.p)}; a promotion needs p <= {number_text(level)}"
        details = f"{details} ({test})"
    is_promoted = outcome in {"always", "better"}
    return Decision(
        promoted=is_promoted,
        outcome=outcome,
        reason=f"{'champion' if is_promoted else 'not promoted'}{details}",
        model=model,
        champion=champion.study,
        test_number=number if is_tested else None,
        n_rows=None if comparison.problem else comparison.n_rows,
        compared=None if compared is None else to_document(compared),
    )
