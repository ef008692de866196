"""Model card of an exported model: Markdown with a header for Hugging Face and skops.

This module collects the facts. The template `model_card.md.j2` contains the text and escapes all
values. The module is slow to import, so import it only to write a card.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from prefect_tune.flows.reading.commands import run_command
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import StudyView, read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.results.exported import Exported
from prefect_tune.flows.results.predict import final_model, is_balanced
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.wording.text import (
    block,
    code,
    counted,
    escaped,
    format_seconds,
)
from prefect_tune.optimizers.documents import values_text
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.row_reader import RowReader
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final.figures import FEWEST_ROWS, described_columns, named_classes
from prefect_tune.tasks.final.quality import LossInterval, class_quality, loss_with_interval
from prefect_tune.tasks.final.refit import predicted
from prefect_tune.tasks.objective.metric import metric_named

_USE = re.compile(r"^## Intended use\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_UNWRITTEN = (
    "*To be written by the people who use the model: what the model is for, who it is for, and "
    "what it must not be used for. The search cannot know. Exporting again keeps this section.*"
)


@dataclass(frozen=True, slots=True)
class QualityOnTest:
    """Quality of the model's predictions on the test rows.

    Attributes:
        wrong: Share of wrong predictions in percent.
        auroc: 1 - area under the ROC curve; None unless there are two classes with scores.
        classes: Table with the rows, recall and precision of each class, in percent.
    """

    wrong: LossInterval | None = None
    auroc: LossInterval | None = None
    classes: pd.DataFrame | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """Facts that a model card contains.

    Attributes:
        n_training: Number of rows used for training in cross-validation.
        members: Trials that are members of the model.
        balanced: Trials that were trained with balanced class weights, by trial number.
        versions: Versions of the packages that the search used, by name; empty if unknown.
        fewest: Minimum number of rows that must share a value for the card to show the value.
    """

    plan: StudyPlan
    view: StudyView
    exported: Exported
    dataset: Dataset
    n_training: int
    n_test: int
    members: Sequence[TrialView]
    balanced: Sequence[int]
    quality: QualityOnTest
    versions: Mapping[str, str]
    fewest: int

    @property
    def named_classes(self) -> Sequence[str]:
        """The classes that may be named, in the order of the data."""
        n_classes = len(self.dataset.classes)
        named = named_classes(self.dataset.y, n_classes, self.fewest)
        return [self.dataset.classes[k] for k in sorted(named)]

    @property
    def columns(self) -> pd.DataFrame:
        """Table of columns: name, kind, share of missing values, and values; empty for events."""
        X, reader = self.dataset.X, self.dataset.row_reader
        if not isinstance(X, pd.DataFrame) or reader is None:
            return pd.DataFrame()
        columns = reader.columns if self.exported.reads_rows else RowReader.of(X).columns
        found = described_columns(X, columns, self.fewest)
        return found.assign(kind=found["kind"].replace(_KINDS))


_KINDS = {"category": "category (string)", "duration": "duration (seconds)", "text": "free text"}


def card_facts(store: ArtifactStore, exported: Exported, *, rare_values: bool = False) -> CardFacts:
    """Return facts of an exported model; raise `RecordDamaged` if the study's data is lost."""
    study = open_study(store, exported.study)
    problem = study.plan.problem
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    test, space = split.held_out(REFIT), problem.find_space()
    model, _ = final_model(store, study.name, exported.record)
    members = [*map(study.trial, exported.weights)]
    is_judged = bool(len(test) and dataset.classes)
    return CardFacts(
        plan=study.plan,
        view=read_study(store, study.name),
        exported=exported,
        dataset=dataset,
        n_training=split.n_training(REFIT),
        n_test=len(test),
        members=members,
        balanced=[t.number for t in members if is_balanced(t.configuration, space)],
        quality=_quality(model, dataset, test, study.plan) if is_judged else QualityOnTest(),
        versions=study.facts.versions,
        fewest=1 if rare_values else FEWEST_ROWS,
    )


