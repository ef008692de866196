"""Promotion: after each study of a series, whether its model replaces the champion.

The models are compared in a sandbox of the study, within the limits of a trial, because they run
users' code. A decision and the change of the champion are one event of the series. If the process
is killed before the event, the resumed study decides; if it is killed after the event, it does not
decide again.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from prefect_tune.flows.flow_run_page import RunArtifact, artifact_key
from prefect_tune.flows.markdown import escaped, table
from prefect_tune.flows.prefect_events import NewChampion, send_event
from prefect_tune.flows.progress import Observer
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.series.champion import (
    Champion,
    Decision,
    Interval,
    Outcome,
    champion_of,
    copy_model,
    count_tests,
    keep_champions,
    model_copy,
)
from prefect_tune.flows.series.series import HeldSeries, Series, SeriesBusy, find_series
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.text import LossWords, counted, number_text
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import warn
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.model_comparison import ModelComparison, StudyModel, Terms
from prefect_tune.tasks.objective.declaration import METRICS
from prefect_tune.tasks.objective.paired_comparison import LEAST_ROWS, LEVEL, level_of
from prefect_tune.tasks.prefect_tasks import compare_models
from prefect_tune.tasks.problem import StudyContext


def decide_promotions(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    held: HeldSeries | None,
) -> None:
    """Decide on the model of a study of a series, and before it on earlier undecided models.

    `held` is the series of a run of it; None for a study that a person resumed by its name, whose
    model is decided on if the series still has the study and is free. A comparison that fails is a
    decision too. Raises `StoreLost` if the store becomes unusable.
    """
    name, store = study.plan.options.series, study.store
    if held is not None:
        _decide(held, study, running, context, observer)
    elif name is not None and (series := find_series(store, name)) and series.run_of(study.name):
        try:
            held = HeldSeries.acquire(store, name)
        except SeriesBusy as busy:
            observer.note(f"{study.name}: no decision on its model: {busy}")
            return
        try:
            _decide(held, study, running, context, observer)
        finally:
            held.release()


def _decide(
    held: HeldSeries, study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    series, store = held.read(), held.store
    decided = {decision.study for decision in series.decisions}
    earlier = [run.study for run in series.runs if run.study not in {study.name, *decided}]
    for candidate in [*earlier, study.name]:
        if store.records.exists(model_record(candidate)):
            promotion = _Promotion(held, candidate, running, context, observer)
            try:
                promotion.decide()
            except RecordDamaged as error:  # a later run may replace the model
                observer.note(f"{candidate}: no decision on its model: {error}")
    keep_champions(store, held.read())


@dataclass
class _Promotion:
    """The decision on the current model of the study `candidate`."""

    held: HeldSeries
    candidate: str
    running: DaskTrials
    context: StudyContext
    observer: Observer

    def decide(self) -> None:
        store, series = self.held.store, self.held.read()
        model = model_copy(store, series.name, self.candidate)
        earlier = [d.body["model"] for d in series.decisions if d.study == self.candidate]
        champion = None if series.champion is None else champion_of(store, series).record
        if model in {*earlier, champion}:
            return
        decision = self._decision(series, model)
        if decision.promoted:
            copy_model(store, series.name, self.candidate)
        # A resumed study may have another model, and then gets another decision.
        self.held.append_decision(self.candidate, decision.to_json(), once=not earlier)
        self.observer.note(f"{self.candidate}: {decision.reason}")
        publish_decision(series.name, self.candidate, decision)
        if decision.promoted:
            _send_event(series, self.candidate, decision)

    def _decision(self, series: Series, model: str) -> Decision:
        store = self.held.store
        plan = open_study(store, self.candidate).plan
        options = plan.options
        undecided = Decision(
            promoted=False,
            outcome="never",
            reason="not promoted, because of --promotion never",
            model=model,
            rule=options.promotion,
            margin=options.margin or 0.0,
            metric=plan.metric,
            champion=series.champion,
        )
        if series.champion is not None:
            return self._compared(undecided, plan, series)
        if options.promotion == "never":
            return undecided
        reason = "champion, as the first model of the series"
        return replace(undecided, promoted=True, outcome="first", reason=reason)

    def _compared(self, undecided: Decision, plan: StudyPlan, series: Series) -> Decision:
        """Return the decision by the rule after a comparison with the champion."""
        rule, night = undecided.rule, count_tests(series) + 1
        level = level_of(night) if rule == "better" else LEVEL
        comparison = self._comparison(champion_of(self.held.store, series), plan, level, night)
        measured = replace(undecided, **_measured(comparison, plan.metric))
        losses = _losses_text(comparison, undecided)
        if rule != "better":
            is_always = rule == "always"
            by_rule: Outcome = "always" if is_always else "never"
            does = "champion" if is_always else "not promoted"
            reason = f"{does}, because of --promotion {rule}{losses}"
            return replace(measured, promoted=is_always, outcome=by_rule, reason=reason)
        compared = comparison.compared
        if compared is None:
            why_not: Outcome = "not compared" if comparison.problem else "too few rows"
            return replace(measured, outcome=why_not, reason=f"not promoted{losses}")
        is_better = compared.is_better
        outcome: Outcome = "better" if is_better else "not better"
        test = f"p = {number_text(compared.p)}; a promotion needs p <= {number_text(level)}"
        return replace(
            measured,
            promoted=is_better,
            outcome=outcome,
            reason=f"{'champion' if is_better else 'not promoted'}{losses} ({test})",
            night=night,
            level=level,
        )

    def _comparison(
        self, champion: Champion, plan: StudyPlan, level: float, night: int
    ) -> ModelComparison:
        terms = Terms(
            plan.fixed_test or (),
            champion.is_selected,
            plan.options.margin or 0.0,
            level,
            night,
        )
        try:
            problem = open_study(self.held.store, champion.study).plan.problem
            parameters = {
                "what": f"{self.candidate} with {champion.study}",
                "context": self.context,
                "champion": StudyModel(champion.record, problem),
                "challenger": StudyModel(model_record(self.candidate), plan.problem),
                "terms": terms,
            }
            compared: ModelComparison = self.running.run(compare_models, parameters)
        except StoreLost:
            raise
        except Exception as error:  # such as a dead process, or a removed study
            return ModelComparison(0, problem=masked(str(error).split("\n", 1)[0]))
        return compared


def _losses_text(comparison: ModelComparison, decision: Decision) -> str:
    """Return the losses, or why there are none, as the end of a reason."""
    compared, losses = comparison.compared, LossWords(decision.metric)
    if comparison.problem:
        return f": could not compare: {comparison.problem}"
    if compared is None:
        return (
            f": not enough rows ({counted(comparison.n_rows, 'test row')} that the champion "
            f"{decision.champion} does not depend on; a comparison needs {LEAST_ROWS})"
        )
    return (
        f": {losses.named(compared.challenger.value)}, champion {decision.champion} "
        f"{losses.of(compared.champion.value)}, on {counted(compared.n_rows, 'fresh row')}"
    )


def _measured(comparison: ModelComparison, metric: str) -> dict[str, Any]:
    """Return the fields of a decision that a comparison determines."""
    compared, declared = comparison.compared, METRICS.get(metric)
    if compared is None:
        return {} if comparison.problem else {"n_rows": comparison.n_rows}
    lower, upper = (declared.lower, declared.upper) if declared else (-inf, inf)
    return {
        "champion_loss": Interval.of(compared.champion, lower, upper),
        "challenger_loss": Interval.of(compared.challenger, lower, upper),
        "difference": Interval.of(compared.difference, -inf, inf),
        "p": compared.p,
        "n_rows": compared.n_rows,
        "n_blocks": compared.n_blocks,
    }


def _send_event(series: Series, study: str, decision: Decision) -> None:
    challenger, champion = decision.challenger_loss, decision.champion_loss
    send_event(
        NewChampion(
            series=series.name,
            study=study,
            former=decision.champion,
            by="test" if decision.outcome == "better" else "rule",
            reason=decision.reason,
            metric=decision.metric,
            loss=None if challenger is None else challenger.value,
            former_loss=None if champion is None else champion.value,
            rows=decision.n_rows,
        )
    )


def publish_decision(series: str, study: str, decision: Decision) -> None:
    """Publish a decision as a Prefect artifact, one key per series; warn if that fails."""
    artifact = RunArtifact(artifact_key(series, "champion"), "markdown")
    try:
        artifact.publish("\n".join(_lines(series, study, decision)), decision.reason)
    except Exception as error:  # a study does not depend on what Prefect shows
        warn("server", f"the decision on {study} is not shown in Prefect: {error}")


def _lines(series: str, study: str, decision: Decision) -> list[str]:
    losses = LossWords(decision.metric)
    rows = [
        (role, name, losses.of(loss.value), f"{losses.of(loss.low)} to {losses.of(loss.high)}")
        for role, name, loss in (
            ("challenger", study, decision.challenger_loss),
            ("champion", decision.champion or "", decision.champion_loss),
        )
        if loss is not None
    ]
    shown = [[escaped(cell) for cell in row] for row in rows]
    header = ["", "study", losses.name, "95 % interval"]
    compared = ["", *table(header, shown)] if rows else []
    told = f"{escaped(study)}: {escaped(decision.reason)}."
    return [f"# Series {escaped(series)}", "", told, *compared]
