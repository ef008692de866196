"""A user's own space: an object in a Python file, checked before any work."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.utils import get_tags

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES, algorithms_of, space_named
from prefect_tune.tasks.code_behind import NO_CODE_BEHIND, CodeBehind, DataFile, content_of, follow
from prefect_tune.tasks.fitting.epochs import drawn_choices
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import build, recipe, unseeded_arguments
from prefect_tune.tasks.user_code import is_user_code, load_user_code, read_user_code

_KINDS = frozenset(
    {"classifier", "regressor", "clusterer", "outlier_detector", "density_estimator"}
)
"""Kinds of estimators distinguished by scikit-learn's tags."""
_TYPICAL = MatrixSummary(1000, 20, "dense", "float64")
"""Data assumed when estimators are built before any data is known."""


def is_user_space(argument: str) -> bool:
    """Return whether `--space` names a file rather than a space of the catalogue."""
    return argument.partition(":")[0].endswith(".py")


class SpaceCode(NamedTuple):
    """Text of a user's file, empty for a space of the catalogue, and the code behind the space."""

    text: str = ""
    behind: CodeBehind = NO_CODE_BEHIND


def find_space(argument: str) -> tuple[Space, SpaceCode]:
    """Find the space that `--space` names, and its code.

    Raises:
        UnknownName: If the space does not exist.
        BadInput: If it cannot be used, or one of its models does not predict its target.
    """
    if not is_user_space(argument):
        space, behind = space_named(argument), NO_CODE_BEHIND
        if SPACES.plugin(argument) is not None:
            behind = follow("", None, _modules_of_estimators(space))
            behind = replace(behind, files=_data_files(space, None))
            space = bound(space, behind)
            _check_algorithms(space)
            check_models(space, argument)
        return space, SpaceCode("", behind)
    code, file = read_user_code(argument), Path(argument.partition(":")[0]).expanduser()
    behind = follow(code, file)
    named = _modules_of_estimators(declared := _declared(code, argument, behind))
    wider = follow(code, file, named)
    if (wider.texts, wider.unfollowed) != (behind.texts, behind.unfollowed):
        behind = wider
    behind = replace(behind, files=_data_files(declared, file.absolute().parent))
    space = load_user_space(code, argument, behind)
    check_models(space, argument)
    return space, SpaceCode(code, behind)


def _modules_of_estimators(space: Space) -> list[str]:
    paths = {
        path
        for step in space.steps
        for algorithm in step.algorithms
        for path in (algorithm.import_path, algorithm.sparse_estimator)
    }
    return sorted({path.rpartition(".")[0] for path in paths if not is_user_code(path)} - {""})


def _data_files(space: Space, folder: Path | None) -> tuple[DataFile, ...]:
    """Find data files of algorithms, in the current or the given folder; BadInput if missing."""
    found = {}
    for step in space.steps:
        for algorithm in step.algorithms:
            for path in algorithm.depends_on:
                places = [Path.cwd(), *([folder] if folder else [])]
                files = [str(place / Path(path).expanduser()) for place in places]
                file = next((one for one in files if content_of(one)), None)
                if file is None:
                    looked = " and ".join(dict.fromkeys(files))
                    raise BadInput(
                        f"algorithm {algorithm.id!r} of step {step.name!r} depends on file {path}, "
                        f"which is missing or cannot be read ({looked})",
                        remedy="correct the path in depends_on, or create the file",
                    )
                found[path] = DataFile(path, file, content_of(file))
    return tuple(found.values())


@cache
def load_user_space(code: str, argument: str, behind: CodeBehind = NO_CODE_BEHIND) -> Space:
    """Load the space `FILE.py:NAME` from the text of its file; UnknownName or BadInput if wrong."""
    space = bound(_declared(code, argument, behind), behind, code, argument)
    _check_algorithms(space)
    return space


@cache
def bound(space: Space, behind: CodeBehind, code: str = "", argument: str = "") -> Space:
    """Return a space whose estimators come from the modules and texts that travel with it."""
    if behind == NO_CODE_BEHIND:
        return space
    root = load_user_code(code, Path(argument.partition(":")[0]).name, behind).__name__
    files = {one.path: one.file for one in behind.files}

    def rebound(algorithm: Algorithm) -> Algorithm:
        path, sparse = algorithm.import_path, algorithm.sparse_estimator
        changes: dict[str, Any] = {}
        if (below := _path_below(root, path, behind)) != path:
            changes["estimator"] = below
        if (below := _path_below(root, sparse, behind)) != sparse:
            changes["sparse_estimator"] = below
        if algorithm.depends_on:
            changes["depends_on"] = tuple(files.get(p, p) for p in algorithm.depends_on)
        return replace(algorithm, **changes) if changes else algorithm

    steps = tuple(replace(s, algorithms=tuple(map(rebound, s.algorithms))) for s in space.steps)
    return replace(space, steps=steps)


