"""A request for a study: its parsed options, and the metric and space they name."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.options.store_location import home, store_address
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.local_files import make_private
from prefect_tune.tasks.code_behind import NO_CODE_BEHIND, CodeBehind
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.metric import Metric, metric_named
from prefect_tune.tasks.problem import open_store
from prefect_tune.tasks.user_space import SpaceCode, find_space


@dataclass(frozen=True)
class StudyRequest:
    """Options of a study to start or resume, with the objects they name.

    Attributes:
        space_code: Text of the user's file that declares the space; empty for any other space.
        behind: Modules and data files that the space uses and no wheel installed.
        texts: Columns of texts in earlier studies of the series, as in `Source`.
    """

    options: StudyOptions
    metric: Metric | None = None
    space: Space | None = None
    space_code: str = ""
    behind: CodeBehind = NO_CODE_BEHIND
    texts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Self:
        """Parse parameters and look up what they name; `BadInput` or `UnknownName` on failure."""
        return cls.of(StudyOptions.parse(parameters))

    @classmethod
    def of(cls, options: StudyOptions) -> Self:
        """Look up the metric and space of options; `BadInput` or `UnknownName` on failure."""
        metric = None if options.metric is None else metric_named(options.metric)
        space, code = (None, SpaceCode()) if options.space is None else find_space(options.space)
        if unfollowed_code(code.behind, options):
            options = replace(options, no_cache=True)
        return cls(options, metric, space, *code)

    def with_options(self, **changes: Any) -> Self:
        """Return the request with changed options that name the same metric and space."""
        return replace(self, options=replace(self.options, **changes))

    @property
    def predicts(self) -> Literal["classes", "numbers"] | None:
        """Kind of target that the metric or space implies; None if neither is named."""
        if self.metric is not None:
            return self.metric.target
        return None if self.space is None else self.space.target

    @property
    def source(self) -> Source:
        """Source of the data of a new study."""
        return replace(self.options.source, predicts=self.predicts, texts=self.texts)

    def open_store(self) -> ArtifactStore:
        """Open the store, or create it; raise `BadInput` or `StoreRefused` if it cannot be used."""
        address = store_address(self.options.store, self.options.database)
        if Path(address.url).is_relative_to(home()):
            with suppress(OSError):  # reported when the store is opened
                make_private(home())
        return open_store(address)


def unfollowed_code(behind: CodeBehind, options: StudyOptions) -> list[str]:
    """Return modules used by a space or its constraints that cannot be tracked, with reasons."""
    behinds = (behind, *(bounded.quantity.behind for bounded in options.bounds))
    return sorted({entry for one in behinds for entry in one.unfollowed})
