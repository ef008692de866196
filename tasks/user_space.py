"""A user's own space: an object in a Python file, checked before a study starts."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.utils import get_tags

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES, algorithms_of, space_named
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe, unseeded_arguments
from prefect_tune.tasks.user_code import (
    NO_CODE_BEHIND,
    CodeBehind,
    DataFile,
    content_of,
    follow,
    is_user_code,
    load_user_code,
    read_user_code,
)

_TYPICAL = MatrixSummary(1000, 20, "dense", "float64")
"""Data summary assumed when estimators are built without data."""


def is_user_space(argument: str) -> bool:
    """Return whether `--space` names a file rather than a space of the catalogue."""
    return argument.partition(":")[0].endswith(".py")


class SpaceCode(NamedTuple):
    """Source of a user's file (empty for a space of the catalogue), and the imported modules."""

    text: str = ""
    behind: CodeBehind = NO_CODE_BEHIND


def find_space(argument: str) -> tuple[Space, SpaceCode]:
    """Return the space named by `--space`, and the space's code.

    Raises:
        UnknownName: If the space does not exist.
        BadInput: If the space cannot be used, or a model does not predict the target of the space.
    """
    if not is_user_space(argument):
        space = space_named(argument)
        if SPACES.plugin(argument) is not None:
            _check_algorithms(space, argument)
        return space, SpaceCode()
    code, file = read_user_code(argument), Path(argument.partition(":")[0]).expanduser()
    declared = _declared(code, argument, follow(code, file))
    paths = {path for a in algorithms_of(declared) for path in (a.import_path, a.sparse_estimator)}
    modules = {path.rpartition(".")[0] for path in paths if not is_user_code(path)} - {""}
    behind = follow(code, file, modules)
    behind = replace(behind, files=_data_files(declared, file.absolute().parent))
    space = load_user_space(code, argument, behind)
    _check_algorithms(space, argument)
    return space, SpaceCode(code, behind)


def _data_files(space: Space, folder: Path) -> tuple[DataFile, ...]:
    """Find data files of algorithms in the current or given folder; may raise `BadInput`."""
    found = {}
    for algorithm in algorithms_of(space):
        for path in algorithm.depends_on:
            files = [str(place / Path(path).expanduser()) for place in (Path.cwd(), folder)]
            file = next((one for one in files if content_of(one)), None)
            if file is None:
                raise BadInput(
                    f"algorithm {algorithm.id!r} depends on file {path}, which is missing or "
                    f"cannot be read ({' and '.join(dict.fromkeys(files))})",
                    remedy="correct the path in depends_on, or create the file",
                )
            found[path] = DataFile(path, file, content_of(file))
    return tuple(found.values())


@cache
def load_user_space(code: str, argument: str, behind: CodeBehind = NO_CODE_BEHIND) -> Space:
    """Load the space `FILE.py:NAME` from source; may raise `UnknownName` or `BadInput`.

    Estimators of the space are loaded from the sources that are sent with the space.
    """
    space = _declared(code, argument, behind)
    root = load_user_code(code, Path(argument.partition(":")[0]).name, behind).__name__
    files = {one.path: one.file for one in behind.files}
    travelling = {module.name.partition(".")[0] for module in behind.modules}

    def as_travelled(algorithm: Algorithm) -> Algorithm:
        """Return an algorithm with paths that point to the modules sent with the user's file."""
        paths = {"estimator": algorithm.import_path, "sparse_estimator": algorithm.sparse_estimator}
        changes: dict[str, Any] = {
            field: f"{root}.{path}"
            for field, path in paths.items()
            if path.partition(".")[0] in travelling
        }
        if algorithm.depends_on:
            changes["depends_on"] = tuple(files.get(path, path) for path in algorithm.depends_on)
        return replace(algorithm, **changes) if changes else algorithm

    steps = (replace(s, algorithms=tuple(map(as_travelled, s.algorithms))) for s in space.steps)
    return replace(space, steps=tuple(steps))


def _declared(code: str, argument: str, behind: CodeBehind) -> Space:
    file, _, name = argument.partition(":")
    module = load_user_code(code, Path(file).name, behind)
    found = getattr(module, name, None)
    if found is None:
        spaces = [n for n, value in vars(module).items() if isinstance(value, Space)]
        raise UnknownName(f"space in {file}:", name, spaces)
    if not isinstance(found, Space):
        kind = type(found).__name__
        raise BadInput(f"{name} is a {kind}, not a Space", option="space", value=argument)
    return found


@cache
def _check_algorithms(space: Space, argument: str) -> None:
    """Raise `BadInput` if an algorithm cannot be used, or a model does not predict the target.

    Algorithms of the catalogue are skipped, because prefect-tune's own tests check them.
    """
    known = frozenset(a for space in SPACES.without_plugins() for a in algorithms_of(space))
    for step in space.steps:
        for algorithm in step.algorithms:
            built = None
            if algorithm not in known:
                built = _checked(algorithm, step.name, is_model=step is space.steps[-1])
            elif step is space.steps[-1]:
                with suppress(Exception):  # trials report missing libraries
                    built = _built(algorithm, is_balanced=False)
            if step is space.steps[-1]:
                _check_kind(algorithm, built, space, argument)


def _built(algorithm: Algorithm, *, is_balanced: bool) -> Any:
    return build(recipe(algorithm, default_choice(algorithm), _TYPICAL, balanced=is_balanced), 0)


def _checked(algorithm: Algorithm, step: str, *, is_model: bool) -> Any:
    """Build the estimator with default values, and check for the required methods."""
    who = f"algorithm {algorithm.id!r} of step {step!r}"
    if algorithm.is_passthrough:
        if is_model:
            raise BadInput(f"{who} has no estimator, but the last step must predict")
        return None
    if algorithm.import_path.startswith("__main__."):
        raise BadInput(
            f"{who}: workers cannot import {algorithm.import_path} from the running program",
            remedy="define the class in the file of the space, or in a module next to that file",
        )
    try:
        _built(algorithm, is_balanced=True)
        built = _built(algorithm, is_balanced=False)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{who}: {algorithm.import_path} cannot be constructed with its defaults: "
            f"{type(error).__name__}: {error}"
        ) from error
    for method in ("fit", "predict" if is_model else "transform"):
        if not callable(getattr(built, method, None)):
            where = "the last step must predict" if is_model else "other steps must transform"
            raise BadInput(f"{who}: {algorithm.import_path} has no method {method}; {where}")
    if unseeded := unseeded_arguments(built):
        raise BadInput(
            f"{who} takes a random_state ({unseeded[0]}) and would differ between runs; declare "
            "flags=Flags(stochastic=True) to have it seeded, or fix random_state"
        )
    return built


def _check_kind(algorithm: Algorithm, model: Any, space: Space, argument: str) -> None:
    """Raise `BadInput` if a model's tags contradict the kind of the space's target."""
    kind = None
    with suppress(Exception):  # not a scikit-learn estimator, or a wrapper around another object
        kind = get_tags(model).estimator_type
    kind = str(kind or getattr(model, "_estimator_type", None) or "")
    is_classes = space.target == "classification"
    right, other = ("classifier", "regression") if is_classes else ("regressor", "classification")
    if kind not in ("", right):
        raise BadInput(
            f"algorithm {algorithm.id!r} of step {space.steps[-1].name!r} "
            f"({algorithm.import_path}) is a {kind}, but space {space.name!r} is for "
            f"{space.target}",
            option="space",
            value=argument,
            remedy=f'use a {right}, or give the space target="{other}"',
        )
