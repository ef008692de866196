"""The report of one study, gathered in one pass over its trials.

With it come the time of each step (made, served, saved), the members of the final model and the
commands that reproduce the study.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

from prefect_tune.flows.reporting.failures import FailureGroup, FailuresPass
from prefect_tune.flows.reporting.fidelities import Fidelities, FidelitiesPass
from prefect_tune.flows.reporting.importance import ImportancePass
from prefect_tune.flows.reporting.model_report import ModelReport, model_report
from prefect_tune.flows.reporting.paths import PathsPass, PathsTried
from prefect_tune.flows.reporting.progress import ProgressPass, SearchProgress
from prefect_tune.flows.reporting.trade_offs import TradeOff, TradeOffsPass
from prefect_tune.flows.study.command import continue_command, removed_option, run_command
from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.summary import summarize
from prefect_tune.optimizers.importance.importance import Importance
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.cache.index import ArtifactIndex
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.table_source import FRAME


@dataclass(slots=True)
class StepTime:
    """The cost of one step over all folds of all trials.

    Attributes:
        step: Its name.
        made: How often it ran.
        made_seconds: Seconds that took.
        served: How often the cache served it.
        load_seconds: Seconds that reading took.
        saved_seconds: Seconds that were saved by it.
        kept: Artifacts of it in the cache that this study was the last to make.
        kept_bytes: Their bytes.
        evicted: Such artifacts whose bytes have gone since.
        evicted_bytes: Their bytes.
        refused: Artifacts that there was no room for.
    """

    step: str
    made: int = 0
    made_seconds: float = 0.0
    served: int = 0
    load_seconds: float = 0.0
    saved_seconds: float = 0.0
    kept: int = 0
    kept_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    refused: int = 0


@dataclass(slots=True)
class StepTimesPass:
    """Takes trials and adds up their steps; those of a failed trial that had ended count too."""

    _steps: dict[str, StepTime] = field(default_factory=dict)

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        self._steps = self._steps or {step: StepTime(step) for step in trial.configuration}
        costs = trial.all_steps
        names = list(dict.fromkeys(str(cost["step"]) for cost in costs))
        for place, name in enumerate(names):
            if name not in self._steps:
                # A fixed step, which no configuration has, goes behind the step before it.
                known = list(self._steps.items())
                at = list(self._steps).index(names[place - 1]) + 1 if place else 0
                self._steps = dict([*known[:at], (name, StepTime(name)), *known[at:]])
        for cost in costs:
            step = self._steps[str(cost["step"])]
            step.load_seconds += cost["load_seconds"]
            if cost["hit"]:
                step.served += 1
                step.saved_seconds += cost["seconds"] - cost["load_seconds"]
            else:
                step.made += 1
                step.made_seconds += cost["seconds"]

    def found(self, index: ArtifactIndex, study: str) -> list[StepTime]:
        """Return the steps in the order in which they run, with what the index knows of them."""
        steps = {name: StepTime(**asdict(step)) for name, step in self._steps.items()}
        for name, whereabouts, n, size_bytes in index.made_by(study):
            if name not in steps:
                continue
            if whereabouts == "present":
                steps[name].kept, steps[name].kept_bytes = n, size_bytes
            elif whereabouts == "evicted":
                steps[name].evicted, steps[name].evicted_bytes = n, size_bytes
            else:
                steps[name].refused = n
        return [step for step in steps.values() if step.made or step.served]


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A trial in the final model.

    Attributes:
        trial: Its number.
        weight: Its share of the model; 1 where it is alone.
        loss: Its own loss; None where the ledger has none.
        configuration: Algorithm and hyperparameters by step.
    """

    trial: int
    weight: float
    loss: float | None
    configuration: Mapping[str, Any]


