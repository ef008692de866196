"""Model card of an exported model: Markdown with a header for Hugging Face and skops.

This module gathers typed facts; the template `model_card.md.j2` has the wording and escapes each
value. Import this module only to write a card.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_fscore_support

from prefect_tune.flows.markdown import block, code, escaped
from prefect_tune.flows.reading.commands import run_command
from prefect_tune.flows.reading.opened_study import OpenedStudy, open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.results.exported import Exported
from prefect_tune.flows.results.predict import final_model, is_balanced
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted, format_seconds, number_text
from prefect_tune.optimizers.space.wording import values_text
from prefect_tune.storage.masking import masked
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.row_reader import LearnedColumn, RowReader
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.fitting.final_scoring import predicted
from prefect_tune.tasks.objective.two_classes import LEVEL, Auroc, auroc_with_interval

_TAG = "prefect-tune"
_HEADER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_USE = re.compile(r"^## Intended use\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_UNWRITTEN, _EARLIER_UNWRITTEN = (
    f"*To be written by {who}: for what and for whom, and for what not. The search cannot know. "
    "Exporting again keeps this section.*"
    for who in ("the people who put the model to use", "whoever puts the model to use")
)
_QUARTERS = 4


@dataclass(frozen=True, slots=True)
class CardMember:
    """A pipeline of a model; `quantities` were measured in its trial."""

    trial: int
    weight: float
    configuration: Mapping[str, Any]
    quantities: Mapping[str, float]
    is_balanced: bool


@dataclass(frozen=True, slots=True)
class CardColumn:
    """A column the model takes: share of gaps, and categories or the range of numbers."""

    name: str
    kind: str
    gaps: float
    categories: tuple[str, ...] | None = None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ClassScores:
    """Scores of a class in percent; NaN if there are no rows."""

    label: Any
    rows: int
    recall: float
    precision: float


@dataclass(frozen=True, slots=True)
class QuarterErrors:
    """Errors in a quarter of the true values; with a mean above 0, predictions are too high."""

    low: float
    high: float
    rows: int
    mean_absolute: float
    mean: float


@dataclass(frozen=True, slots=True)
class QualityOnTest:
    """Quality of the predictions on the test rows.

    Attributes:
        wrong: Wrong predictions in percent, and their 95 % interval (Wilson).
        auroc: Area under the ROC curve; None without scores of two classes.
        quarters: Errors by quarter of the target, smallest values first.
    """

    wrong: tuple[float, float, float] | None = None
    auroc: Auroc | None = None
    classes: tuple[ClassScores, ...] = ()
    quarters: tuple[QuarterErrors, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """Facts of a model card.

    Attributes:
        n_skipped: Rows that neither train nor test, in splits by time.
        best_loss: Cross-validated loss of `best_trial`.
        fidelity: Fidelity of that loss; empty if the evaluation was full.
        held_out_loss: Loss of an ensemble on the held-out rows it was selected on.
        single_best_test_loss: Loss of the best single trial on the test rows.
        versions: Versions of the packages used in the search, by name; empty if unknown.
        uselessness: Sentence that calls the model useless; empty for any other model.
    """

    plan: StudyPlan
    exported: Exported
    dataset: Dataset
    n_test: int
    members: tuple[CardMember, ...]
    best_trial: int | None
    best_loss: float | None
    fidelity: str
    held_out_loss: float | None
    single_best_test_loss: float | None
    quality: QualityOnTest
    n_configurations: int
    n_trials: int
    n_failed: int
    seconds: float
    versions: Mapping[str, str]
    n_skipped: int = 0
    uselessness: str = ""

    @property
    def violated(self) -> list[str]:
        """Constraints that a member violates, because they were added after its promotion."""
        return [
            bounded.constraint.name
            for bounded in self.plan.options.bounds
            if any(bounded.constraint.excess(member.quantities) > 0 for member in self.members)
        ]

    @property
    def columns(self) -> list[CardColumn]:
        """Columns of a table; empty for events."""
        X, reader = self.dataset.X, self.dataset.row_reader
        if not isinstance(X, pd.DataFrame) or reader is None:
            return []
        of_matrix = not self.exported.reads_rows
        columns = RowReader.of(X).columns if of_matrix else reader.columns
        return [_column(column, X[column.features[0]]) for column in columns]


def card_facts(store: ArtifactStore, exported: Exported) -> CardFacts:
    """Return the facts of an exported model; `RecordDamaged` if the study's data is lost."""
    study, view = open_study(store, exported.study), read_study(store, exported.study)
    plan = study.plan
    dataset = load_dataset(store, plan.problem.dataset)
    split = load_split(store, plan.problem.split)
    test = split.held_out(REFIT)
    best = view.model_trial or view.incumbent
    held_out = view.ensemble.losses if view.ensemble else ()
    model, _ = final_model(store, exported.study, exported.record)
    return CardFacts(
        plan=plan,
        exported=exported,
        dataset=dataset,
        n_test=len(test),
        n_skipped=len(dataset) - len(test) - split.n_training(REFIT),
        members=_members(study, exported),
        best_trial=best.trial if best else None,
        best_loss=best.loss if best else None,
        fidelity=best.fidelity if best else "",
        held_out_loss=held_out[-1] if held_out and len(exported.weights) > 1 else None,
        single_best_test_loss=view.single_best_test_loss,
        quality=_quality(model, dataset, test, plan) if len(test) else QualityOnTest(),
        n_configurations=view.n_begun,
        n_trials=view.n_trials,
        n_failed=view.n_failed,
        seconds=study.row.seconds,
        versions=study.facts.versions,
        uselessness="" if exported.record else view.uselessness,
    )


