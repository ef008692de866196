"""The final model: its members, the reevaluated finalists, and how to reproduce the study."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from prefect_tune.deployments.report.page import Command, Figure, Part, Section, Table, Text
from prefect_tune.deployments.report.plots import axis, bar, figure
from prefect_tune.deployments.report.wording import pipeline_rows
from prefect_tune.flows.reading.commands import continue_command, removed_option, run_command
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import StudyFacts, WeightedTrial
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.data.table_source import FRAME


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A trial in the final model, with its share of the model and its loss (None if unknown)."""

    trial: int
    weight: float
    loss: float | None
    configuration: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The algorithms other than the identity."""
        algorithms = [algorithm for _, algorithm, _ in pipeline_rows(self.configuration)]
        return " > ".join(algorithm for algorithm in algorithms if algorithm != "none") or "none"


Members = Sequence[EnsembleMember]
"""The members of a model by descending weight; empty without a model."""


class MembersPass:
    """Collector of the members, given the trials and weights in the study's result."""

    def __init__(self, members: Sequence[WeightedTrial]) -> None:
        self._weights = {member.trial: member.weight for member in members}
        self._found: list[EnsembleMember] = []

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if (weight := self._weights.get(trial.number)) is not None:
            loss = trial.loss if trial.has_loss else None
            self._found.append(EnsembleMember(trial.number, weight, loss, trial.configuration))

    def found(self) -> list[EnsembleMember]:
        """Return the members by descending weight."""
        return sorted(self._found, key=lambda member: (-member.weight, member.trial))


def model_section(members: Members, summary: StudyView) -> Iterator[Section]:
    """Yield the section, if the first screen does not show all of the model."""
    words = LossWords(summary.metric)
    parts = [*_ensemble(members, words), *_comparisons(summary, words)]
    if parts and members:
        yield Section("model", "The final model", _finding(members, summary, words), parts)


def _finding(members: Members, summary: StudyView, words: LossWords) -> str:
    if len(members) == 1:
        return f"The model is trial {members[0].trial}."
    tested, test, alone = "", summary.test_loss, summary.single_best_test_loss
    if test is not None and alone is not None:
        how = "better than" if test < alone else "no better than"
        tested = f"; on the test rows {words.of(test)}, {how} the best trial's {words.of(alone)}"
    if summary.test_loss_undefined:
        tested = f"; its loss on the test rows is undefined: {summary.test_loss_undefined}"
    kind = summary.ensemble.kind if summary.ensemble else "method"
    kind = f"{kind} ensemble" if kind != "method" else "ensemble of the method"
    article = "An" if kind[0] in "aeiou" else "A"
    return f"The model is {article.lower()} {kind} of {counted(len(members), 'trial')}{tested}."


def _ensemble(members: Members, words: LossWords) -> Iterator[Figure | Table]:
    if len(members) < 2:
        return
    labels = [f"trial {member.trial}" for member in members]
    hover = [f"{100 * m.weight:.1f} %: {m.path}, {words.of(m.loss)}" for m in members]
    trace = bar("weight", labels, [100 * m.weight for m in members], "var(--c0)", hover=hover)
    x, height = axis("weight, %"), 110 + 26 * len(members)
    yield figure("members", "Weights of the members", [trace], x, height=height)
    yield Table.of(
        "Members of the ensemble",
        members,
        {
            "#trial": lambda m: str(m.trial),
            "#weight": lambda m: f"{100 * m.weight:.1f} %",
            f"#cross-validated {words.name}": lambda m: words.of(m.loss),
            "pipeline": lambda m: m.path,
        },
    )


def _comparisons(summary: StudyView, words: LossWords) -> Iterator[Table]:
    if nested := summary.ensemble.nested if summary.ensemble else {}:
        rows = [[kind, words.of(loss)] for kind, loss in nested.items()]
        columns = ["kind", f"#{words.name} on rows not used to build it"]
        yield Table("Kinds of models compared", columns, rows)
    if summary.finalists:
        rows = [
            [str(one.trial), words.of(one.loss), "failed", "-"]
            if one.recheck_loss is None
            else [str(one.trial), *map(words.of, (one.loss, one.recheck_loss, one.mean))]
            for one in summary.finalists
        ]
        columns = ["#trial", f"#{words.name} in the search", "#on another split", "#mean"]
        yield Table("Finalists on a second split", columns, rows, is_open=True)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Everything that determines a study, and the commands that repeat or extend it.

    Attributes:
        command: Command that starts the study anew.
        longer: Command that resumes it with twice its trials and twice its budget or seconds taken.
        resumed: Command that resumes it after an interruption.
        removed_option: Method option that this version no longer has, as `name=value`, or empty.
            The commands fail with such an option.
        is_of_frame: Whether the data was a DataFrame, which no command can name.
        seed: Source of all randomness.
        repeats_itself: Whether the seed repeats the trials on one worker with a budget of trials.
        versions: Package versions of the latest session; empty if unknown.
        data, dataset, split: Path or name of the data; digests of the data and of its split.
        space, space_digest: Name and digest of the space.
        flow_run_id: Prefect's flow run of the latest session, if any.
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

    @property
    def can_extend(self) -> bool:
        """Whether a command can resume the study."""
        return not (self.is_of_frame or self.removed_option)

    @property
    def obstacle(self) -> str:
        """Reason why no command repeats the study; empty if one does."""
        if self.removed_option:
            return (
                f"The study uses {self.removed_option}, an option that this version no longer has: "
                "it can be neither extended nor repeated by a command."
            )
        if self.is_of_frame:
            return "The data was a DataFrame: pass it to `tune` or PipelineSearch again."
        return ""


def reproduction_of(record: StoredStudy, plan: StudyPlan) -> Reproduction:
    """Return how to reproduce a stored study."""
    method, problem = METHODS.get(plan.method), plan.problem
    trials, seconds = plan.options.trials, plan.options.budget
    if seconds is not None:
        seconds = 2.0 * max(seconds, ceil(record.seconds))  # the study may have overrun
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
        versions=StudyFacts.from_stored(record).versions,
        data=plan.source.data,
        dataset=problem.dataset,
        split=problem.split,
        space=plan.space,
        space_digest=problem.space_digest,
        flow_run_id=plan.flow_run_id,
    )


def reproduction_section(of: Reproduction, summary: StudyView) -> Iterator[Section]:
    """Yield the section."""
    again = f"The same command and seed ({of.seed})"
    if of.repeats_itself:
        finding = f"{again} repeat these trials on one worker with a trial budget."
    else:
        finding = (
            f"{again} repeat the search, but {summary.method} uses the "
            "seconds of trials, so some trials will differ."
        )
    command = Command(shlex.join(of.command), "Use an empty store or another --study name.")
    facts = [
        ["data", of.data],
        ["digest of the data", of.dataset],
        ["digest of the split", of.split],
        ["space", of.space],
        ["digest of the space", of.space_digest],
        ["method", summary.method],
        ["metric", summary.metric],
        ["seed", str(of.seed)],
        ["Prefect flow run", of.flow_run_id or "none"],
    ]
    parts: list[Part] = [Text([of.obstacle]) if of.obstacle else command]
    parts.append(Table("What determines the result", ["", ""], facts, is_open=True))
    if of.versions:
        rows = [[package, version] for package, version in of.versions.items()]
        parts.append(Table("Versions in the last session", ["package", "version"], rows))
    yield Section("again", "Reproduce the study", finding, parts)
