"""Reads the input of a new study, checks the options, and resolves omitted options."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.starting.study_input import (
    InputReader,
    Note,
    StudyRequest,
    find_metric,
    read_input,
)
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.study.replayed import study_objective
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.racing import Racing, is_large
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS, make_optimizer, method_named
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Objective, violation
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.modern import portfolio_of
from prefect_tune.tasks.data.dataset import Dataset, identity_columns
from prefect_tune.tasks.data.forward_split import holdout_share, study_split
from prefect_tune.tasks.data.split import LEARN, SKIPPED, TEST, Split
from prefect_tune.tasks.objective.comparison import rare_class
from prefect_tune.tasks.objective.constraints import check_constraints
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.problem import Problem, algorithm_ids, used_plugins

_DEFAULT_FOLDS: int = OPTIONS["folds"].standard
_SHOWN_CLASSES = 5
_DEMO_TRIALS, _DEMO_SECONDS = 20, 120.0
"""Default stop rule for the demo cohort."""


@dataclass(frozen=True)
class NewStudy:
    """A new study that was checked, but is not in the ledger yet."""

    plan: StudyPlan
    dataset: Dataset
    split: Split
    notes: tuple[Note, ...]


def resolve(
    request: StudyRequest,
    store: ArtifactStore,
    reader: InputReader,
    fixed_test: tuple[str, ...] | None = None,
) -> NewStudy:
    """Read the input of a new study, check its options, and resolve omitted options.

    If `fixed_test` is given, a hash of the named columns selects the test rows (see `row_ids`). An
    empty tuple stands for all columns of the data set. Nothing is stored. Raises `BadInput` or
    `UnknownName` if an option is invalid.
    """
    given = request.options
    method = given.method or DEFAULT_METHOD
    dataset, space_name, space, input_notes = read_input(request, reader)
    test_size, folds, holdout = given.test_size, given.folds, given.holdout
    if test_size is None and dataset.is_test is None:
        test_size = OPTIONS["test_size"].standard
    if folds is None and holdout is None:
        gap = gap_seconds(given, dataset)
        holdout = holdout_share(dataset, test_size, _DEFAULT_FOLDS, gap)
        folds = None if holdout else _DEFAULT_FOLDS
    seed = OPTIONS["seed"].standard if given.seed is None else given.seed
    given = replace(given, test_size=test_size, folds=folds, holdout=holdout, seed=seed)
    if gap_seconds(given, dataset) is not None or dataset.is_test is not None:
        fixed_test = None
    elif fixed_test is not None:
        fixed_test = fixed_test or identity_columns(dataset)
    split = split_of(given, dataset, fixed_test)
    group_notes = check_constraints(given.bounds, dataset, split)
    metric, notes = find_metric(request, dataset, dataset.y[split.is_training])
    limits = tuple(bounded.constraint for bounded in given.bounds)
    objective = study_objective(
        metric, dataset, split, space, constraints=limits, epochs=given.epochs
    )
    optimizer = check_method(method, given.option, space, objective)
    race, start = given.race, list[Configuration]()
    if race is None:  # on by default if racing is known to help
        is_served = given.use_cache if (objective.n_folds or 1) > 1 else is_large(objective)
        race = optimizer.method.is_raced and is_served and not optimizer.is_of_paper
    if given.start is not None:
        start = known_configurations(given.start, space, store, objective)
    elif optimizer.method.has_portfolio and not optimizer.is_of_paper:
        start = portfolio_of(space, objective)
    if start:
        with _reported_for("start", "omit it"):
            optimizer.begin_with(start)
    if race:
        with _reported_for("race", "omit it"):
            optimizer = Racing(optimizer)
    trials, seconds = stop_rule(given)
    used = {"method": method, "metric": metric.name, "space": space_name}
    used["format"] = dataset.format
    texts = {} if given.series is None else dict(request.texts) | dict(dataset.texts)
    plan = StudyPlan(
        options=replace(
            given,
            space=space_name,
            method=method,
            metric=metric.name,
            constraint=given.bounds,
            race=race,
            seed=split.seed,
            trials=trials,
            budget=seconds,
        ),
        data_name=dataset.name,
        problem=Problem(
            dataset=dataset.digest(),
            split=split.digest(),
            space=space_name,
            space_digest=space.digest,
            algorithms=algorithm_ids(space),
            metric=metric.name,
            seed=split.seed,
            space_code=request.space_code,
            positive=metric.positive,
            plugins=used_plugins(used),
            behind=request.behind,
        ),
        chance_loss=objective.chance,
        predicts=request.source.predicts,
        aside=request.source.aside,
        fixed_test=fixed_test,
        texts=tuple(texts.items()),
        start_configurations=tuple(configuration.to_json() for configuration in start),
    )
    if given.holdout and request.options.holdout is None:
        text = f"the data is large: one holdout of {given.holdout:.1%} of the training rows"
        text += f" replaces {_DEFAULT_FOLDS} folds (override with --folds)"
        notes.append(Note(text, "holdout"))
    notes += [*_class_notes(dataset, split, metric), *map(Note, group_notes), *input_notes]
    if given.bounds and not method_named(method).honors_constraints:
        text = f"{method} searches without constraints, then chooses among trials that meet them"
        notes.append(Note(text, "method", method, "to search within constraints, use jopt or admm"))
    if trials is not None and trials < (needed := optimizer.fewest_started):
        text = (
            f"method {method} starts {needed} configurations before it evaluates one in full; with "
            f"only {trials} configurations, it continues with the best of them"
        )
        notes.append(Note(text, "trials", str(trials), f"use --trials {needed} or more"))
    return NewStudy(plan, dataset, split, tuple(notes))


def check_method(
    method: str, options: Mapping[str, Any], space: Space, objective: Objective
) -> Optimizer:
    """Check the options of a method by constructing the method; return the method.

    Raises `UnknownName` if the method or an option does not exist, and `BadInput` if the value of
    an option is invalid.
    """
    declared = METHODS.get(method)
    if declared is not None and declared.fidelities == {"epochs"} and objective.epochs is None:
        raise BadInput(
            f"method {method} needs the number of epochs of a full training run",
            option="epochs",
            remedy="set the option, for instance --epochs 50, or use a method without epochs, "
            "such as smac or fabolas",
        )
    with _reported_for("option"):
        return make_optimizer(method, space, 0, objective, options)


@contextmanager
def _reported_for(option: str, remedy: str = "") -> Iterator[None]:
    """Convert a method's errors in the `with` block to `BadInput` errors that name an option."""
    try:
        yield
    except (UnknownName, BadInput):
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(str(error), option=option, remedy=remedy) from error


