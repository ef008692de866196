"""Commands that start or resume a study. The module is cheap to import."""

from collections.abc import Iterable
from dataclasses import fields

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.metric import DEFAULT_METRICS

_SOURCE = tuple(one.name for one in fields(Source) if one.name in OPTIONS)


def run_command(plan: StudyPlan, name: str) -> list[str]:
    """Return the arguments of the `prefect-tune run` command that starts a study anew.

    The arguments are not quoted. The new study is called `name`. The command omits options with
    default values, options for workers and storage, and the series.
    """
    stored = (one.name for one in OPTIONS.values() if one.is_stored and one.name != "series")
    return _words(plan, name, stored)


def continue_command(plan: StudyPlan, name: str) -> list[str]:
    """Return the arguments of the `prefect-tune run` command that resumes a study.

    The arguments are not quoted. The command contains the data, the stop rule and, if used,
    `--no-cache`. All other options keep their values.
    """
    return _words(plan, name, (*_SOURCE, "trials", "budget", "no_cache"))


def _words(plan: StudyPlan, name: str, options: Iterable[str]) -> list[str]:
    given = plan.options
    usual = {
        one.name: one.default if one.standard is None else one.standard for one in OPTIONS.values()
    }
    method = METHODS.get(plan.method)
    is_raced = method is not None and method.is_raced
    usual |= {"method": DEFAULT_METHOD, "constraint": (), "race": is_raced}
    is_default_space = given.space in DEFAULT_SPACES.values()
    if is_default_space:
        usual["space"] = given.space
    # If space and metric are defaults, the metric option may have decided the kind of target.
    is_usual = given.metric in DEFAULT_METRICS.values()
    if is_usual and (plan.predicts is None or not is_default_space):
        usual["metric"] = given.metric
    if given.test_size is None:
        usual["test_size"] = None
    if given.holdout is not None:
        usual["folds"] = given.folds
    if given.trials is not None:
        usual["budget"] = None
    words = ["prefect-tune", "run", given.data]
    for one in options:
        declared, value = OPTIONS[one], getattr(given, one)
        if not declared.is_argument and value != usual[one]:
            words += [word for pair in declared.words(value) for word in pair if word is not None]
    return [*words, "--study", name]
