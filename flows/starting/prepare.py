"""Preparation of a study: checks all input, then creates the study in the ledger.

A command prepares the study before the flow run begins, and hands the prepared study to the flow.
The flow gets the usual parameters, but does not read the input again. A DataFrame is never a
parameter of the flow, because Prefect stores and shows parameters.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count
from statistics import fmean
from time import monotonic
from typing import Any, Generic, Self, TypeVar
from unicodedata import combining, normalize

from sqlalchemy.engine import Connection

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.options.store_location import store_address
from prefect_tune.flows.reading.opened_study import study_or_newest
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.running.event_loop import plain
from prefect_tune.flows.running.interrupts import retake_interrupts
from prefect_tune.flows.starting.resolve import resolve
from prefect_tune.flows.starting.resume import merged, resume
from prefect_tune.flows.starting.study_input import InputReader, Note, StudyRequest, unfollowed_code
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.lease import HANDOVER_SECONDS, check_not_busy, wait_until_free
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.trials.objective import PortableSeconds
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.split import import_split
from prefect_tune.tasks.problem import Problem, check_plugins, open_store

Prepared = TypeVar("Prepared")


class Handover(Generic[Prepared]):
    """Holds a prepared value with its parameters, separately for each thread."""

    def __init__(self) -> None:
        self._offers: ContextVar[list[tuple[Mapping[str, Any], Prepared]]] = ContextVar("offers")

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Pickle without the value, because Prefect sends the flow's globals to workers."""
        return type(self), ()

    @contextmanager
    def offered(self, parameters: Mapping[str, Any], prepared: Prepared) -> Iterator[None]:
        """Offer a value to the flow that the `with` block calls with the same parameters."""
        known = {name: plain(value) for name, value in parameters.items()}
        token = self._offers.set([(known, prepared)])
        try:
            yield
        finally:
            self._offers.reset(token)

    def take(self, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the value offered with equal parameters, once only; reinstall signal handlers."""
        offers = self._offers.get([])
        if not offers or offers[0][0] != dict(parameters):
            return None
        _, prepared = offers.pop()
        retake_interrupts()
        return prepared


@dataclass(frozen=True)
class PreparedStudy:
    """A study in the ledger, ready to run.

    Attributes:
        notes: Notes for the user about data and decisions.
        since: Time by `time.monotonic` at which the budget starts.
        is_compared: Whether the study is part of a comparison. The studies of a comparison run at
            the same time, each with one worker and its own cache area, and `workers` is the number
            of studies.
        has_shown_notes: Whether the user has seen the notes.
    """

    name: str
    plan: StudyPlan
    store: ArtifactStore
    notes: tuple[Note, ...] = ()
    since: float = field(default_factory=monotonic)
    is_compared: bool = False
    has_shown_notes: bool = False

    @property
    def title(self) -> str:
        """Human-readable name of the study."""
        return f"study {self.name}"

    @property
    def again(self) -> str:
        """Command-line option that resumes the study."""
        return f"--study {self.name}"

    def named(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of `tune`, with the name of the study added."""
        return {**parameters, "study": self.name}

    def release(self) -> None:
        """Release locks that are held until the flow run has ended; this class has no locks."""

    def finished(self) -> dict[str, Any] | None:
        """Return the summary of the study if it is complete; otherwise None."""
        view = read_study(self.store, self.name)
        return view.to_json() if view.state == "complete" else None


FirstEvents = list[tuple[str, Mapping[str, Any]]]
"""Kinds and bodies of the first events of a study."""
BeginStudy = Callable[[StudyPlan], tuple[FirstEvents, Callable[[Connection], None]]]
"""Function that returns a new study's first events, and a function for the same transaction.
"""
HANDOVER: Handover[PreparedStudy] = Handover()
"""Handover of a study to the flow from `run`, `retry` and callers with a DataFrame."""


def prepare(
    request: StudyRequest,
    store: ArtifactStore,
    default_name: str | None = None,
    reader: InputReader = read_source,
    *,
    is_compared: bool = False,
    flow_run_id: str | None = None,
    fixed_test: tuple[str, ...] | None = None,
    begin: BeginStudy = lambda _: ([], lambda _: None),
) -> PreparedStudy:
    """Read and check the input, and create the study in the ledger or find the existing study.

    By default, a new study is named after data, method and time. A study of a comparison does not
    use results of earlier studies. `flow_run_id` is None if a command prepares the study before its
    flow run. `fixed_test` has the meaning described in `resolve`. `begin` is called before a new
    study is created in the ledger. Raises `BadInput`, `UnknownName` or `StoreRefused` if an option
    is invalid.
    """
    since, ledger = monotonic(), Ledger(store.database)
    name = request.options.study or default_name

    def resumed() -> tuple[StudyPlan, list[Note]] | None:
        stored = None if name is None else ledger.study(name)
        if stored is None:
            return None
        if flow_run_id is not None and StudyPlan.from_stored(stored).flow_run_id == flow_run_id:
            wait_until_free(store, stored.name, HANDOVER_SECONDS)
        check_not_busy(store, stored.name)
        return resume(stored, request, store, reader, flow_run_id)

    entered = resumed()
    if entered is None:
        if (copy := request.options.input) is not None:
            remedy = "name an existing study or comparison, or omit the option"
            reason = "a new study has no stored copy"
            raise BadInput(reason, option="input", value=copy, remedy=remedy)
        new = resolve(request, store, reader, fixed_test)
        import_dataset(new.dataset, store)
        import_split(new.split, store)
        plan = replace(new.plan, flow_run_id=flow_run_id)
        if not is_compared:
            known = _earlier_seconds(ledger, plan.problem.space_digest)
            plan = replace(plan, earlier_seconds=known)
        events, also = begin(plan)
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        default = f"{study_name_from(plan.data_name)}-{plan.method}-{now}"
        others = (f"{default}-{number}" for number in count(2))  # several may start at once
        for each in (name,) if name else chain([default], others):
            if ledger.create_study(each, plan.problem.to_json(), plan.to_json(), events, also):
                store.records.link(plan.problem.records, each)
                entered = replace(plan, options=replace(plan.options, study=each)), [*new.notes]
                break
        else:  # another process has just used this name
            entered = resumed()
    if entered is None:
        raise BadInput(f"study {name!r} was removed while it was being started")
    plan, notes = entered
    if unfollowed := unfollowed_code(plan.problem.behind, plan.options):
        plan = replace(plan, options=replace(plan.options, no_cache=True))
        text = f"the cache is off because some code cannot be tracked: {', '.join(unfollowed)}"
        notes.append(Note(text, "no_cache"))
    if request.options.cache_budget is not None:
        store.set_budget(request.options.cache_budget)
    return PreparedStudy(plan.options.study or "", plan, store, tuple(notes), since)


def prepare_retry(
    study: str, trials: Sequence[int] | None, parameters: Mapping[str, Any]
) -> PreparedStudy:
    """Find a study, and check that the given failed trials (all by default) can be rerun.

    If `study` is the name of a series, the newest study of the series is used. `parameters` are
    parameters of `tune`; a parameter that is None keeps the study's value or the default. Raises
    `UnknownName`, `BadInput` or `StoreRefused` if the study or a failed trial does not exist, or if
    another process runs the study.
    """
    given = StudyOptions.parse(parameters)
    opened = open_store(store_address(given.store, given.database))
    found = study_or_newest(opened, study)
    study, plan, failed = found.name, found.plan, found.failed()
    check_not_busy(opened, study)
    for number in trials or ():
        if number not in failed:
            raise BadInput(
                f"trial {number} of study {study!r} has not failed; failed trials: "
                f"{', '.join(map(str, failed)) or 'none'}"
            )
    check_plugins(plan.problem.running_plugins)
    no_cache = plan.options.no_cache  # `retry` has no such option
    options = replace(merged(plan.options, given), study=study, no_cache=no_cache)
    return PreparedStudy(study, replace(plan, options=options), opened)


_EARLIER_STUDIES, _EARLIER_READ = 5, 20
"""Number of earlier studies that are used, and number of recent studies that are searched."""


def _earlier_seconds(ledger: Ledger, space_digest: str) -> tuple[PortableSeconds, ...]:
    """Return the mean seconds of each algorithm in recent studies of the same space."""
    known: list[Sequence[PortableSeconds]] = []
    for name in ledger.study_names()[:_EARLIER_READ]:
        stored = ledger.study(name)
        with suppress(DatabaseDamaged), documents_of(name):
            if stored and Problem.from_json(stored.problem).space_digest == space_digest:
                known.append(StudyFacts.from_stored(stored).algorithm_seconds)
    found = defaultdict[tuple[str, str], list[tuple[float, float | None]]](list)
    for step, algorithm, fit, held_out in chain(*list(filter(None, known))[:_EARLIER_STUDIES]):
        found[step, algorithm].append((fit, held_out))
    means = []
    for pair, seconds in found.items():
        of_held_out = [held_out for _, held_out in seconds if held_out is not None]
        mean = fmean(of_held_out) if of_held_out else None
        means.append((*pair, fmean(fit for fit, _ in seconds), mean))
    return tuple(means)


def study_name_from(text: str) -> str:
    """Turn a text into a valid beginning of a study name."""
    bare = "".join(c for c in normalize("NFKD", text) if not combining(c))  # drops accents
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", bare)
    return plain.lstrip("._-")[:50] or "data"


def name_of_flow_run(store: ArtifactStore, flow_run: str, flow_run_id: str) -> str:
    """Name a deployment's study after its flow run; if the name is taken, add the run's id."""
    name, ledger = study_name_from(flow_run), Ledger(store.database)
    with_id, stored = f"{name}-{flow_run_id[:8]}", ledger.study(name)
    is_taken = stored is not None and StudyPlan.from_stored(stored).flow_run_id != flow_run_id
    return with_id if is_taken or ledger.study(with_id) else name
