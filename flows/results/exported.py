"""Exports the final model of a study as a pickle or a skops file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import packages_distributions, version
from platform import python_version
from typing import Any

import numpy as np

from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.results.predict import final_model
from prefect_tune.optimizers.documents import json_values
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final.export import (
    checked_pickle,
    estimator_classes,
    is_ours,
    plain,
    portable,
    skops_file,
)
from prefect_tune.tasks.objective.predictions import with_reader
from prefect_tune.tasks.user_code import is_user_code

_MOST_ROWS = 1_000
"""Maximum number of rows on which the reloaded model is checked."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A final model that was exported as a file.

    Attributes:
        about: Description stored with the model: trials, weights, data and test loss.
        packages: Versions of the packages needed to load and use the model, by name.
        own_classes: Classes in the model that belong to prefect-tune or the user.
        carries_code: Whether the file includes the code of `own_classes`, for this version of
            Python.
        predicts_events: Whether the model takes patient events, which only prefect-tune can read.
        trusted: Types that the reader must trust to load the skops file.
        rows_checked: Number of rows on which the reloaded model gave the same predictions.
        reads_rows: Whether the model takes table rows without preparation.
        record: Record id of the model, if the model is the copy of a champion.
    """

    study: str
    metric: str
    about: Mapping[str, Any]
    format: str
    data: bytes
    model: Any
    packages: Mapping[str, str]
    own_classes: tuple[str, ...] = ()
    carries_code: bool = False
    predicts_events: bool = False
    trusted: tuple[str, ...] = ()
    rows_checked: int = 0
    reads_rows: bool = False
    record: str | None = None

    @property
    def weights(self) -> dict[int, float]:
        """Weight of each trial in the model, by trial number."""
        return {member["trial"]: member["weight"] for member in self.about["members"]}

    @property
    def test_loss(self) -> float | None:
        """Loss on the test rows; None if there are no test rows or the loss is undefined."""
        return self.about["test_loss"]

    @property
    def test_undefined(self) -> str | None:
        """Reason why the loss on the test rows is undefined; None if the loss is defined."""
        return self.about["test_loss_undefined"]

    def loading_code(self, file: str) -> list[str]:
        """Return the lines of Python code that load the model from a file."""
        if self.format == "skops":
            trusted = [f"    {json.dumps(kind)}," for kind in self.trusted]
            load = f"model = skops.io.load({json.dumps(file)}, trusted=trusted)"
            return ["import skops.io", "", "trusted = [", *trusted, "]", load]
        opened = f'with open({json.dumps(file)}, "rb") as file:'
        return ["import pickle", "", opened, "    model = pickle.load(file)"]

    def to_json(self) -> dict[str, Any]:
        """Return all fields except the file and the model as JSON values."""
        names = (
            "format", "packages", "own_classes", "carries_code", "predicts_events", "trusted",
            "rows_checked", "reads_rows",
        )  # fmt: skip
        values = json_values({name: getattr(self, name) for name in names})
        return {**self.about, "python": python_version(), **values}


def exported_model(
    store: ArtifactStore, study: str, *, of_matrix: bool = False, record: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the final model of a study, in the form that `export` writes, and its description.

    `record` has the meaning described in `final_model`. Raises `UnknownName` if the study does not
    exist, `BadInput` if the study has no model, and `RecordDamaged` if the model's record is
    damaged.
    """
    model, about = final_model(store, study, record)
    dataset = load_dataset(store, about["dataset"])
    of_matrix |= dataset.kind == "events"
    return with_reader(plain(model), dataset, of_matrix=of_matrix), about


def export(
    store: ArtifactStore,
    study: str,
    file_format: str,
    *,
    of_matrix: bool = False,
    record: str | None = None,
) -> Exported:
    """Export a study's final model as `pickle` or `skops`, and check the reloaded model.

    If `of_matrix` is true, the model is exported without the first step, which reads table rows;
    the exported model then takes the output of the first step. Raises the errors of
    `exported_model`, `BadInput` if skops does not support the model, and `RuntimeError` if the
    reloaded model predicts differently.
    """
    model, about = final_model(store, study, record)
    problem = open_study(store, study).plan.problem
    dataset = load_dataset(store, problem.dataset)
    split = load_split(store, problem.split)
    test = split.held_out(REFIT)
    is_testable = len(test) and not about["test_loss_undefined"]
    rows = test if is_testable else split.held_out(0)
    checked = dataset.rows(rows[:_MOST_ROWS])
    reads_rows = dataset.kind == "table" and not of_matrix
    finish = partial(with_reader, dataset=dataset, of_matrix=not reads_rows)
    expected = list(_predicted(finish(model), checked))
    for candidate in map(finish, (plain(model), model)):
        file = skops_file(candidate) if file_format == "skops" else portable(candidate)
        read_back = list(_predicted(file.model, checked))
        if len(read_back) == len(expected) and all(map(np.array_equal, expected, read_back)):
            known, imported = packages_distributions(), {*file.packages, "pandas"}
            needed = sorted(names[0] for one in imported if (names := known.get(one)))
            packages = {name: version(name) for name in needed}
            return Exported(
                study=study,
                metric=problem.metric,
                about=about,
                format=file_format,
                data=checked_pickle(file, packages) if file_format == "pickle" else file.data,
                model=file.model,
                packages=packages,
                own_classes=tuple(
                    kind.__name__
                    for kind in estimator_classes(candidate)
                    if is_ours(kind.__module__) or is_user_code(kind.__module__)
                ),
                carries_code=file.carries_code,
                predicts_events=dataset.kind == "events",
                trusted=file.trusted,
                rows_checked=len(checked),
                reads_rows=reads_rows,
                record=record,
            )
    raise RuntimeError(f"the model of study {study!r} predicts differently after reloading")


def _predicted(model: Any, rows: Any) -> Iterator[Any]:
    yield np.asarray(model.predict(rows))
    if hasattr(model, "predict_proba"):
        yield np.asarray(model.predict_proba(rows))