def _quality(model: Any, data: Dataset, rows: NDArray[np.intp], plan: StudyPlan) -> QualityOnTest:
    y, positive = data.y[rows], plan.problem.find_metric().positive
    try:
        predictions = predicted(model, data, rows)
    except Exception:  # the test loss is then also undefined
        return QualityOnTest()
    auroc, n = None, {"n_classes": len(data.classes), "seed": plan.seed}
    if len(data.classes) == 2 and predictions.score is not None:
        groups = None if data.groups is None else data.groups[rows]
        auroc = loss_with_interval(metric_named("auroc", positive), y, predictions, groups, **n)
    wrong = loss_with_interval(metric_named("error"), y, predictions, None, **n)
    return QualityOnTest(wrong, auroc, class_quality(y, predictions.label, data.classes))


def model_card(facts: CardFacts, file: str, use: str = "") -> str:
    """Return the card of a model file; `use` is a section on intended use that a person wrote."""
    command = shlex.join(map(masked, run_command(facts.plan, facts.exported.study)))
    text = files("prefect_tune.flows.results").joinpath("model_card.md.j2").read_text("utf-8")
    return _ENVIRONMENT.from_string(text).render(
        facts=facts,
        version=version("prefect-tune"),
        python=python_version(),
        header=Markup(_header(facts, file)),  # noqa: S704 - YAML
        use=Markup(use or _UNWRITTEN),  # noqa: S704 - people's own Markdown
        loading=Markup("\n".join(facts.exported.loading_code(file))),  # noqa: S704 - Python
        command=Markup("\n".join(block([command], "sh"))),  # noqa: S704 - escaped by `block`
    )


def _header(facts: CardFacts, file: str) -> str:
    dataset, loss = facts.dataset, facts.exported.test_loss
    task = f"tabular-{'classification' if dataset.classes else 'regression'}"
    skops = ["skops"] if file.endswith(".skops") else []
    header: dict[str, Any] = {
        "library_name": "sklearn",
        "tags": ["sklearn", "prefect-tune", *skops, task],
        "model_format": facts.exported.format,
        "model_file": file,
    }
    if dataset.kind != "events":
        header["pipeline_tag"] = task
    if loss is not None:
        metric = facts.plan.problem.find_metric()
        known_as = (metric.declared.score or metric.name).removeprefix("neg_")
        value = loss if metric.declared.best_score == 0 else metric.score(loss)
        result = {
            "task": {"type": task},
            "dataset": {"type": dataset.kind, "name": facts.plan.data_name, "split": "test"},
            "metrics": [{"type": known_as, "value": value}],
        }
        header["model-index"] = [{"name": facts.exported.study, "results": [result]}]
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True).rstrip("\n")


def written_use(path: Path) -> str:
    """Return the section on intended use from an existing card, if a person wrote the section.

    Raises `BadInput` if the file is not a model card.
    """
    if not path.exists():
        return ""
    card = path.read_text("utf-8", "replace")
    found = _USE.search(card)
    if found is None or "\n# Model card: " not in card:
        reason = f"{path} is not a model card of prefect-tune; the new card would overwrite it"
        raise BadInput(reason, remedy="give the model another name, or add --no-card")
    use = found[1].strip()
    return "" if use == _UNWRITTEN else use


def _codes(values: Collection[object], n_shown: int | None = None) -> Markup:
    """Return values as inline code. Values after the first `n_shown` are only counted."""
    more = len(values) - (n_shown or len(values))
    shown = ", ".join(map(code, islice(values, n_shown)))
    listed = f"{shown} and {more} more" if more > 0 else shown
    return Markup(listed)  # noqa: S704 - escaped by `code`


_ENVIRONMENT = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: value if isinstance(value, Markup) else Markup(escaped(value)),  # noqa: S704
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters |= {
    "as": lambda value, form: "" if value is None or value != value else format(value, form),  # noqa: PLR0124 - NaN
    "code": lambda value: Markup(code(value)),  # noqa: S704 - escaped by `code`
    "codes": _codes,
    "counted": counted,
    "duration": format_seconds,
    "values": values_text,
}
