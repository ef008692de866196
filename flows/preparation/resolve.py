"""Plan of a new study: reads the input, checks options and resolves omitted ones."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.preparation.constraints import (
    constraint_notes,
    quantity_digests,
)
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.start import known_configurations
from prefect_tune.flows.preparation.study_input import (
    InputReader,
    Note,
    StudyInput,
    find_metric,
    read_input,
)
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import study_objective
from prefect_tune.flows.text import format_bytes
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.race_rules import is_large
from prefect_tune.optimizers.racing import Racing
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS, make_optimizer
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.modern import portfolio_of
from prefect_tune.tasks.data.dataset import Dataset, import_dataset
from prefect_tune.tasks.data.forward_split import holdout_share, study_split, unseen_classes
from prefect_tune.tasks.data.row_ids import FixedTestRows, identity_columns
from prefect_tune.tasks.data.split import LEARN, REFIT, SKIPPED, TEST, Split, import_split
from prefect_tune.tasks.fitting.iterative import reasons_at_once
from prefect_tune.tasks.fitting.memory_estimate import LIBRARIES_BYTES, least_memory
from prefect_tune.tasks.objective.constraint import check_constraints
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.usefulness import rare_class
from prefect_tune.tasks.plugins import used_plugins
from prefect_tune.tasks.problem import Problem, algorithm_ids


def check_method(
    method: str,
    options: Mapping[str, Any],
    space: Space,
    objective: Objective | None = None,
    *,
    option: str,
    value: str | None = None,
    race: bool = False,
    start: Sequence[Configuration] = (),
) -> Optimizer:
    """Check a method's options by constructing the method, which is cheap; return the method.

    Errors name `option` with `value`. Racing and initial configurations are checked too, if given.
    Raises `UnknownName` if the method or an option does not exist, and `BadInput` if the value of
    an option cannot be used.
    """
    declared = METHODS.get(method)
    is_of_epochs = declared is not None and declared.fidelities == {"epochs"}
    if is_of_epochs and objective is not None and objective.epochs is None:
        raise BadInput(
            f"method {method} needs the number of epochs of a full training",
            option="epochs",
            remedy="set it, for instance --epochs 50, or use a method without epochs, "
            "such as smac or fabolas",
        )
    try:
        made: Optimizer = make_optimizer(method, space, 0, objective, options)
    except (UnknownName, BadInput):
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(str(error), option=option, value=value) from error
    if start:
        try:
            made.begin_with(start)
        except ValueError as error:
            raise BadInput(str(error), option="start", remedy="omit it") from error
    if race:
        try:
            made = Racing(made)
        except ValueError as error:
            raise BadInput(str(error), option="race", remedy="omit it") from error
    return made


_DEFAULT_FOLDS: int = OPTIONS["folds"].standard
_SHOWN_MODELS = 6
_SHOWN_CLASSES = 5
_DEMO_TRIALS, _DEMO_SECONDS = 20, 120.0
"""Default stop rule for the demo cohort."""


@dataclass(frozen=True, slots=True)
class EvaluationSetup:
    """Evaluation of a study: splits, metric and objective.

    Attributes:
        folds: Cross-validation folds; None with a single holdout.
        holdout: Share of the training rows in the single holdout; None with folds.
        test_size: Share of test rows, 0 for none; None if a file names them.
        fixed_test: Columns of the ids that fix the test rows; None if the seed or time does.
    """

    folds: int | None
    holdout: float | None
    test_size: float | None
    split: Split
    metric: Metric
    objective: Objective
    notes: tuple[Note, ...]
    fixed_test: tuple[str, ...] | None = None


def evaluation_setup(
    request: StudyRequest, found: StudyInput, fixed_test: tuple[str, ...] | None = None
) -> EvaluationSetup:
    """Split the rows and find the metric; raise `BadInput` or `UnknownName` for a bad option.

    With `fixed_test`, a hash of these columns fixes the test rows (see `row_ids`); an empty tuple
    stands for the columns of this data set.
    """
    dataset, options = found.dataset, request.options
    test_size = options.test_size
    if test_size is None and dataset.is_test is None:
        test_size = OPTIONS["test_size"].standard
    gap = gap_seconds(options, dataset)
    if gap is not None or dataset.is_test is not None:
        fixed_test = None
    elif fixed_test is not None:
        fixed_test = fixed_test or identity_columns(dataset)
    folds, holdout = options.folds, options.holdout
    if folds is None and holdout is None:
        holdout = holdout_share(dataset, test_size, _DEFAULT_FOLDS, gap)
        folds = None if holdout else _DEFAULT_FOLDS
    seed = OPTIONS["seed"].standard if options.seed is None else options.seed
    fixed = None if fixed_test is None else FixedTestRows(fixed_test)
    split = study_split(dataset, folds, test_size, seed, holdout, gap, fixed)
    check_constraints(options.bounds, dataset, split)
    metric, notes = find_metric(request, dataset, dataset.y[split.is_training])
    limits = tuple(bounded.constraint for bounded in options.bounds)
    objective = study_objective(
        metric, dataset, split, found.space, constraints=limits, epochs=options.epochs
    )
    if holdout and options.holdout is None:
        text = f"the data is large: one holdout of {holdout:.1%} of the training rows replaces"
        notes = [*notes, Note(f"{text} {_DEFAULT_FOLDS} folds (override with --folds)", "holdout")]
    if split.n_copied:
        text = f"{split.n_copied:,} of {len(dataset):,} rows repeat another row"
        notes.append(Note(f"{text}; equal rows are in one fold, or all are test rows"))
    if split.equal is not None:
        text = f"{split.equal.sum():,} of {(split.fold == TEST).sum():,} test rows equal a training"
        notes.append(Note(f"{text} row; the test loss is measured with and without these"))
    notes += [
        *_rare_notes(dataset, split),
        *_metric_notes(dataset, split, metric),
        *_forward_notes(split),
    ]
    return EvaluationSetup(
        folds, holdout, test_size, split, metric, objective, tuple(notes), fixed_test
    )


def gap_seconds(options: StudyOptions, dataset: Dataset) -> float | None:
    """Return the gap of folds that look forward, 0 for none; None for stratified folds."""
    is_of_events = dataset.kind == "events" and (options.time or options.gap is not None)
    if dataset.times is not None or is_of_events:
        return options.gap or 0.0
    if options.gap is not None:
        raise BadInput(
            "a gap lies between times, and the rows of this table have none",
            option="gap",
            remedy="name the column of the times with --time COLUMN",
        )
    return None


def _forward_notes(split: Split) -> Iterator[Note]:
    """Yield notes on the rows that folds in order of time leave unused."""
    if split.trains is None:
        return
    n_skipped = int((split.fold == SKIPPED).sum())
    text = "folds look forward in time: each holds out newer rows than it trains on"
    if n_skipped:
        text += f"; {n_skipped} rows of the gap or of test groups are not used"
    yield Note(text, "time")


def _rare_notes(dataset: Dataset, split: Split) -> Iterator[Note]:
    """Yield notes on classes that cannot be held out, and on classes that only test rows have."""
    if not dataset.classes:
        return
    rare = split.rare_classes(dataset.strata)
    if len(rare):
        text = f"{_named_classes(dataset, rare, split.fold == LEARN)} cannot be held out"
        yield Note(f"{text}: every fold trains on them, and the loss covers the other classes only")
    is_test = split.fold == TEST
    if unseen := unseen_classes(split, dataset.y):
        named = ", ".join(f"{dataset.classes[c]}: {n}" for c, n in unseen.items())
        yield Note(
            f"some folds hold out rows of classes that no older row has ({named}), which their "
            "models cannot predict"
        )
    unknown = np.setdiff1d(dataset.y[is_test], dataset.y[split.is_training])
    if len(unknown):
        named = _named_classes(dataset, unknown, is_test)
        yield Note(f"only test rows have {named}: no model can predict them")


def _metric_notes(dataset: Dataset, split: Split, metric: Metric) -> Iterator[Note]:
    """Yield a note if the metric counts wrong rows, and so hardly depends on a rare class."""
    rare = rare_class(dataset, split)
    if rare is None or metric.declared.all_wrong is None:
        return
    share = float(np.mean(dataset.y[split.is_training] == rare))
    label = dataset.classes[rare]
    yield Note(
        f"class {label} has {share:.2%} of the rows, and {metric.name} hardly depends on it: a "
        f"model that never predicts {label} is wrong in {share:.2%} of the rows",
        "metric",
        metric.name,
        "average_precision, auroc or balanced_accuracy weigh the class more",
    )


def _named_classes(dataset: Dataset, classes: NDArray[Any], is_counted: NDArray[np.bool_]) -> str:
    """Return the number of classes, and the first classes with their row counts."""
    counts = np.bincount(dataset.y[is_counted].astype(np.intp), minlength=len(dataset.classes))
    shown = ", ".join(f"{dataset.classes[c]}: {counts[c]}" for c in classes[:_SHOWN_CLASSES])
    more = ", ..." * (len(classes) > _SHOWN_CLASSES)
    number = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
    return f"{number} with {counts[classes].sum()} rows ({shown}{more})"


def resolve(
    request: StudyRequest,
    store: ArtifactStore,
    reader: InputReader,
    fixed_test: tuple[str, ...] | None = None,
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan of a new study and notes for the user; import the data and its split.

    `fixed_test` is as for `evaluation_setup`. Raises `BadInput` or `UnknownName` if an option
    cannot be used.
    """
    given = request.options
    method = given.method or DEFAULT_METHOD
    dataset = (found := read_input(request, reader)).dataset
    setup = evaluation_setup(request, found, fixed_test)
    split, objective = setup.split, setup.objective
    _check_memory(given, found, split)
    check = partial(check_method, method, given.option, found.space, objective, option="option")
    race = is_raced(given, plain := check(race=bool(given.race)))
    start = _start(given, plain, store)
    made = check(race=race, start=start)
    trials, seconds = stop_rule(given)
    resolved = replace(
        given,
        test_size=setup.test_size,
        folds=setup.folds,
        holdout=setup.holdout,
        space=found.space_name,
        method=method,
        metric=setup.metric.name,
        constraint=given.bounds,
        race=race,
        seed=split.seed,
        trials=trials,
        budget=seconds,
    )
    texts = {} if given.series is None else dict(request.texts) | dict(dataset.texts)
    plan = StudyPlan(
        options=resolved,
        data_name=dataset.name,
        problem=_problem(found, setup, store, method),
        chance_loss=objective.chance,
        predicts=found.source.predicts,
        aside=found.source.aside,
        source_states=found.states,
        quantity_digests=quantity_digests(given.bounds),
        fixed_test=setup.fixed_test,
        texts=tuple(texts.items()),
        start_configurations=tuple(configuration.to_json() for configuration in start),
    )
    notes = constraint_notes(given.bounds, dataset, split, method)
    epoch_notes = _epoch_notes(plan, found.space, len(dataset.classes), objective.iterative)
    notes += [*_partial_notes(plan, made), *epoch_notes]
    return plan, [*setup.notes, *found.notes(), *notes]


