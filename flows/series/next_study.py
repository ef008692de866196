"""Decides whether a run of a series resumes a study, starts a new study, or ends at once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import count
from time import monotonic, time
from typing import Any
from uuid import UUID

import numpy as np
from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Completed
from sqlalchemy.engine import Connection

from prefect_tune.flows.flow_run_page import send_event
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.series.locked import LockedSeries
from prefect_tune.flows.series.question import Question, changes_between, check_needs, comparable
from prefect_tune.flows.series.view import change_texts
from prefect_tune.flows.starting.prepare import FirstEvents, PreparedStudy, prepare
from prefect_tune.flows.starting.resolve import stop_rule
from prefect_tune.flows.starting.resume import UNFINISHED, has_grown, has_other_code
from prefect_tune.flows.starting.study_input import InputReader, Note, StudyRequest
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.lease import HANDOVER_SECONDS
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.events import PriorGiven, event_document
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.earlier import Prior, PriorTrial, best_and_diverse
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.series import Changes, Reused, Series, SeriesRun, SeriesTable
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset, settled_columns
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.objective.metric import metric_named


@dataclass(frozen=True, kw_only=True)
class SeriesStudy(PreparedStudy):
    """A study of a series. This process holds the lease of the series until `release`.

    Attributes:
        locked: The series of the study, with its lease.
        is_new: Whether the run has created the study.
        nothing_to_do: Reason why the run ends at once; empty if the run continues.
    """

    locked: LockedSeries
    is_new: bool = False
    nothing_to_do: str = ""

    @property
    def again(self) -> str:
        """Command-line option that resumes the study."""
        return f"--series {self.locked.name}"

    def named(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of `tune` unchanged, because the series names the study."""
        return {**parameters}

    def release(self) -> None:
        """Release the lease of the series."""
        self.locked.close()


def prepare_run(
    request: StudyRequest,
    store: ArtifactStore,
    default_name: str | None = None,
    reader: InputReader = read_source,
    *,
    flow_run_id: str | None = None,
) -> PreparedStudy:
    """Prepare a study as `prepare` does or, if a series is named, the next run of the series.

    Raises `SeriesBusy` if another run holds the series. Raises `BadInput` if the request does not
    fit the question of the series, or if the data lacks columns that the champion needs.
    """
    name, copy = request.options.series, request.options.input
    if name is None:
        return prepare(request, store, default_name, reader, flow_run_id=flow_run_id)
    if copy is not None:
        raise BadInput(
            "a run of a series always reads the current data",
            option="input",
            value=copy,
            remedy="omit the option; an interrupted study continues on its stored copy anyway",
        )
    series, ledger = SeriesTable(store.database).find(name), Ledger(store.database)
    last = None if series is None else ledger.study(series.runs[-1].study)
    last_flow_run = None if last is None else StudyPlan.from_stored(last).flow_run_id
    is_retried = flow_run_id is not None and flow_run_id == last_flow_run
    locked = LockedSeries(store, name, HANDOVER_SECONDS if is_retried else 0.0)
    try:
        return _Run(locked, request, cache(reader), flow_run_id, monotonic()).prepared()
    except BaseException:
        locked.close()
        raise