def _members(study: OpenedStudy, exported: Exported) -> tuple[CardMember, ...]:
    weights, space = exported.weights, study.plan.problem.find_space()
    trials = {number: study.trial(number) for number in weights}
    return tuple(
        CardMember(n, weights[n], made, trials[n].quantities, is_balanced(made, space))
        for n in weights
        if (made := trials[n].configuration)
    )


def _column(learned: LearnedColumn, column: pd.Series) -> CardColumn:
    gaps, kind = float(column.isna().mean()), _KINDS.get(learned.kind, learned.kind)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return CardColumn(learned.name, kind, gaps, tuple(map(str, column.cat.categories)))
    has_ends = gaps < 1 and learned.kind in {"number", "duration"}
    return CardColumn(learned.name, kind, gaps, ends=_ends(column) if has_ends else None)


def _ends(column: pd.Series) -> tuple[float, float]:
    return float(column.min()), float(column.max())


_KINDS = {"category": "category (text)", "duration": "duration (seconds)", "text": "free text"}


def _quality(model: Any, data: Dataset, rows: NDArray[np.intp], plan: StudyPlan) -> QualityOnTest:
    y, positive = data.y[rows], plan.problem.find_metric().positive
    try:
        predictions = predicted(model, data, rows)
    except Exception:  # the test loss is undefined for the same reason
        return QualityOnTest()
    if not data.classes:
        return QualityOnTest(quarters=_by_quarter(y, predictions.label))
    auroc, n_wrong = None, int(np.sum(predictions.label != y))
    if len(data.classes) == 2 and predictions.score is not None:
        groups = None if data.groups is None else data.groups[rows]
        score = predictions.score[:, positive]
        auroc = auroc_with_interval(y == positive, score, groups, plan.seed)
    ends = binomtest(n_wrong, len(y)).proportion_ci(LEVEL, method="wilson")
    wrong = (100 * n_wrong / len(y), 100 * float(ends.low), 100 * float(ends.high))
    return QualityOnTest(wrong, auroc, _by_class(y, predictions.label, data.classes))


def _by_class(
    y: NDArray[Any], label: NDArray[Any], classes: Sequence[Any]
) -> tuple[ClassScores, ...]:
    """Return the scores of each class; `y` and `label` are class positions.

    >>> _by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), ("no", "yes"))[0]
    ClassScores(label='no', rows=2, recall=50.0, precision=100.0)
    """
    positions = range(len(classes))
    found = precision_recall_fscore_support(y, label, labels=positions, zero_division=np.nan)
    each = zip(classes, *(part.tolist() for part in found), strict=True)
    return tuple(ClassScores(c, n, 100 * recall, 100 * own) for c, own, recall, _, n in each)


def _by_quarter(y: NDArray[Any], label: NDArray[Any]) -> tuple[QuarterErrors, ...]:
    """Return the errors in each quarter of the true values `y`.

    >>> _by_quarter(np.arange(8.0), np.full(8, 3.0))[0]
    QuarterErrors(low=0.0, high=1.0, rows=2, mean_absolute=2.5, mean=2.5)
    """
    order = np.argsort(y, kind="stable")
    parts = [(y[i], label[i] - y[i]) for i in np.array_split(order, _QUARTERS) if len(i)]
    return tuple(
        QuarterErrors(
            float(y.min()), float(y.max()), len(y), float(np.abs(e).mean()), float(e.mean())
        )
        for y, e in parts
    )


def model_card(facts: CardFacts, file: str, use: str = "") -> str:
    """Return the model card of a file; `use` is the intended use, if people wrote one."""
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
        "tags": ["sklearn", _TAG, *skops, task],
        "model_format": facts.exported.format,
        "model_file": file,
    }
    if dataset.kind != "events":
        header["pipeline_tag"] = task
    if loss is not None:
        metric = facts.plan.problem.find_metric()
        known_as = (metric.declared.score or metric.name).removeprefix("neg_")
        value = loss if metric.declared.is_error else metric.score(loss)
        result = {
            "task": {"type": task},
            "dataset": {"type": dataset.kind, "name": facts.plan.data_name, "split": "test"},
            "metrics": [{"type": known_as, "value": value}],
        }
        header["model-index"] = [{"name": facts.exported.study, "results": [result]}]
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True).rstrip("\n")


def written_use(path: Path, study: str) -> str:
    """Return the intended use that people wrote into the existing card, if any.

    Raises `BadInput` if the file is not a card, or is the edited card of another study.
    """
    try:
        card = path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadInput(f"the model card {path} cannot be read: {error}") from error
    found = _USE.search(card)
    use = found[1].strip() if found else ""
    if not _is_model_card(card):
        reason = "is not a model card of prefect-tune, and the model card would replace it"
    elif use in {"", _UNWRITTEN, _EARLIER_UNWRITTEN}:
        return ""
    elif f"# Model card: {escaped(study)}" in card.splitlines():
        return use
    else:
        reason = "is the model card of another study and has a written intended use"
    remedy = "give the model another name, or add --no-card"
    raise BadInput(f"{path} {reason}", remedy=remedy)


def _is_model_card(text: str) -> bool:
    found = _HEADER.match(text)
    try:
        header = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return False
    tags = header.get("tags") if isinstance(header, dict) else None
    return isinstance(tags, list) and _TAG in tags


def _codes(values: Sequence[object], most: int | None = None) -> Markup:
    """Return values as code; if there are more than `most`, return only their number."""
    more = len(values) - (most or len(values))
    listed = ", ".join(map(code, values[:most])) + (f" and {more} more" if more > 0 else "")
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
    "number": number_text,
    "loss": lambda metric: LossWords(metric).name + LossWords(metric).unit,
    "values": values_text,
}