def _check_memory(options: StudyOptions, found: StudyInput, split: Split) -> None:
    """Raise `BadInput` if no model fits on all training rows within `--trial-memory`."""
    limit, dataset = options.trial_memory, found.dataset
    if limit is None or dataset.kind != "table":
        return
    models = found.space.steps[-1].algorithms
    least = least_memory(models, split.n_training(REFIT), dataset.n_features)
    needed = LIBRARIES_BYTES + int(least.size_bytes)
    if needed > limit:
        raise BadInput(
            f"no model fits: {least.what} needs at least {format_bytes(int(least.size_bytes))}, "
            f"plus {format_bytes(LIBRARIES_BYTES)} for the libraries",
            option="trial-memory",
            value=format_bytes(limit),
            remedy=f"set it to at least {format_bytes(needed)}",
        )


def _problem(
    found: StudyInput, setup: EvaluationSetup, store: ArtifactStore, method: str
) -> Problem:
    """Return the problem of a study; import its data and split."""
    names = {
        "method": method,
        "metric": setup.metric.name,
        "space": found.space_name,
        "format": found.dataset.format,
    }
    return Problem(
        dataset=import_dataset(found.dataset, store),
        split=import_split(setup.split, store),
        space=found.space_name,
        space_digest=found.space.digest,
        algorithms=algorithm_ids(found.space),
        metric=setup.metric.name,
        seed=setup.split.seed,
        space_code=found.space_code,
        positive=setup.metric.positive,
        plugins=used_plugins(names),
        behind=found.behind,
    )