def _path_below(root: str, path: str, behind: CodeBehind) -> str:
    """Return an estimator's dotted path below a user's file if the estimator comes from there."""
    package, module = path.partition(".")[0], path.rpartition(".")[0]
    if package in behind.unfollowed_packages - behind.packages:
        with suppress(Exception):  # a failed import is reported when the estimator is built
            sys.modules[f"{root}.{module}"] = import_module(module)
            return f"{root}.{path}"
    return f"{root}.{path}" if package in behind.packages else path


def _declared(code: str, argument: str, behind: CodeBehind) -> Space:
    file, _, name = argument.partition(":")
    module = load_user_code(code, Path(file).name, behind)
    found = getattr(module, name, None)
    if found is None:
        spaces = [n for n, value in vars(module).items() if isinstance(value, Space)]
        raise UnknownName(f"space in {file}:", name, spaces)
    if not isinstance(found, Space):
        raise BadInput(f"--space {argument} is a {type(found).__name__}, not a Space")
    return found


@cache
def _check_algorithms(space: Space) -> None:
    for step in space.steps:
        for algorithm in step.algorithms:
            if algorithm not in _of_the_catalogue():
                _check(algorithm, step.name, is_model=step is space.steps[-1])


@cache
def check_models(space: Space, argument: str) -> None:
    """Raise BadInput if a model of a space does not predict its target, by scikit-learn's tags.

    Each model is built with its defaults and with some random values. Models without tags pass.
    """
    right = "classifier" if space.target == "classes" else "regressor"
    other = "numbers" if space.target == "classes" else "classes"
    step = space.steps[-1]
    for algorithm in step.algorithms:
        wrong = sorted({_kind(model) for model in _variants(algorithm)} & _KINDS - {right})
        if not wrong:
            continue
        article = "an" if wrong[0][0] in "aeiou" else "a"
        is_other = wrong[0] in {"classifier", "regressor"}
        raise BadInput(
            f"algorithm {algorithm.id!r} of step {step.name!r} ({algorithm.import_path}) is "
            f"{article} {wrong[0].replace('_', ' ')}, and space {space.name!r} predicts "
            f"{space.target}",
            option="space",
            value=argument,
            remedy=f"use a {right}"
            + (f', or give the space target="{other}" to predict {other}' if is_other else ""),
        )


def _variants(algorithm: Algorithm) -> Iterator[Any]:
    if algorithm.is_passthrough:
        return
    layouts = ["dense", *(["sparse"] if algorithm.sparse_estimator else [])]
    for choice in drawn_choices(algorithm):
        for layout in layouts:
            with suppress(Exception):  # the trial will fail with the reason
                how = recipe(algorithm, choice, replace(_TYPICAL, layout=layout), balanced=False)
                yield build(how, 0)


def _kind(model: Any) -> str:
    try:
        kind = get_tags(model).estimator_type
    except Exception:  # not a scikit-learn estimator, or a wrapper of something else
        kind = None
    return str(kind or getattr(model, "_estimator_type", None) or "")


@cache
def _of_the_catalogue() -> frozenset[Algorithm]:
    """Return algorithms whose flags our own tests prove; user spaces may contain them."""
    return frozenset(a for space in SPACES.built_in() for a in algorithms_of(space))


def _check(algorithm: Algorithm, step: str, *, is_model: bool) -> None:
    """Build the estimator with its defaults, and check the methods its step needs."""
    who = f"algorithm {algorithm.id!r} of step {step!r}"
    if algorithm.is_passthrough:
        if is_model:
            raise BadInput(f"{who} has no estimator, but the last step must predict")
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
            where = "the last step must predict" if is_model else "it is not the last step"
            raise BadInput(f"{who}: {algorithm.import_path} has no method {method}; {where}")
    _check_flags(algorithm, built, who)


def _check_flags(algorithm: Algorithm, built: Any, who: str) -> None:
    if algorithm.flags.weights == "sample_weight":
        accepted = signature(built.fit).parameters
        if "sample_weight" not in accepted and "kwargs" not in accepted:
            raise BadInput(f"{who}: its flags declare sample_weight, but its fit takes none")
    unseeded = unseeded_arguments(built)
    if unseeded:
        raise BadInput(
            f"{who} takes a random_state ({unseeded[0]}) and would differ between runs; declare "
            "flags=Flags(stochastic=True) to have it seeded, or fix random_state"
        )
