"""The contents of a study's report: tables of trials, the model, and reproduction.

All tables come from one pass over the trials. The command `report --json` prints the tables.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, inf, isfinite
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.deployments.report.judged_model import ModelReport, model_report
from prefect_tune.flows.reading.commands import continue_command, run_command
from prefect_tune.flows.reading.opened_study import OpenedStudy, open_study
from prefect_tune.flows.reading.study_view import StudyView, read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.results.trial_table import table_of
from prefect_tune.flows.series.view import series_of
from prefect_tune.flows.study.facts import WeightedTrial
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.wording.text import FailureGroup, FailureGroups
from prefect_tune.optimizers.documents import to_document
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.optimizers.importance import Importance, importance_of
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.series import Series
from prefect_tune.tasks.data.source import FRAME
from prefect_tune.tasks.final.figures import FEWEST_ROWS
from prefect_tune.tasks.objective.metric import is_at_least

COST = "cost_uncached_seconds"
"""Quantity that every study measures for each trial."""
_COLUMNS = (
    "trial", "configuration", "loss", "cost_seconds", "state", "is_partial", "fidelity", "subset",
    "folds", "epochs", "phase",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Everything that determines a study, and the commands that repeat or extend the study.

    Attributes:
        command: Command that starts the study anew.
        resumed: Command that resumes the study.
        longer: Command that resumes the study with twice the trials and twice the time budget (or
            twice the study time, if the study overran its budget).
        obstacle: Reason why no command can repeat or extend the study; empty if a command can.
        repeats_itself: Whether the same seed gives the same trials on one worker with a fixed
            number of trials.
        facts: Data, split, space, method, metric and seed, with digests, and package versions.
    """

    command: Sequence[str]
    resumed: Sequence[str]
    longer: Sequence[str]
    obstacle: str
    repeats_itself: bool
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StudyReport:
    """The contents of a study's report. `summary` is the output of `show --json`.

    Attributes:
        progress: Ended trials, ordered by the time they ended. `seconds` is the study time.
        incumbents: Trials that became the incumbent. Losses of different fidelities are not
            comparable.
        algorithms, paths: Uses and losses of each step's algorithms, and of paths, the best first.
        step_times: Seconds and cache use of each step over all trials and folds.
        trade_offs: Full trials with their costs and measured quantities. `is_best` marks the Pareto
            front.
        members: Trials in the final model, by descending weight.
        notes: Notes on data and decisions from the start of the study.
    """

    summary: StudyView
    created: float
    progress: pd.DataFrame
    incumbents: pd.DataFrame
    algorithms: pd.DataFrame
    paths: pd.DataFrame
    importance: Importance
    step_times: pd.DataFrame
    trade_offs: pd.DataFrame
    failures: Sequence[FailureGroup]
    members: pd.DataFrame
    notes: Sequence[str]
    model: ModelReport
    reproduction: Reproduction
    series: Series | None

    def to_json(self) -> dict[str, Any]:
        """Return all contents as JSON values. A table becomes a list of rows."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        tables = {name: _rows(table) for name, table in self.model.tables.items()}
        model = to_document(self.model, tables=tables)
        values |= {"summary": self.summary.to_json(), "model": model}
        return {
            name: _rows(value) if isinstance(value, pd.DataFrame) else to_document(value)
            for name, value in values.items()
        }


def _rows(table: pd.DataFrame) -> Any:
    return json.loads(table.to_json(orient="records", double_precision=15))


_EXAMPLES = re.compile(
    r"(?s),? such as .*|(?<=numbers) from \S+ to [^\s,;)]+|; classes .*|(?<= rows) \(.*: \d+\)"
    r"|(?<=the rarest class), .*,(?= has )"
)
"""Parts of notes that reveal single values or classes of the data."""


def study_report(store: ArtifactStore, name: str, *, rare_values: bool = False) -> StudyReport:
    """Collect the contents of a study's report; raises UnknownName if there is no such study.

    Values that occur in few rows or patients are named only if `rare_values` is true.
    """
    study, views = open_study(store, name), list[TrialView]()
    plan, fewest = study.plan, 1 if rare_values else FEWEST_ROWS
    summary = read_study(store, name, views.append)
    phases, told = dict[int, str | None](), list[tuple[Any, ...]]()
    for event in study.ledger.each_event(name):
        body = event.body
        if event.kind == Asked.kind:
            phases[body["number"]] = (body.get("reason") or {}).get("phase")
        elif event.kind == Told.kind:
            told.append((body["number"], body["elapsed_seconds"], body["incumbent"]))
    trials = trials_of(views, plan, phases)
    progress, incumbents = progress_of(trials, told)
    algorithms, paths = paths_of(trials, [*views[0].configuration] if views else [])
    failures = FailureGroups()
    for view in views:
        failures.add(view.number, view.failure)
    model = model_report(store, name, plan, fewest)
    check = summary.usefulness if model.n_rare_classes else None
    if check and check.rare_class not in {*model.tables["classes"]["label"]}:
        summary = replace(summary, usefulness=replace(check, rare_class=None))
    return StudyReport(
        summary=summary,
        created=study.row.created,
        progress=progress,
        incumbents=incumbents,
        algorithms=algorithms,
        paths=paths,
        importance=importance_in(trials, views, study),
        step_times=step_times_of(views),
        trade_offs=trade_offs_of(views),
        failures=failures.found(),
        members=members_of(trials, views, study.facts.model.members),
        notes=[note if rare_values else _EXAMPLES.sub("", note) for note in study.facts.notes],
        model=model,
        reproduction=reproduction_of(study),
        series=series_of(store, plan),
    )


def trials_of(
    views: Sequence[TrialView], plan: StudyPlan, phases: Mapping[int, str | None]
) -> pd.DataFrame:
    """Return a table of trials by number, with short column names and each trial's phase."""
    table = table_of(views, plan, {}).drop(columns="state")
    table = table.rename(columns=lambda name: name.removeprefix("user_attrs_"))
    table = table.rename(columns={"number": "trial", "value": "loss"})
    table = table.reindex(columns=[*dict.fromkeys([*_COLUMNS, *table])])
    table["phase"] = table["trial"].map(phases).replace("", None)
    return table.astype(dict.fromkeys(("loss", "cost_seconds", "subset"), "float64"))


