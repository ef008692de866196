"""Export of a final model with as few dependencies on prefect-tune as possible.

`plain` replaces prefect-tune's estimator classes with their scikit-learn parents, where predictions
stay the same. Some of prefect-tune's classes differ from the parent only if the parent fails or
selects no column. If the parent does neither, predictions of the parent, and of a refitted clone,
are equal to the last bit. `portable` pickles a model together with prefect-tune's remaining code
and the user's code, as bytecode for this version of Python. A `checked_pickle` compares versions
before the model is read. Reading a `skops_file` runs no code, but types unknown to skops must be
installed on the reading machine and trusted by the reader.

A `trial_pipeline` is the unfitted pipeline of a trial, and `code_of` prints it as Python code.
Steps depend on their input data, so the pipeline is built as for the final model if the trial is
part of that model, and as for the first fold otherwise.
"""

import copyreg
import io
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from importlib import import_module
from inspect import Parameter, signature
from itertools import accumulate
from operator import is_, methodcaller
from textwrap import indent
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import GenericUnivariateSelect, SelectFromModel, SelectPercentile
from sklearn.model_selection import BaseCrossValidator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, TargetEncoder

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.construction import ClipNegatives
from prefect_tune.tasks.catalogue.estimators import (
    Polynomial,
    QuadraticDiscriminant,
    SelectByModel,
    SelectByPercentile,
    SelectByScore,
)
from prefect_tune.tasks.catalogue.gaps_and_categories import OutOfFoldEncoder
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.fitting.epochs import rounds_after, trained_part, training_of
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, step_seed
from prefect_tune.tasks.objective.predictions import NamedClasses, with_reader
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.path_run import PathRun, StepFailed, recipe_at
from prefect_tune.tasks.user_code import is_user_code, plain_module, portable_pickle

Value = TypeVar("Value")
Change = Callable[[Any], Any]

_PARENTS: Mapping[type[Any], type[Any]] = {
    OutOfFoldEncoder: TargetEncoder,
    Polynomial: PolynomialFeatures,
    QuadraticDiscriminant: QuadraticDiscriminantAnalysis,
    SelectByModel: SelectFromModel,
    SelectByPercentile: SelectPercentile,
    SelectByScore: GenericUnivariateSelect,
}
_FALLBACK = "only_column_"
"""Attribute of a fitted selection that keeps one column because it would have selected none."""


def plain(model: Value) -> Value:
    """Return a copy of a model with prefect-tune's classes replaced with scikit-learn's.

    The model may be fitted or unfitted. Estimators without a counterpart are not copied.

    >>> plain(Polynomial(degree=3))
    PolynomialFeatures(degree=3)
    """
    return _replaced(model, _as_parent, {})


def estimator_classes(model: Any) -> tuple[type[Any], ...]:
    """Return the classes of all estimators in a model, sorted by name.

    >>> [kind.__name__ for kind in estimator_classes([Polynomial(), ClipNegatives()])]
    ['ClipNegatives', 'Polynomial']
    """
    found: set[type[Any]] = set()

    def note(estimator: BaseEstimator) -> BaseEstimator:
        found.add(type(estimator))
        return estimator

    _replaced(model, note, {})
    return tuple(sorted(found, key=lambda kind: (kind.__name__, kind.__module__)))


def _as_parent(estimator: BaseEstimator) -> BaseEstimator:
    if isinstance(estimator, ClipNegatives) and vars(estimator).get("is_sparse_") is False:
        # for dense matrices, scikit-learn can do the same
        return FunctionTransformer(np.clip, kw_args={"a_min": 0, "a_max": None})
    parent = _PARENTS.get(type(estimator))
    if parent is None or hasattr(estimator, _FALLBACK):
        return estimator
    changed: BaseEstimator = object.__new__(parent)
    vars(changed).update(vars(estimator))
    return changed


def _replaced(value: Any, change: Change, done: dict[int, Any]) -> Any:
    """Return a value with all estimators changed, innermost first; shared objects stay shared."""
    if id(value) in done:
        return done[id(value)]
    made = value
    if isinstance(value, BaseEstimator | dict):
        held = value if isinstance(value, dict) else vars(value)
        changed = {name: _replaced(item, change, done) for name, item in held.items()}
        if any(changed[name] is not held[name] for name in held):
            made = copy(value)
            (made if isinstance(made, dict) else vars(made)).update(changed)
        if isinstance(made, BaseEstimator):
            made = change(made)
    elif type(value) in (list, tuple):
        items = [_replaced(item, change, done) for item in value]
        if not all(map(is_, items, value)):
            made = type(value)(items)
    done[id(value)] = made
    return made