@dataclass(frozen=True)
class _Run:
    """A run of a series, before the decision to start or resume a study or to end at once."""

    locked: LockedSeries
    given: StudyRequest
    reader: InputReader
    flow_run_id: str | None
    since: float

    def prepared(self) -> SeriesStudy:
        series = self.locked.table.find(self.locked.name)
        if series is None:
            return self._started(self.given)
        question = from_document(Question, series.question)
        last, ledger = series.runs[-1], Ledger(self.locked.store.database)
        stored = next(filter(None, (ledger.study(r.study) for r in reversed(series.runs))), None)
        plan = None if stored is None else StudyPlan.from_stored(stored)
        request = replace(
            self.given,
            options=question.completed(series.name, self.given.options),
            metric=metric_named(question.metric),
            texts=() if plan is None else plan.texts,
        )
        # If a person removed the last study, a new study is started.
        if stored is None or plan is None or stored.name != last.study:
            return self._started(request, series, plan)
        now, known = comparable(request.options), plan.options.quantity_digests
        names = [name for name in OPTIONS if last.options.get(name) != now.get(name)]
        problem = plan.problem  # the code that options name may also differ
        if problem.space_code:
            is_other_space = has_other_code(plan, request)
        else:
            is_other_space = problem.find_space().digest != problem.space_digest
        names += ["space"] * is_other_space
        if any(known.get(text) != new for text, new in request.options.quantity_digests.items()):
            names.append("constraint")
        changed = list(dict.fromkeys(OPTIONS[name].flag for name in names))
        is_same_run = self.flow_run_id is not None and self.flow_run_id == plan.flow_run_id
        if is_same_run or (stored.state in UNFINISHED and not changed):
            return self._resumed(plan, last, f"{last.study} is unfinished and continues")
        dataset = self.reader(request.source)
        if changed or dataset.digest() != plan.problem.dataset:
            reason = f"{' and '.join(changed)} changed" if changed else ""
            return self._started(request, series, plan, reason)
        unchanged = f"nothing changed since {last.study}"
        if stored.state == "failed":
            return self._resumed(plan, last, f"{unchanged}, but that study failed and is retried")
        trials, seconds = stop_rule(self.given.options)
        may_resume = self.given.options.if_unchanged != "skip"
        if may_resume and StudyFacts.from_stored(stored).model.model_of_folds:
            reason = f"{unchanged}, but the model still needs a fit on all training rows"
            return self._resumed(plan, last, reason)
        if may_resume and has_grown(plan.options.stop_rule, StopRule(trials, seconds)):
            grown = {"trials": trials, "budget": seconds}
            return self._resumed(plan, last, f"{unchanged} but the budget", **grown)
        reason = f"{unchanged}, and the budget has not grown" if may_resume else unchanged
        note = Note(reason, "series", self.locked.name, "the run ends")
        return SeriesStudy(
            last.study, plan, self.locked.store, (note,), locked=self.locked, nothing_to_do=reason
        )

    def _resumed(self, plan: StudyPlan, last: SeriesRun, reason: str, **rule: Any) -> SeriesStudy:
        is_whole = self.locked.store.records.is_whole(plan.problem.records[0])
        copy = "stored" if is_whole else None  # if the copy is damaged, import the data again
        request = self.given.with_options(study=last.study, input=copy, **rule)
        return self._entered(request, reason)

    def _started(
        self,
        request: StudyRequest,
        series: Series | None = None,
        last: StudyPlan | None = None,
        reason: str = "",
    ) -> SeriesStudy:
        store, changes, identity = self.locked.store, None, tuple[str, ...]()
        dataset = self.reader(request.source)
        if series is not None:
            question = from_document(Question, series.question)
            question.check_data(series.name, dataset)
            identity, champion = question.identity, series.champion
            ledger = Ledger(store.database)
            stored = None if champion is None else ledger.study(champion.study)
            if stored is not None:
                problem = StudyPlan.from_stored(stored).problem
                with suppress(RecordDamaged):  # the comparison with the champion reports the damage
                    check_needs(stored.name, load_dataset(store, problem.dataset), dataset)
        if last is not None:
            identity = last.fixed_test or ()
            with suppress(RecordDamaged):  # without the previous data, the changes are unknown
                before = load_dataset(store, last.problem.dataset)
                changes = changes_between(before, dataset)
                identity = settled_columns(before, dataset, identity)
            if dataset.digest() != last.problem.dataset:
                texts = "" if changes is None else ", ".join(change_texts(changes))
                data = f"the data changed: {texts}" if texts else "the data changed"
                reason = "; ".join(filter(None, (reason, data)))
        taken, first = set(Ledger(store.database).study_names()), 1
        if series is not None:
            first = series.runs[-1].number + 1
        number = next(n for n in count(first) if f"{self.locked.name}-{n}" not in taken)
        study = f"{self.locked.name}-{number}"
        run = SeriesRun(
            study=study,
            number=number,
            at=time(),
            rows=len(dataset),
            changes=changes,
            options=comparable(request.options),
        )
        begin = partial(self._begin, series, run, dataset)
        request = request.with_options(study=study)
        entered = self._entered(request, reason, fixed_test=identity, begin=begin)
        return replace(entered, is_new=True)

    def _begin(
        self, series: Series | None, run: SeriesRun, dataset: Dataset, plan: StudyPlan
    ) -> tuple[FirstEvents, Callable[[Connection], None]]:
        """Return the first events of a new study, and a function that stores the run."""
        events: FirstEvents = []
        if series is None:
            question = to_document(Question.of_study(plan, dataset))
            series = Series(self.locked.name, time(), question)
        else:
            ledger, space = Ledger(self.locked.store.database), plan.problem.find_space()
            if prior := warm_start(ledger, series, plan, space):
                studies = tuple(prior.name.split(", "))
                run = replace(run, reused=Reused(studies, len(prior.trials), len(prior.start)))
                events = [(PriorGiven.kind, event_document(PriorGiven(prior)))]
        return events, partial(self.locked.table.write, series, run)

    def _entered(self, request: StudyRequest, reason: str, **new: Any) -> SeriesStudy:
        """Create or resume the study of the run. `reason` is a note for the user."""
        prepared = prepare(
            request, self.locked.store, reader=self.reader, flow_run_id=self.flow_run_id, **new
        )
        note = (Note(reason, "series", self.locked.name),) if reason else ()
        return SeriesStudy(
            prepared.name,
            prepared.plan,
            prepared.store,
            (*note, *prepared.notes),
            self.since,
            locked=self.locked,
        )