class MembersPass:
    """Takes trials, and keeps the members.

    Args:
        members: Trials and weights, as the study's result has them.
    """

    def __init__(self, members: Sequence[Mapping[str, Any]]) -> None:
        self._weights = {member["trial"]: float(member["weight"]) for member in members}
        self._found: list[EnsembleMember] = []

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        if (weight := self._weights.get(trial.number)) is not None:
            loss = trial.loss if trial.document["evaluation"] else None
            self._found.append(EnsembleMember(trial.number, weight, loss, trial.configuration))

    def found(self) -> list[EnsembleMember]:
        """Return the members, the heaviest first."""
        return sorted(self._found, key=lambda member: (-member.weight, member.trial))


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All that decides how a study goes.

    Attributes:
        command: Words of the command that starts it anew.
        longer: Words of the command that resumes it, with twice its trials and its budget, or
            twice the seconds that it has taken if they are more.
        resumed: Words of the command that goes on where it was interrupted.
        removed_option: Option of its method that this version no longer has, as `name=value`; empty
            if there is none. The commands fail with it.
        is_of_frame: Whether its data was a DataFrame, which no command can name.
        seed: Source of all randomness.
        repeats_itself: Whether the same seed gives the same trials, on one worker and with a budget
            of trials.
        versions: Of the session that ran last, by package; empty where not known.
        data: Where its data came from.
        dataset: Digest of the data.
        split: Digest of its folds and test part.
        space: Name of the space.
        space_digest: Digest of it.
        flow_run_id: Prefect's flow run of the latest session, if there was one.
    """

    command: tuple[str, ...]
    longer: tuple[str, ...]
    resumed: tuple[str, ...]
    removed_option: str
    is_of_frame: bool
    seed: int
    repeats_itself: bool
    versions: Mapping[str, str]
    data: str
    dataset: str
    split: str
    space: str
    space_digest: str
    flow_run_id: str | None


def reproduction_of(record: StoredStudy, plan: StudyPlan) -> Reproduction:
    """Return how to have a study of the ledger again."""
    method, problem = METHODS.get(plan.method), plan.problem
    trials, seconds = plan.options.trials, plan.options.budget
    if seconds is not None:
        seconds = 2.0 * max(seconds, ceil(record.seconds))  # it may have ended late
    doubled = None if trials is None else 2 * trials
    longer = replace(plan, options=replace(plan.options, trials=doubled, budget=seconds))
    return Reproduction(
        command=tuple(run_command(plan, record.name)),
        longer=tuple(continue_command(longer, record.name)),
        resumed=tuple(continue_command(plan, record.name)),
        removed_option=removed_option(plan),
        is_of_frame=plan.source.data.startswith(FRAME),
        seed=plan.seed,
        repeats_itself=method is not None and not method.draws_on_cost,
        versions=dict(record.result.get("versions", {})),
        data=plan.source.data,
        dataset=problem.dataset,
        split=problem.split,
        space=plan.space,
        space_digest=problem.space_digest,
        flow_run_id=plan.flow_run_id,
    )


@dataclass(frozen=True, slots=True)
class StudyReport:
    """Everything that is reported of one study.

    Attributes:
        summary: As `show --json` prints it.
        created: When it was started, in seconds since 1970.
        progress: Its trials in the order in which they ended, and who led.
        paths: What was tried, and how well that went.
        step_times: Where the time went.
        failures: Why trials failed.
        trade_offs: The loss against each limited quantity.
        fidelities: Evaluations of less than everything.
        members: Trials that the final model is made of, the heaviest first.
        importance: How much each choice matters.
        model: How well the model predicts the test rows, and what it makes of codes.
        reproduction: How to have it again.
    """

    summary: Mapping[str, Any]
    created: float
    progress: SearchProgress
    paths: PathsTried
    step_times: Sequence[StepTime]
    failures: Sequence[FailureGroup]
    trade_offs: Sequence[TradeOff]
    fidelities: Fidelities
    members: Sequence[EnsembleMember]
    importance: Importance
    model: ModelReport
    reproduction: Reproduction


def study_report(store: ArtifactStore, name: str) -> StudyReport:
    """Gather everything that is reported of a study.

    Raises:
        UnknownName: If there is no such study.
    """
    record = find_study(store, name)
    plan = StudyPlan.from_stored(record)
    progress, importance = ProgressPass(plan), ImportancePass(plan)
    paths, step_times, failures = PathsPass(), StepTimesPass(), FailuresPass()
    trade_offs, fidelities = TradeOffsPass(plan), FidelitiesPass(plan)
    members = MembersPass(record.result.get("members") or ())
    passes = progress, importance, paths, step_times, failures, trade_offs, fidelities, members

    def take(trial: TrialDocument) -> None:
        for each in passes:
            each.add(trial)

    return StudyReport(
        summary=summarize(store, name, take),
        created=record.created,
        progress=progress.found(Ledger(store.database), name),
        paths=paths.found(),
        step_times=step_times.found(store.index, name),
        failures=failures.found(),
        trade_offs=trade_offs.found(),
        fidelities=fidelities.found(),
        members=members.found(),
        importance=importance.found(),
        model=model_report(store, name, plan),
        reproduction=reproduction_of(record, plan),
    )