OURS = "prefect_tune"
_READ_BY = "cloudpickle"
_REMEDY = "export to a file that ends in .pkl"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model as file content, and the model loaded from this content.

    Attributes:
        packages: Sorted packages imported on loading.
        trusted: Sorted types that must be trusted to load a skops file.
    """

    data: bytes
    model: Any
    packages: tuple[str, ...]
    trusted: tuple[str, ...] = ()

    @property
    def carries_code(self) -> bool:
        """Whether the file contains bytecode, which only this version of Python can load."""
        return _READ_BY in self.packages


def portable(model: Any) -> ModelFile:
    """Pickle a model with the code of prefect-tune and the user, and load the pickle."""
    data = portable_pickle(model, lambda name: is_ours(name) or is_user_code(name))
    reader = _Reader(data)
    read = reader.load()
    return ModelFile(data, read, tuple(sorted(reader.packages - sys.stdlib_module_names)))


_VERSIONS = """
import sys, warnings
from importlib.metadata import distributions
if {file.carries_code} and sys.version_info[:2] != {python}:
    raise ImportError("this file needs Python %d.%d; export the model with yours" % {python})
found = [(d.name, d.version, v) for n, v in {packages}.items() for d in distributions(name=n)]
changed = [f"{{name}} {{here}} instead of {{then}}" for name, here, then in found if here != then]
if changed:
    warnings.warn("this model may predict differently with " + ", ".join(changed))
"""
"""Program in plain text, readable by every version of Python."""


def checked_pickle(file: ModelFile, packages: Mapping[str, str]) -> bytes:
    """Return a model's pickle that compares versions on loading, before the model is read.

    If the pickle contains code, loading under a different minor version of Python raises
    ImportError. Loading with different versions of the `packages` gives a warning.
    """
    program = _VERSIONS.format(file=file, python=sys.version_info[:2], packages=packages).encode()
    call = b"cbuiltins\nexec\nX" + len(program).to_bytes(4, "little") + program + b"}\x86R0"
    return file.data[:2] + call + file.data[2:]  # the pickle begins with the protocol


def _cached(function: Callable[[Any], Any], name: str) -> cached_property[Any]:
    made = cached_property(function)
    made.attrname = name
    return made


# Before Python 3.12, a cached property contains a lock, which cannot be pickled by value.
copyreg.pickle(cached_property, lambda it: (_cached, (it.func, it.attrname)))


def is_ours(module: str) -> bool:
    """Return whether a module belongs to prefect-tune."""
    return module.partition(".")[0] == OURS


class _Reader(pickle.Unpickler):
    """Unpickler that collects the packages imported by the pickle or by code in the pickle."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.packages: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.packages.add(module.partition(".")[0])
        # Code that was pickled by value imports modules with this function.
        is_import = (module, name) == ("cloudpickle.cloudpickle", "subimport")
        return self._imported if is_import else super().find_class(module, name)

    def _imported(self, module: str) -> ModuleType:
        self.packages.add(module.partition(".")[0])
        return import_module(module)


def skops_file(model: Any) -> ModelFile:
    """Write a pipeline or an ensemble with skops; raise `BadInput` if skops refuses the model."""
    try:
        import skops.io  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise BadInput(
            "skops' format needs skops, which is not installed",
            remedy=f"pip install skops, or {_REMEDY}",
        ) from error
    try:
        data: bytes = skops.io.dumps(model)
        trusted = tuple(sorted(skops.io.get_untrusted_types(data=data)))
        read = skops.io.loads(data, trusted=trusted)
    except Exception as error:  # any error, depending on objects in the model
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise BadInput(f"skops' format cannot store the model: {reason}", remedy=_REMEDY) from error
    if users := [kind.rpartition(".")[2] for kind in trusted if is_user_code(kind)]:
        raise BadInput(
            f"skops' format cannot store {users[0]}: its class is defined in your own file, which "
            "cannot be imported elsewhere",
            remedy=_REMEDY,
        )
    named = {kind.partition(".")[0] for kind in trusted} - {"builtins"}
    packages = tuple(sorted({"numpy", "scipy", "sklearn", "skops", *named}))
    return ModelFile(data, read, packages, trusted)


_WIDTH = 72
"""Maximum number of characters of a bracketed list on one line, excluding text before the
bracket."""
_ALIASES: Mapping[str, str] = {"numpy": "np"}


