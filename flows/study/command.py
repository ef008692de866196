"""The commands that start a study anew, or go on with it, from its plan.

Light to import: whoever only looks at a study is told it.
"""

import json
from collections.abc import Iterable, Iterator

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS, method_named

DEFAULT_SPACES = frozenset({"modern", "modern_regression", "events"})
"""Each is the default for the only kind of data and target that it takes."""
_DEFAULT_METRICS = frozenset({"error", "r2"})
"""Likewise for the only kind of target that it judges."""
Options = Iterator[tuple[str, str | None]]
"""Flags with their values; None for those that take none."""
_DEFAULT_FOLDS, _DEFAULT_TEST_SIZE, _DEFAULT_SECONDS = 3, 0.2, 600.0


def run_command(plan: StudyPlan, name: str) -> list[str]:
    """Return the words of the `prefect-tune run` that starts such a study.

    Options at their defaults are left out, and so is where its trials run and are kept. Words are
    not quoted: `shlex.join` does that.

    Args:
        plan: What the study is run with.
        name: What it is to be called.
    """
    options = (*_source(plan), *_split(plan), *_search(plan), *_stop_rule(plan), *_limits(plan))
    return _words(plan, (*options, ("--study", name)))


def continue_command(plan: StudyPlan, name: str) -> list[str]:
    """Return the words of the `prefect-tune run` that goes on with such a study.

    What is left out stays as it is, so only data, stop rule and a cache that is off are named.

    Args:
        plan: What the study is run with from now on.
        name: What it is called.
    """
    options = *_source(plan), *_stop_rule(plan), *_cache(plan)
    return _words(plan, (*options, ("--study", name)))


def removed_option(plan: StudyPlan) -> str:
    """Return the option, `name=value`, that the plan's method no longer takes; empty without one.

    Neither command runs with such an option. A method that is not known here is not judged.
    """
    if plan.method not in METHODS:
        return ""
    declared = method_named(plan.method).options
    for option, value in plan.options.items():
        try:
            declared(**{option: value})
        except (TypeError, ValueError):
            return f"{option}={value}"
    return ""


def _words(plan: StudyPlan, options: Iterable[tuple[str, str | None]]) -> list[str]:
    words = ["prefect-tune", "run", plan.source.data]
    for flag, value in options:
        words += [flag] if value is None else [flag, value]
    return words


def _source(plan: StudyPlan) -> Options:
    source = plan.source
    given = (
        ("--target", source.target),
        ("--labels", source.labels),
        ("--format", source.format),
        ("--test", source.test),
    )
    yield from ((flag, value) for flag, value in given if value is not None)
    if source.group is not None:
        yield "--group", source.group
    yield from (("--drop", column) for column in source.drop)
    yield from (("--categorical", column) for column in source.categorical)
    if source.drop_missing_target:
        yield "--drop-missing-target", None


def _split(plan: StudyPlan) -> Options:
    if plan.source.test is None and plan.test_size not in {None, _DEFAULT_TEST_SIZE}:
        yield "--test-size", f"{plan.test_size:.15g}"
    if plan.holdout is not None:
        yield "--holdout", f"{plan.holdout:.15g}"
    elif plan.folds not in {None, _DEFAULT_FOLDS}:
        yield "--folds", str(plan.folds)


def _search(plan: StudyPlan) -> Options:
    is_default_space = plan.space in DEFAULT_SPACES
    if not is_default_space:
        yield "--space", plan.space
    if plan.method != DEFAULT_METHOD:
        yield "--method", plan.method
    # Of a default space and metric one may have said whether classes or numbers are predicted.
    is_said = plan.source.predicts is not None and is_default_space
    if plan.metric not in _DEFAULT_METRICS or is_said:
        yield "--metric", plan.metric
    if plan.positive is not None:
        yield "--positive", plan.positive
    if plan.seed != 0:
        yield "--seed", str(plan.seed)
    for option, value in plan.options.items():
        yield "--option", f"{option}={value if isinstance(value, str) else json.dumps(value)}"
    yield from _evaluation(plan)


def _evaluation(plan: StudyPlan) -> Options:
    """Yield how configurations are evaluated, and what is made of them."""
    method = METHODS.get(plan.method)
    for bounded in plan.bounds:
        yield "--constraint", f"{bounded.quantity.text}<={bounded.bound:.15g}"
    if plan.ensemble is not None:
        yield "--ensemble", str(plan.ensemble.to_json())
    if plan.epochs is not None:
        yield "--epochs", str(plan.epochs)
    if plan.race != (method is not None and method.is_raced):
        yield "--race" if plan.race else "--no-race", None
    if plan.start_from is not None:
        yield "--start", plan.start_from


def _stop_rule(plan: StudyPlan) -> Options:
    rule = plan.stop_rule
    if rule.trials is not None:
        yield "--trials", str(rule.trials)
    if rule.seconds is not None and (rule.trials is not None or rule.seconds != _DEFAULT_SECONDS):
        yield "--budget", f"{rule.seconds:.15g}s"


def _limits(plan: StudyPlan) -> Options:
    if plan.trial_seconds is not None:
        yield "--trial-timeout", f"{plan.trial_seconds:.15g}s"
    if plan.trial_memory_bytes is not None:
        yield "--trial-memory", f"{plan.trial_memory_bytes}B"
    yield from _cache(plan)


def _cache(plan: StudyPlan) -> Options:
    if not plan.use_cache:
        yield "--no-cache", None