def split_of(options: StudyOptions, dataset: Dataset, fixed_test: tuple[str, ...] | None) -> Split:
    """Return the split of a data set that resolved options describe."""
    gap, seed, holdout = gap_seconds(options, dataset), options.seed or 0, options.holdout
    return study_split(dataset, options.folds, options.test_size, seed, holdout, gap, fixed_test)


def gap_seconds(options: StudyOptions, dataset: Dataset) -> float | None:
    """Return the gap in seconds if folds are ordered by time; None for stratified folds."""
    is_of_events = dataset.kind == "events" and (options.time or options.gap is not None)
    if dataset.times is not None or is_of_events:
        return options.gap or 0.0
    if options.gap is not None:
        raise BadInput(
            "a gap needs times, but the rows of this table have none",
            option="gap",
            remedy="name the column of the times with --time COLUMN",
        )
    return None


def _class_notes(dataset: Dataset, split: Split, metric: Metric) -> Iterator[Note]:
    """Yield notes on unused rows, and on duplicates and rare classes that can flatter a loss."""
    if n_unused := int((split.fold == SKIPPED).sum()):
        why = "rows in the gap before the test rows, or older rows of groups with test rows"
        yield Note(f"{n_unused:,} of {len(dataset):,} rows are not used: {why}")
    if split.n_copied:
        text = f"{split.n_copied:,} of {len(dataset):,} rows repeat another row"
        yield Note(f"{text}; equal rows are kept in one fold, or are all test rows")
    if split.equal is not None:
        text = f"{split.equal.sum():,} of {(split.fold == TEST).sum():,} test rows"
        yield Note(f"{text} equal a training row; the score is measured with and without such rows")
    if not dataset.classes:
        return
    rare = split.rare_classes(dataset.strata)
    if len(rare):
        text = f"{_named_classes(dataset, rare, split.fold == LEARN)} cannot be held out: every "
        yield Note(f"{text}fold trains on these classes, and the score covers only other classes")
    is_test, known = split.fold == TEST, dataset.y[split.is_training]
    unknown = np.setdiff1d(dataset.y[is_test], known)
    if len(unknown):
        named = _named_classes(dataset, unknown, is_test)
        yield Note(f"no model can predict {named}, which only test rows have")
    rarest = rare_class(dataset, split)
    if rarest is not None and metric.declared.all_wrong is not None:  # the metric counts wrong rows
        share, label = float(np.mean(known == rarest)), dataset.classes[rarest]
        yield Note(
            f"the rarest class, {label}, has {share:.2%} of the rows, so a model that never "
            f"predicts this class is wrong in only {share:.2%} of the rows",
            "metric",
            metric.name,
            "consider --metric average_precision, auroc or balanced_accuracy",
        )