SKIPPED = "Skipped"
"""Name of the final state of a flow run with nothing to do."""


def send_changes(prepared: SeriesStudy) -> None:
    """Send a Prefect event if the run starts a new study whose data has changed."""
    *earlier, run = prepared.locked.read().runs
    if prepared.is_new and earlier and run.changes not in {None, Changes()}:
        facts = {"study": run.study, "former": earlier[-1].study, "rows": run.rows}
        send_event("series", prepared.locked.name, "data-changed", **facts, **asdict(run.changes))


def end_at_once(prepared: SeriesStudy) -> State[Any]:
    """Record a run with nothing to do; return a completed state with the latest study."""
    series, study = prepared.locked.read(), prepared.name
    run = series.runs[-1]
    prepared.locked.table.save(series, replace(run, skipped=run.skipped + 1))
    tags = dict.fromkeys([*flow_run.tags, f"series:{series.name}", f"study:{study}"])
    with suppress(Exception), get_client(sync_client=True) as client:
        # A retry of the flow run must not record a second skip.
        client.update_flow_run(UUID(str(flow_run.id)), name=f"{study} (skipped)", tags=list(tags))
    message = f"series {series.name}: {prepared.nothing_to_do}"
    return Completed(
        name=SKIPPED, message=message, data=read_study(prepared.store, study).to_json()
    )


_STUDIES, _TRIALS = 3, 200
"""Maximum numbers of studies and of full trials (in total) that form a prior."""


def warm_start(ledger: Ledger, series: Series, plan: StudyPlan, space: Space) -> Prior | None:
    """Return a prior for a new study from recent studies of the series; None without trials.

    Trials outside the space, or violating the constraints of the new study, are skipped. The prior
    also names configurations to evaluate first. If the number of trials is given, at most half of
    the trials are used for these configurations. Initial configurations from the user replace these
    configurations.
    """
    trials: list[PriorTrial] = []
    used: list[str] = []
    for runs_ago, run in enumerate(reversed(series.runs), 1):
        if len(used) == _STUDIES:
            break
        found = sorted(_full_trials(ledger, run.study, plan, space), key=lambda known: known[1])
        if found:
            used.append(run.study)
        n, n_left = len(found), _TRIALS - len(trials)
        chosen = np.arange(n)
        if n > n_left:  # half are the best trials, the others evenly spaced
            evenly = np.linspace(n_left // 2, n - 1, n_left - n_left // 2).round().astype(int)
            chosen = np.concatenate([chosen[: n_left // 2], evenly])
        trials += [PriorTrial(*found[position], runs_ago) for position in chosen]
    if not trials:
        return None
    start = best_and_diverse(trials)
    if plan.options.trials is not None:  # a short study must not consist of reruns only
        start = start[: max(1, plan.options.trials // 2)]
    if plan.options.start is not None:
        start = tuple(Configuration.from_json(c, space) for c in plan.start_configurations)
    return Prior(tuple(trials), start, name=", ".join(used))


def _full_trials(
    ledger: Ledger, study: str, plan: StudyPlan, space: Space
) -> Iterator[tuple[Configuration, float]]:
    constraints = [bound.constraint for bound in plan.options.bounds]
    with documents_of(study):
        for document in ledger.trials(study, TrialState.COMPLETE):
            evaluation = document["evaluation"]
            if violation(constraints, evaluation["constraints"]) > 0:
                continue
            with suppress(ValueError):  # skips configurations outside the space
                query = Query.from_json(document["query"], space)
                yield query.configuration, float(evaluation["loss"])