@dataclass(frozen=True, slots=True)
class TrialPipeline:
    """The unfitted pipeline of a trial, with steps named as in the space.

    `weighted` is the argument of `fit` for row weights by class frequency; empty if weights are not
    used. `remarks` are sentences on properties that the pipeline does not show.
    """

    pipeline: Pipeline
    weighted: str
    remarks: tuple[str, ...]


def trial_pipeline(
    context: StudyContext,
    query: Query,
    *,
    failed_step: str | None = None,
    is_final: bool = False,
) -> TrialPipeline:
    """Build the pipeline of a trial for the first fold or, if `is_final`, for the final model.

    If the model trains in epochs, the pipeline trains to the epoch of the query, or to the last
    epoch if None. For the final model, `query` is the query of the refit.

    If the store has no cached step results, the input of the model is unknown, so the steps before
    the model are rerun. After a failure, only the steps before `failed_step` are rerun, or none if
    `failed_step` is empty because the failed step is unknown. Steps after the failed step are built
    as if that step had returned its input unchanged.

    Raises:
        StoreLost: If the study's data are lost.
    """
    remarks, steps, weighted = [], [], ""
    fold = REFIT if is_final else 0
    path_run = PathRun(context, query, [fold], holds_out=not is_final)
    names = [step.name for step, _, _ in path_run.steps]
    last = len(names) - 1
    if failed_step is not None:
        last = names.index(failed_step) if failed_step in names else 0
    if path_run.node_at(fold, last) is None:
        uncached = replace(context, use_cache=False)
        path_run = PathRun(uncached, query, [fold], holds_out=not is_final)
        with suppress(StepFailed):
            for position in range(last):
                path_run.run(position)
    summary = MatrixSummary(0, 0, "frame")
    for position, (step, algorithm, _) in enumerate(path_run.steps):
        if algorithm.is_passthrough:
            continue
        node = path_run.node_at(fold, position)
        if node is not None and node.parent.summary is not None:
            summary = node.summary or node.parent.summary
            how, seed = node.recipe, node.seed
        else:
            how = recipe_at(path_run.steps, position, summary, path_run.dataset)
            seed = step_seed(context.problem.seed, step.name, fold)
        estimator = build(how, seed)
        training = training_of(how) if context.epochs else None
        if training is not None and context.epochs:
            epoch = query.epochs or context.epochs
            model = trained_part(how.model_in(estimator))
            model.set_params(**training.settings)
            if training.rounds:
                total = int(model.get_params()[training.rounds])
                rounds = rounds_after(epoch, context.epochs, total)
                model.set_params(**{training.rounds: rounds})
            else:
                model.set_params(max_iter=epoch)
                remarks.append(f"The study trained {step.name!r} in {epoch} passes over the rows.")
        if how.weight_argument:
            weighted = f"{step.name}__{how.weight_argument}"
        steps.append((step.name, estimator))
    if failed_step:
        remarks.append(f"The trial failed in {failed_step!r}; later steps are built for its input.")
    return TrialPipeline(Pipeline(steps), weighted, tuple(remarks))


def code_of(
    trial: TrialPipeline,
    heading: Sequence[str],
    user_file: str = "",
    dataset: Dataset | None = None,
) -> str:
    """Return Python code that builds and fits a trial's pipeline, named `pipeline`.

    The docstring of the code starts with `heading`. If the study's `dataset` is given, the pipeline
    includes the reader of rows in the file's form. Raises `BadInput` if a value cannot be written
    as code.
    """
    writer = _Writer(user_file)
    pipeline = trial.pipeline
    if dataset is not None and dataset.row_reader is not None:
        pipeline = with_reader(pipeline, dataset)
    built = writer.text(pipeline)
    fit = "pipeline.fit(X, y)"
    if trial.weighted:
        weigh = writer.imported("sklearn.utils.class_weight", "compute_sample_weight")
        outer = "model__" if isinstance(pipeline[-1], NamedClasses) else ""
        weights = f'{{{_quoted(outer + trial.weighted)}: {weigh}("balanced", y)}}'
        fit = f"pipeline.fit(X, y, **{weights})"
    lines = [*heading, *trial.remarks, f"Made with scikit-learn {sklearn.__version__}."]
    about = "\n".join(lines).replace("\\", "\\\\").replace('"', "'")
    return f'"""{about}\n"""\n\n{writer.imports()}\n\npipeline = {built}\n{fit}\n'