def _named_classes(dataset: Dataset, classes: NDArray[Any], is_counted: NDArray[np.bool_]) -> str:
    """Describe classes by their number and by the row counts of the first few classes."""
    counts = np.bincount(dataset.y[is_counted].astype(np.intp), minlength=len(dataset.classes))
    shown = ", ".join(f"{dataset.classes[c]}: {counts[c]}" for c in classes[:_SHOWN_CLASSES])
    number = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
    return f"{number} with {counts[classes].sum()} rows ({shown})"


def stop_rule(options: StudyOptions) -> tuple[int | None, float | None]:
    """Return the stop rule of a new study with the given options."""
    if not options.stop_rule.is_open:
        return options.trials, options.budget
    if options.data.startswith("cohort:demo"):
        return _DEMO_TRIALS, _DEMO_SECONDS
    return None, OPTIONS["budget"].standard


_BEST = 10
"""Maximum number of configurations taken from an earlier study."""
_WRITTEN = (
    'write a JSON list of configurations, such as [{"fit model": {"algorithm": "random_forest", '
    '"hyperparameters": {...}}, ...}], or the output of `prefect-tune trials STUDY --json`, '
    "or name a study"
)


def known_configurations(
    start: str, space: Space, store: ArtifactStore, objective: Objective
) -> list[Configuration]:
    """Return the configurations that `--start` names, checked against the space.

    `start` is a JSON file (a list of configurations or trials), the name of a study (for its ten
    best full trials that meet the constraints), `portfolio` (for the space's portfolio) or `none`.
    Raises `BadInput` for any other value, and for configurations outside the space.
    """
    if start == "none":
        return []
    if start == "portfolio":
        if not (portfolio := portfolio_of(space, objective)):
            raise _refused(start, f"space {space.name!r} has no portfolio")
        return portfolio
    if Path(start).is_file():
        return [*_of_file(start, space)]
    ledger = Ledger(store.database)
    if (stored := ledger.study(start)) is None:
        known = UnknownName("study", start, ledger.study_names())
        raise _refused(start, f"there is no such file, and {known}")
    plan = StudyPlan.from_stored(stored)
    with documents_of(start):
        trials = [TrialView(trial).checked() for trial in ledger.trials(start)]
    found: dict[Configuration, float] = {}
    constraints = [bound.constraint for bound in plan.options.bounds]
    for trial in trials:
        if not trial.has_loss or violation(constraints, trial.quantities) > 0:
            continue
        with suppress(UnknownName, ValueError):  # trials of another space
            query = Query.from_json(trial.query, space)
            if query.is_full:
                found[query.configuration] = min(trial.loss, found.get(query.configuration, inf))
    if not found and plan.space != space.name:
        raise _refused(start, f"the study searched another space; use --space {plan.space!r}")
    if not found:
        raise _refused(start, "the study has no full trial that meets its constraints")
    return sorted(found, key=lambda configuration: found[configuration])[:_BEST]


def _refused(start: str, reason: str) -> BadInput:
    return BadInput(reason, option="start", value=start, remedy=_WRITTEN)


def _of_file(start: str, space: Space) -> Iterator[Configuration]:
    try:
        entries = json.loads(Path(start).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _refused(start, str(error)) from error
    if not isinstance(entries, list) or not entries:
        raise _refused(start, "the file has no list of configurations")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise _refused(start, f"entry {number} is not a configuration")
        try:
            query = entry.get("query", entry)  # if the entry is a trial
            yield Configuration.from_json(query.get("configuration", query), space)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise _refused(start, f"entry {number}: {reason}") from error
