"""The plan of a study: all settings with which the study is started or resumed.

The module is cheap to import, because every command that shows a study needs it.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.wording.text import Whole
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.registry import DEFAULT_METHOD
from prefect_tune.optimizers.trials.objective import PortableSeconds
from prefect_tune.storage.database import as_written
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import Problem

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.tasks.problem import TrialLimits


_SHORTEST_TRIAL_SECONDS = 10.0
_LONGEST_TRIAL_SECONDS = 900.0
_TRIAL_SHARE = 0.1
"""Share of the time budget that a trial may take without a prediction."""


def documents_of(study: str) -> AbstractContextManager[None]:
    """Raise `DatabaseDamaged` if the `with` block fails to read documents of a study."""
    remedy = f", or remove the study with `prefect-tune study rm {study}`"
    return as_written(f"study {study}", remedy)


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """All settings with which a study is started or resumed.

    Attributes:
        options: Options with resolved defaults. Options of the session are kept as given.
        predicts: `classification` or `regression`; None if the data alone decided the kind of
            target.
        aside: Columns that define the groups of a constraint but are not features.
        earlier_seconds: Mean seconds of each algorithm in earlier studies, as in `Objective`.
        fixed_test: Columns whose hash selects the test rows of a series (empty for groups and
            patients); None if the test rows are selected by seed or time.
        texts: Columns that were strings in this or an earlier study of the series, as in `Source`.
        flow_run_id: Id of the latest session's flow run; None before the first session.
    """

    options: StudyOptions
    data_name: str
    problem: Problem
    chance_loss: float | None
    predicts: Literal["classification", "regression"] | None = None
    aside: tuple[str, ...] = ()
    start_configurations: tuple[Mapping[str, Any], ...] = ()
    earlier_seconds: tuple[PortableSeconds, ...] = ()
    flow_run_id: str | None = None
    fixed_test: tuple[str, ...] | None = None
    texts: tuple[tuple[str, int], ...] = ()

    @property
    def source(self) -> Source:
        """Source of the data, including the kind of target."""
        return replace(
            self.options.source, predicts=self.predicts, aside=self.aside, texts=self.texts
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.options.method or DEFAULT_METHOD

    @property
    def space(self) -> str:
        """Name of the space."""
        return self.problem.space

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.problem.metric

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return self.problem.seed

    @property
    def looks_forward(self) -> bool:
        """Whether each fold trains on older rows and holds out newer rows."""
        return self.options.time is not None or self.options.gap is not None

    @property
    def whole(self) -> Whole:
        """Full evaluation of a configuration."""
        return Whole(self.options.folds, self.options.epochs)

    def find_space(self) -> "Space":
        """Return the space of the study; raise `BadInput` if this machine has another version."""
        space = self.problem.find_space()
        if space.digest != self.problem.space_digest:
            raise BadInput(
                f"space {space.name!r} of study {self.options.study!r} differs in this version of "
                "prefect-tune",
                remedy="use the version of prefect-tune that started the study",
            )
        return space

    def trial_limits(self) -> "TrialLimits":
        """Return the limits of each trial.

        The default time limit is a tenth of the time budget, between 10 s and 15 min. The time
        limit applies to refits, and to trials whose cost cannot be predicted (see `TimeLimit`). The
        default memory limit is an equal share of the memory of this machine or of an external
        worker.
        """
        from dask.system import CPU_COUNT  # noqa: PLC0415 - showing a study needs no limits

        from prefect_tune.tasks.problem import TrialLimits, share_of_memory  # noqa: PLC0415 - heavy

        seconds = self.options.trial_timeout
        if seconds is None:
            budget = self.options.budget or _LONGEST_TRIAL_SECONDS / _TRIAL_SHARE
            share = _TRIAL_SHARE * budget
            seconds = min(max(share, _SHORTEST_TRIAL_SECONDS), _LONGEST_TRIAL_SECONDS)
        memory_bytes = self.options.trial_memory
        if memory_bytes is None and not self.options.dask:
            memory_bytes = share_of_memory(self.options.workers or CPU_COUNT)
        return TrialLimits(seconds, memory_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return the settings of the study as stored in the ledger, without the problem."""
        document = to_document(self, options=self.options.to_json(), problem=None)
        del document["problem"]
        return document

    @classmethod
    def from_stored(cls, stored: StoredStudy) -> Self:
        """Return the plan of a study in the ledger; raise `DatabaseDamaged` if it is damaged."""
        with documents_of(stored.name):
            settings = stored.settings
            options = StudyOptions.from_json({**settings["options"], "study": stored.name})
            problem = Problem.from_json(stored.problem)
            return from_document(cls, {**settings, "options": options, "problem": problem})