def is_raced(options: StudyOptions, optimizer: Optimizer) -> bool:
    """Return whether configurations race: as given, or by default if racing is known to help."""
    if options.race is not None:
        return options.race
    has_folds = (optimizer.objective.n_folds or 1) > 1
    is_served = options.use_cache if has_folds else is_large(optimizer.objective)
    return optimizer.method.is_raced and is_served and not optimizer.is_of_paper


def _start(
    options: StudyOptions, optimizer: Optimizer, store: ArtifactStore
) -> list[Configuration]:
    if options.start is None:
        begins = optimizer.method.has_portfolio and not optimizer.is_of_paper
        return portfolio_of(optimizer.space, optimizer.objective) if begins else []
    return known_configurations(options.start, optimizer.space, store)


def _partial_notes(plan: StudyPlan, method: Optimizer) -> list[Note]:
    """Return notes on studies whose trials can be partial evaluations."""
    notes, trials = [], plan.options.trials
    if plan.options.race and not plan.options.use_cache and plan.options.holdout is None:
        text = "without a cache, configurations that survive the race rerun their first fold"
        notes.append(Note(text, "race"))
    if method.method.fidelities and not plan.options.use_cache:
        text = f"without a cache, trials that method {plan.method} resumes retrain from the start"
        notes.append(Note(text, "no_cache"))
    if trials is not None and trials < (least := method.least_begun):
        text = f"method {plan.method} starts {least} configurations before it runs one in full"
        notes.append(
            Note(
                f"{text}; if only {trials} can start, the method continues with the best of these",
                "trials",
                str(trials),
                f"use --trials {least} or more",
            )
        )
    return notes


def _epoch_notes(
    plan: StudyPlan, space: Space, n_classes: int, iterative: Collection[str]
) -> list[Note]:
    """Return notes on algorithms that could train in epochs but do not."""
    reasons = reasons_at_once(space.steps[-1], n_classes) if plan.options.epochs else {}
    listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    notes = [Note(f"fitted at once, without epochs: {listed}", "epochs")] if listed else []
    models = [algorithm.id for algorithm in space.steps[-1].algorithms]
    at_once = [model for model in models if plan.options.epochs and model not in iterative]
    if at_once:
        listed = ", ".join(at_once[:_SHOWN_MODELS]) + (", ..." if at_once[_SHOWN_MODELS:] else "")
        text = f"{len(at_once)} of {len(models)} models do not train in epochs"
        notes.append(Note(f"{text} and are fitted in full at once: {listed}", "epochs"))
    return notes


def stop_rule(options: StudyOptions) -> tuple[int | None, float | None]:
    """Return trials and seconds at which a new study with these options ends."""
    if not options.stop_rule.is_open:
        return options.trials, options.budget
    if options.data.startswith("cohort:demo"):
        return _DEMO_TRIALS, _DEMO_SECONDS
    return None, OPTIONS["budget"].standard
