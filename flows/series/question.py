"""The question of a series: what all its studies have in common, fixed by the first study."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.converter import json_values
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset

_FIXED = ("target", "metric", "positive", "group", "key", "time", "test_size")
"""Options with the same value in all studies; a run that omits one has the value of the series."""
_FREE = frozenset(
    {"data", "labels", "test", "trials", "budget", "promotion", "margin", "series", "no_cache"}
)
"""Other options whose change does not make another study: data is compared by its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The common part of all studies of a series.

    Attributes:
        kind: Kind of the data: `table` or `events`.
        predicts: Kind of the target.
        has_test: Whether test rows come from a file of their own.
        looks_forward: Whether test rows are the newest ones.
        identity: Columns of the first study that identify a row, if no group or key does.
    """

    kind: str
    predicts: Literal["classes", "numbers"]
    metric: str
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    key: tuple[str, ...] | None = None
    time: str | None = None
    test_size: float | None = None
    has_test: bool = False
    looks_forward: bool = False
    identity: tuple[str, ...] = ()

    @classmethod
    def of_study(cls, plan: StudyPlan, dataset: Dataset) -> Self:
        """Return the question of the first study of a series."""
        options = plan.options
        asks_positive = options.positive is not None or _asks_positive(plan, dataset)
        positive = str(dataset.classes[plan.problem.positive]) if asks_positive else None
        return cls(
            kind=dataset.kind,
            predicts=dataset.target,
            metric=plan.metric,
            target=options.target,
            positive=positive,
            group=options.group,
            key=options.key,
            time=options.time,
            test_size=options.test_size,
            has_test=options.test is not None,
            looks_forward=plan.looks_forward,
            identity=plan.fixed_test or (),
        )

    def completed(self, series: str, options: StudyOptions) -> StudyOptions:
        """Return options with the fixed values; raise `BadInput` if they ask another question."""
        for name in _FIXED:
            given, known = getattr(options, name), getattr(self, name)
            if given is not None and given != known:
                raise _another(series, OPTIONS[name].flag, given, known)
        if self.has_test != (options.test is not None):
            given, known = ("a file", "none") if options.test else ("none", "a file")
            raise _another(series, "--test", given, known)
        if options.gap is not None and not self.looks_forward:
            raise _another(series, "--gap", f"of {options.gap:g} s", None)
        gap = options.gap
        if gap is None and self.looks_forward and self.time is None:
            gap = 0.0  # of events, where only a gap tells that folds look forward
        return replace(options, gap=gap, **{name: getattr(self, name) for name in _FIXED})

    def check_data(self, series: str, dataset: Dataset) -> None:
        """Raise `BadInput` if the series has data of another kind."""
        for what, given, known in (
            ("data", dataset.kind, self.kind),
            ("target", dataset.target, self.predicts),
        ):
            if given != known:
                raise BadInput(
                    f"series {series!r} has {what} of kind {known}, and this {what} is {given}",
                    remedy="choose another --series name",
                )


def _another(series: str, flag: str, given: object, known: object) -> BadInput:
    shown = "none" if known is None else known
    return BadInput(
        f"{flag} {given} asks another question than series {series!r}, which has {flag} {shown}",
        remedy="omit the option, or choose another --series name",
    )


def _asks_positive(plan: StudyPlan, dataset: Dataset) -> bool:
    is_bounded = any(b.quantity.name == "false_positive_rate" for b in plan.options.bounds)
    metric = plan.problem.find_metric()
    return len(dataset.classes) == 2 and (is_bounded or metric.declared.asks_positive)


def comparable(options: StudyOptions) -> dict[str, Any]:
    """Return the given options that make another study if they change, as JSON values."""
    stored = json_values(options.to_json())
    names = (name for name in stored if name not in _FREE and name not in _FIXED)
    return {name: stored[name] for name in names if options.is_given(name)}