def progress_of(
    trials: pd.DataFrame, told: Iterable[Sequence[Any]]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the ended trials, ordered by the time they ended, and the incumbents.

    `told` contains trial number, study time and incumbent for each outcome. A trial that was
    rerun is listed only once, at its latest end.
    """
    events = _frame(told, trial="Int64", seconds="float64", incumbent="Int64")
    events["seconds"] = events["seconds"].cummax()  # a killed session loses some seconds
    ended = trials[trials["state"].isin([state for state in TrialState if state.is_told])]
    is_end = events["trial"].isin(ended["trial"]) & ~events.duplicated("trial", keep="last")
    events["evaluations"] = is_end.cumsum().clip(lower=1)
    progress = events[is_end].drop(columns="incumbent").merge(ended[[*_COLUMNS]], on="trial")
    leads = events.drop(columns="trial").dropna(subset=["incumbent"])
    leads = leads[leads["incumbent"].ne(leads["incumbent"].shift(fill_value=-1))]
    leads = leads.rename(columns={"incumbent": "trial"})
    return progress, leads.merge(progress[["trial", "fidelity", "loss"]], on="trial", how="left")


def paths_of(trials: pd.DataFrame, steps: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables of uses and losses of each step's algorithms, and of paths, the best first.

    Partial evaluations of the same configuration are combined.
    """
    last = trials.drop_duplicates("configuration", keep="last").drop(columns=["loss", "trial"])
    full = trials[trials["loss"].notna() & trials["is_partial"].eq(False)].sort_values("loss")
    best = full.drop_duplicates("configuration")[["configuration", "loss", "trial"]]
    tried = last.merge(best, on="configuration", how="left").sort_values("loss", kind="stable")
    tried["failed"] = tried["state"] == "failed"
    sums: dict[str, Any] = {
        "configurations": ("failed", "size"),
        "full": ("loss", "count"),
        "failed": ("failed", "sum"),
        "best": ("loss", "min"),
        "trial": ("trial", "first"),
        "median": ("loss", "median"),
    }
    choices = [f"params_{step}" for step in steps]
    uses = tried.melt(["loss", "trial", "failed"], choices, "step", "algorithm")
    uses["step"] = uses["step"].str.removeprefix("params_")
    paths = tried.groupby(choices or "state", sort=False).agg(**sums).reset_index()
    algorithms = uses.groupby(["step", "algorithm"], sort=False).agg(**sums).reset_index()
    return algorithms, paths


def importance_in(
    trials: pd.DataFrame, views: Sequence[TrialView], study: OpenedStudy
) -> Importance:
    """Return the importance of each choice, or the reason why it cannot be estimated.

    A configuration that a race stopped is usually bad. The estimated loss of a stopped
    configuration is the loss of its first folds, plus the mean difference, in full trials, between
    the loss of all folds and the loss of the first folds.
    """
    n_folds, epochs = study.plan.options.folds or 1, study.plan.options.epochs or 0
    is_of_all = trials["subset"].eq(1.0) & trials["epochs"].fillna(epochs).eq(epochs)
    known = trials[is_of_all & np.isfinite(trials["loss"])]
    known = known.assign(folds=known["folds"].fillna(n_folds).astype(int))
    full = known[known["is_partial"].eq(False)]
    folds = full.filter(regex=r"^loss_fold_\d+$")
    beyond = {n: (full["loss"] - folds.iloc[:, :n].mean(axis=1)).mean() for n in range(1, n_folds)}
    longest = known.sort_values("folds", kind="stable")
    longest = longest.drop_duplicates("configuration", keep="last").sort_values("configuration")
    losses = (longest["loss"] + longest["folds"].map(beyond).fillna(0.0)).tolist()
    try:
        space = study.plan.find_space()
    except Exception as error:  # a user's space may be deleted or need a missing package
        return Importance(len(losses), reason=f"the space cannot be loaded: {error}")
    configurations = {view.number: view.configuration for view in views}
    chosen = [*longest["trial"].map(configurations)]
    return importance_of(space, chosen, losses, study.plan.chance_loss)


def step_times_of(views: Sequence[TrialView]) -> pd.DataFrame:
    """Return the cost of each step in pipeline order, including steps of failed trials."""
    rows = [
        (cost["step"], cost["hit"], cost["seconds"], cost["load_seconds"])
        for view in views
        for cost in view.all_steps
    ]
    costs = _frame(rows, step="str", served="bool", seconds="float64", load_seconds="float64")
    costs["made"] = ~costs["served"]
    costs["made_seconds"] = costs["seconds"].where(costs["made"], 0.0)
    costs["saved_seconds"] = (costs["seconds"] - costs["load_seconds"]).where(costs["served"], 0.0)
    times = costs.drop(columns="seconds").groupby("step", sort=False).sum()
    order = [*views[0].configuration] if views else []  # configurations lack fixed steps
    fixed = [step for step in times.index if step not in order]
    found = [step for step in order if step in times.index]
    return times.loc[[*fixed, *found]].reset_index()


def trade_offs_of(views: Sequence[TrialView]) -> pd.DataFrame:
    """Return the quantities of full trials, ordered by loss. `is_best` marks the Pareto front."""
    rows = [
        (name, view.number, view.loss, value)
        for view in views
        if view.is_full
        for name, value in {COST: view.cost_uncached_seconds, **view.quantities}.items()
        if isfinite(value)
    ]
    found = _frame(rows, quantity="str", trial="int64", loss="float64", value="float64")
    sign = np.where(found["quantity"].map(is_at_least).astype(bool), -1.0, 1.0)
    found["cost"] = found["value"] * sign
    found = found.sort_values(["loss", "cost"], ignore_index=True)
    cost = found.pop("cost")
    least = cost.groupby(found["quantity"]).cummin()
    before = least.groupby(found["quantity"]).shift(fill_value=inf)
    return found.assign(is_best=cost < before)


def members_of(
    trials: pd.DataFrame, views: Sequence[TrialView], members: Sequence[WeightedTrial]
) -> pd.DataFrame:
    """Return the trials in the final model with loss and path, ordered by descending weight."""
    weights = {member.trial: member.weight for member in members}
    paths = {view.number: view.path for view in views if view.number in weights}
    found = _frame(weights.items(), trial="int64", weight="float64")
    found["loss"] = found["trial"].map(trials.set_index("trial")["loss"])
    found["path"] = [
        " > ".join(algorithm for algorithm in paths[trial] if algorithm != "none") or "none"
        for trial in weights
    ]
    return found.sort_values(["weight", "trial"], ascending=[False, True], ignore_index=True)


def reproduction_of(study: OpenedStudy) -> Reproduction:
    """Return the commands and facts that reproduce a study."""
    plan, problem, options = study.plan, study.plan.problem, study.plan.options
    method = METHODS.get(plan.method)
    seconds = options.budget
    if seconds is not None:
        seconds = 2.0 * max(seconds, ceil(study.row.seconds))  # the study may have overrun
    doubled = None if options.trials is None else 2 * options.trials
    longer = replace(plan, options=replace(options, trials=doubled, budget=seconds))
    obstacle = ""
    if plan.source.data.startswith(FRAME):
        obstacle = "The data was a DataFrame: pass it to `tune` or PipelineSearch again."
    return Reproduction(
        command=run_command(plan, study.name),
        resumed=continue_command(plan, study.name),
        longer=continue_command(longer, study.name),
        obstacle=obstacle,
        repeats_itself=method is not None and not method.draws_on_cost,
        facts={
            "data": plan.source.data,
            "digest of the data": problem.dataset,
            "digest of the split": problem.split,
            "space": plan.space,
            "digest of the space": problem.space_digest,
            "method": plan.method,
            "metric": plan.metric,
            "seed": str(plan.seed),
            "Prefect flow run": plan.flow_run_id or "none",
            **study.facts.versions,
        },
    )


def _frame(rows: Iterable[Sequence[Any]], **types: str) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(types)).astype(types)
