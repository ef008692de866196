"""A user's own space: an object in a Python file, checked before any work."""

from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES, space_named
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.fitting.recipe import build, recipe, unseeded_arguments
from prefect_tune.tasks.user_code import load_user_code, read_user_code

__all__ = ["find_space", "is_user_space", "load_user_space"]

_TYPICAL = MatrixSummary(1000, 20, "dense", "float64")
"""Of data to build estimators for that nothing is known of yet."""


def is_user_space(argument: str) -> bool:
    """Return whether `--space` names a file rather than a space of the catalogue."""
    return argument.partition(":")[0].endswith(".py")


def find_space(argument: str) -> tuple[Space, str]:
    """Find the space that `--space` names, and its text; empty for one of the catalogue.

    Raises:
        UnknownName, BadInput: If there is none, or it cannot be used.
    """
    if not is_user_space(argument):
        return space_named(argument), ""
    code = read_user_code(argument)
    return load_user_space(code, argument), code


@cache
def load_user_space(code: str, argument: str) -> Space:
    """Load the space in a text.

    Args:
        code: The text.
        argument: `FILE.py:NAME`, as given to `--space`.

    Raises:
        UnknownName: If nothing in it has that name.
        BadInput: If the text does not run, or an algorithm cannot be used; says why.
    """
    file, _, name = argument.partition(":")
    module = load_user_code(code, Path(file).name)
    found = getattr(module, name, None)
    if found is None:
        spaces = [n for n, value in vars(module).items() if isinstance(value, Space)]
        raise UnknownName(f"space in {file}:", name, spaces)
    if not isinstance(found, Space):
        raise BadInput(f"--space {argument} is a {type(found).__name__}, not a Space")
    for step in found.steps:
        for algorithm in step.algorithms:
            if algorithm not in _of_the_catalogue():
                _check(algorithm, step.name, is_model=step is found.steps[-1])
    return found


@cache
def _of_the_catalogue() -> frozenset[Algorithm]:
    """Return algorithms whose flags our own tests prove; users' spaces may hold them too."""
    steps = (step for space in SPACES.values() for step in space.steps)
    return frozenset(algorithm for step in steps for algorithm in step.algorithms)


def _check(algorithm: Algorithm, step: str, *, is_model: bool) -> None:
    """Build the estimator with its defaults, and look for what a step needs of it."""
    who = f"algorithm {algorithm.id!r} of step {step!r}"
    if algorithm.is_passthrough:
        if is_model:
            raise BadInput(f"{who} has no estimator, and the last step has to predict")
        return
    choice = default_choice(algorithm)
    try:
        build(recipe(algorithm, choice, _TYPICAL, balanced=True), 0)
        built = build(recipe(algorithm, choice, _TYPICAL, balanced=False), 0)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{who}: {algorithm.import_path} cannot be constructed with its defaults: "
            f"{type(error).__name__}: {error}"
        ) from error
    for method in ("fit", "predict" if is_model else "transform"):
        if not callable(getattr(built, method, None)):
            where = "the last step has to predict" if is_model else "it is not the last step"
            raise BadInput(f"{who}: {algorithm.import_path} has no method {method}; {where}")
    _check_flags(algorithm, built, who)


def _check_flags(algorithm: Algorithm, built: Any, who: str) -> None:
    if algorithm.flags.weights == "sample_weight":
        accepted = signature(built.fit).parameters
        if "sample_weight" not in accepted and "kwargs" not in accepted:
            raise BadInput(f"{who}: its flags say sample_weight, and its fit takes none")
    unseeded = unseeded_arguments(built)
    if unseeded:
        raise BadInput(
            f"{who} takes a random_state ({unseeded[0]}) and would differ from run to run; give it "
            "flags=Flags(stochastic=True) to have it seeded, or fix random_state"
        )
