"""Decides what a run of a series does: resume its last study, skip, or start a new study."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.resolve import stop_rule
from prefect_tune.flows.preparation.resume import UNFINISHED, has_grown, has_other_code
from prefect_tune.flows.preparation.study_input import InputReader, Note
from prefect_tune.flows.series.changes import changes_between, check_needs
from prefect_tune.flows.series.question import Question, comparable, differing
from prefect_tune.flows.series.series import Changes, HeldSeries, Series, SeriesRun, find_series
from prefect_tune.flows.series.warm_start import first_events, reused, warm_start
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.lease import HANDOVER_SECONDS
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.converter import to_document
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.row_ids import settled_columns
from prefect_tune.tasks.objective.metric import metric_named


@dataclass(frozen=True, kw_only=True)
class NextStudy:
    """The study of a run of a series, and what the run does with it.

    Attributes:
        held: The series, held until it is released.
        series: State of the series; None for a new one.
        request: Request with the name of the study; for a new one, with all of the question.
        note: Reason; None for the first study.
        data: Data of a new study.
        changes: Differences of this data from the data of the last study.
        fixed_test: Columns of the ids that fix the test rows; empty if the first data decides.
        flow_run_id: None for a command, which prepares before its flow run.
    """

    held: HeldSeries
    series: Series | None
    request: StudyRequest
    number: int
    action: Literal["start", "resume", "skip"] = "start"
    note: Note | None = None
    data: Dataset | None = None
    changes: Changes | None = None
    fixed_test: tuple[str, ...] = ()
    flow_run_id: str | None = None

    @property
    def study(self) -> str:
        """Name of the study."""
        return _study_name(self.held.name, self.number)

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Release the series if the body fails."""
        try:
            yield
        except BaseException:
            self.held.release()
            raise

    def begin(self, plan: StudyPlan, ledger: Ledger) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Record a new study in the series; return the first events of the study."""
        assert self.data is not None  # noqa: S101 - each new study has read it
        options, prior = self.request.options, None
        if self.series is None:
            question = Question.of_study(plan, self.data)
            self.held.create(question.to_json())
            options = question.completed(self.held.name, options)
        else:
            prior = warm_start(ledger, self.series, plan, plan.problem.find_space())
        body = {
            "number": self.number,
            "flow_run_id": self.flow_run_id,
            "rows": len(self.data),
            "changes": None if self.changes is None else to_document(self.changes),
            "options": comparable(options),
            "reused": to_document(reused(prior)),
        }
        self.held.append_run(self.study, body)
        return first_events(prior)


def next_study(
    request: StudyRequest, store: ArtifactStore, reader: InputReader, flow_run_id: str | None
) -> NextStudy:
    """Hold the series of a request, and decide what the run does; nothing is recorded yet.

    `reader` should cache, because a new study reads its data again. Raises `SeriesBusy` if another
    run holds the series, and `BadInput` if the request asks another question, or the data lacks
    what the champion needs.
    """
    options = request.options
    if options.input is not None:
        raise BadInput(
            "a run of a series uses the data as it is now",
            option="input",
            value=options.input,
            remedy="omit it; an interrupted study continues on its stored copy anyway",
        )
    name = options.series or ""
    is_resumed = flow_run_id is not None and flow_run_id == _last_flow_run(store, name)
    held = HeldSeries.acquire(store, name, HANDOVER_SECONDS if is_resumed else 0)
    try:
        series = find_series(store, held.name)
        return _Run(held, series, request, reader, flow_run_id).next_study()
    except BaseException:
        held.release()
        raise


@dataclass(frozen=True)
class _Run:
    """A run of a series that has not decided yet."""

    held: HeldSeries
    series: Series | None
    given: StudyRequest
    reader: InputReader
    flow_run_id: str | None

    def next_study(self) -> NextStudy:
        if self.series is None:
            return self._new(self.given, 1)
        question = Question.from_json(self.series.question)
        options = question.completed(self.series.name, self.given.options)
        last, ledger = self.series.last, Ledger(self.held.store.database)
        entered = filter(None, (ledger.study(run.study) for run in reversed(self.series.runs)))
        stored = next(entered, None)
        plan = None if stored is None else StudyPlan.from_stored(stored)
        request = replace(
            self.given,
            options=options,
            metric=metric_named(question.metric),
            texts=() if plan is None else plan.texts,
        )
        if last is None or plan is None or stored is None or stored.name != last.study:
            # A process was killed before it entered the study.
            return self._new(request, 1 if last is None else last.number, plan)
        changed = _changed_options(last, plan, request)
        is_same_run = self.flow_run_id is not None and self.flow_run_id == plan.flow_run_id
        if is_same_run or (stored.state in UNFINISHED and not changed):
            return self._resumed(last, plan, f"{last.study} is unfinished and continues")
        if changed:
            return self._new(request, last.number + 1, plan, f"{' and '.join(changed)} changed")
        if self.reader.read(request.source).digest() != plan.problem.dataset:
            return self._new(request, last.number + 1, plan)
        return self._unchanged(last, plan, stored)

    def _unchanged(self, last: SeriesRun, plan: StudyPlan, stored: StoredStudy) -> NextStudy:
        trials, seconds = stop_rule(self.given.options)
        nothing = f"nothing changed since {last.study}"
        if stored.state == "failed":
            return self._resumed(last, plan, f"{nothing}, which failed and is tried again")
        may_resume = self.given.options.if_unchanged != "skip"
        if may_resume and StudyFacts.from_stored(stored).model.is_of_folds:
            reason = f"{nothing}, but its model still needs a fit on all training rows"
            return self._resumed(last, plan, reason)
        if not has_grown(plan.options.stop_rule, StopRule(trials, seconds)):
            return self._skipped(last, f"{nothing}, and the budget has not grown")
        if not may_resume:
            return self._skipped(last, nothing)
        return self._resumed(last, plan, f"{nothing} but the budget", trials=trials, budget=seconds)

    def _skipped(self, last: SeriesRun, reason: str) -> NextStudy:
        note = Note(reason, "series", self.held.name, "the run ends")
        request = self.given.with_options(study=last.study)
        return NextStudy(
            held=self.held,
            series=self.series,
            request=request,
            number=last.number,
            action="skip",
            note=note,
        )

    def _resumed(self, last: SeriesRun, plan: StudyPlan, reason: str, **rule: Any) -> NextStudy:
        is_whole = self.held.store.records.is_whole(plan.problem.records[0])
        copy = "stored" if is_whole else None  # a damaged copy is imported again
        return NextStudy(
            held=self.held,
            series=self.series,
            request=self.given.with_options(study=last.study, input=copy, **rule),
            number=last.number,
            action="resume",
            note=Note(reason, "series", self.held.name),
        )

    def _new(
        self, request: StudyRequest, number: int, last: StudyPlan | None = None, reason: str = ""
    ) -> NextStudy:
        store, changes, identity = self.held.store, None, tuple[str, ...]()
        dataset = self.reader.read(request.source)
        if self.series is not None:
            question = Question.from_json(self.series.question)
            question.check_data(self.series.name, dataset)
            identity = question.identity
            _check_champion(self.series, store, dataset)
        if last is not None:
            identity = last.fixed_test or ()
            with suppress(RecordDamaged):  # then the changes are unknown
                before = load_dataset(store, last.problem.dataset)
                changes = changes_between(before, dataset)
                identity = settled_columns(before, dataset, identity)
            if dataset.digest() != last.problem.dataset:
                reason = "; ".join(filter(None, (reason, _of_data(changes, len(dataset)))))
        names = set(Ledger(store.database).study_names())
        # Studies of a removed series, or by hand, may have such names.
        near = range(number, number + _NEAR_NUMBERS)
        taken = [n for n in near if _study_name(self.held.name, n) in names]
        number = max(taken, default=number - 1) + 1
        return NextStudy(
            held=self.held,
            series=self.series,
            request=request.with_options(study=_study_name(self.held.name, number)),
            number=number,
            note=Note(reason, "series", self.held.name) if reason else None,
            data=dataset,
            changes=changes,
            fixed_test=identity,
            flow_run_id=self.flow_run_id,
        )


def _last_flow_run(store: ArtifactStore, name: str) -> str | None:
    """Return the flow run of the latest session of a series."""
    series = find_series(store, name)
    last = None if series is None else series.last
    stored = None if last is None else Ledger(store.database).study(last.study)
    return None if stored is None else StudyPlan.from_stored(stored).flow_run_id


def _of_data(changes: Changes | None, n_rows: int) -> str:
    if changes is None:
        return "the data changed"
    texts = ", ".join(changes.texts()) or "the same rows in another order or form"
    growth = changes.rows_added - changes.rows_removed
    if changes.rows_removed <= _REPLACED_SHARE * (n_rows - growth) or not changes.rows_added:
        return f"the data changed: {texts}"
    return (
        f"the data changed: {texts}; {changes.rows_added:,} of {n_rows:,} rows are new, although "
        f"the number of rows changed by {growth:+,}: if known rows have changed, name the columns "
        "that identify a row with --key COLUMN in a new series"
    )


_REPLACED_SHARE = 0.2
"""Share of removed rows above which added rows may be known rows that changed."""


_NEAR_NUMBERS = 1000
"""Numbers to look for studies that have a name of the series."""


def _study_name(series: str, number: int) -> str:
    return f"{series}-{number}"


def _changed_options(last: SeriesRun, plan: StudyPlan, request: StudyRequest) -> list[str]:
    """Return the flags of options that differ from the last study, also by the code they name."""
    changed = [*differing(last.options, comparable(request.options))]
    if OPTIONS["space"].flag not in changed:
        is_own = bool(plan.problem.space_code)
        has_changed = (
            has_other_code(plan, request)
            if is_own
            else plan.problem.find_space().digest != plan.problem.space_digest
        )
        changed += [OPTIONS["space"].flag] * has_changed
    known = plan.options.quantity_digests
    if any(known.get(text) != now for text, now in request.options.quantity_digests.items()):
        changed.append(OPTIONS["constraint"].flag)
    return list(dict.fromkeys(changed))


def _check_champion(series: Series, store: ArtifactStore, dataset: Dataset) -> None:
    stored = Ledger(store.database).study(series.champion) if series.champion else None
    if stored is not None:
        problem = StudyPlan.from_stored(stored).problem
        with suppress(RecordDamaged):  # the comparison with the champion reports it
            known = load_dataset(store, problem.dataset)
            check_needs(stored.name, known, dataset)