class _Writer:
    """Writes values as code and collects imports; `user_file` may define estimators."""

    def __init__(self, user_file: str) -> None:
        self._user_file, self._is_used = user_file, False
        self._modules: dict[str, str] = {}
        self._whole: set[str] = set()

    def text(self, value: Any, form: str | None = None) -> str:
        """Return the code of a value, without default arguments; may raise `BadInput`."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not np.isfinite(value):
            return self.imported("numpy", "nan") if np.isnan(value) else f'float("{value}")'
        if isinstance(value, str):
            return _quoted(value)
        if value is None or isinstance(value, bool | int | float):
            return repr(value)
        if type(value) in (list, tuple):
            opening, closing = "[]" if isinstance(value, list) else "()"
            closing = ",)" if isinstance(value, tuple) and len(value) == 1 else closing
            return _bracketed(opening, [self.text(v, form) for v in value], closing)
        if isinstance(value, dict):
            items = [f"{self.text(k)}: {self.text(v)}" for k, v in value.items()]
            return _bracketed("{", items, "}")
        return self._object(value, form)

    def _object(self, value: Any, form: str | None) -> str:
        if isinstance(value, methodcaller):
            _, names = cast("tuple[Any, tuple[str, ...]]", value.__reduce__())
            return _bracketed(f"{self._name(methodcaller)}(", [*map(self.text, names)], ")")
        if isinstance(value, make_column_selector | BaseCrossValidator) or is_dataclass(value):
            return self._call(value, vars(value), form)
        if hasattr(value, "get_params") and not isinstance(value, type):
            own = getattr(value, "_sklearn_output_config", {}).get("transform")
            made = self._call(value, value.get_params(deep=False), form or own)
            if own is None or own == form:
                return made
            return f"{made}.set_output(transform={_quoted(own)})"
        if callable(value) and hasattr(value, "__name__"):
            return self._name(value)
        raise BadInput(f"{value!r}, a value of an estimator, cannot be written as code")

    def imported(self, module: str, name: str) -> str:
        if is_user_code(module) and not (module := plain_module(module)):
            self._is_used = True
            return f"users[{_quoted(name)}]"
        if module in _ALIASES:
            self._whole.add(module)
            return f"{_ALIASES[module]}.{name}"
        if self._modules.setdefault(name, module) == module:
            return name
        self._whole.add(module)  # an object of another module has the same name
        return f"{module}.{name}"

    def imports(self) -> str:
        by_module = defaultdict[str, list[str]](list)
        for name, module in sorted(self._modules.items()):
            by_module[module].append(name)
        lines = [
            f"import {m} as {_ALIASES[m]}" if m in _ALIASES else f"import {m}"
            for m in sorted(self._whole)
        ]
        for module, names in sorted(by_module.items()):
            lines.append(f"from {module} import {', '.join(names)}")
        if self._is_used:
            path = _quoted(self._user_file)
            lines = ["import runpy", *lines, "", f"users = runpy.run_path({path})"]
        return "\n".join(lines)

    def _call(self, value: Any, values: Mapping[str, Any], form: str | None) -> str:
        """Return a constructor call with only the arguments that differ from the defaults."""
        accepted = signature(type(value)).parameters
        unknown, items = Parameter("unknown", Parameter.KEYWORD_ONLY, default=None), []
        for name in dict.fromkeys((*(n for n in accepted if n in values), *values)):
            known = accepted.get(name, unknown)
            if not _is_same(values[name], known.default):
                is_first = known.default is Parameter.empty
                is_first &= known.kind is Parameter.POSITIONAL_OR_KEYWORD
                items.append(("" if is_first else f"{name}=") + self.text(values[name], form))
        return _bracketed(f"{self._name(type(value))}(", items, ")")

    def _name(self, value: Any) -> str:
        """Import a class or function from the shortest module path; `BadInput` if impossible."""
        module, name = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
        parts = ["numpy"] if isinstance(value, np.ufunc) else module.split(".")
        for candidate in accumulate(parts, "{}.{}".format):
            with suppress(ImportError):
                if getattr(import_module(candidate), name, None) is value:
                    return self.imported(candidate, name)
        raise BadInput(f"{name or value!r} cannot be imported from {module or 'any module'}")


def _is_same(value: Any, default: Any) -> bool:
    is_plain = isinstance(value, bool | int | float | str | tuple)
    is_equal = is_plain and type(value) is type(default) and repr(value) == repr(default)
    return value is default or is_equal


def _quoted(text: str) -> str:
    written = repr(text)
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in written else written


def _bracketed(opening: str, items: Sequence[str], closing: str) -> str:
    """Return items in brackets, on one line if short enough, otherwise one per line."""
    line = f"{opening}{', '.join(items)}{closing}"
    if not items or ("\n" not in line and len(line) <= _WIDTH):
        return line
    inner = indent("".join(f"{item},\n" for item in items), "    ")
    return f"{opening}\n{inner}{closing.lstrip(',')}"
