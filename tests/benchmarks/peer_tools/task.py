"""What a tool is asked for, and what it answers. Light to import, in any environment."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["STAGES", "Answer", "Incumbent", "Incumbents", "Task"]

STAGES = (0.25, 0.5, 1.0)
"""Shares of the seconds after which answers are asked for."""


@dataclass(frozen=True)
class Task:
    """A table to learn from within some seconds.

    Attributes:
        train: Parquet file of the training rows.
        test: That of the test rows, with the same columns.
        target: Column to predict.
        kind: Whether it holds `classes` or `numbers`.
        seconds: How long to search, start-up included.
        seed: Source of all randomness.
        started: When the process was started, by this machine's monotonic clock.
        folder: Where the run may write.
        options: Of the tool, as they were written.
    """

    train: str
    test: str
    target: str
    kind: str
    seconds: float
    seed: int
    started: float
    folder: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[float, ...]:
        """Seconds after which answers are asked for."""
        return tuple(share * self.seconds for share in STAGES)

    def elapsed(self) -> float:
        """Seconds since the process was started."""
        return monotonic() - self.started

    def left(self) -> float:
        """Seconds that are left to search."""
        return self.seconds - self.elapsed()

    def frames(self) -> tuple[Any, Any]:
        """Training and test rows; texts are categories."""
        import pyarrow.parquet as pq

        return pq.read_table(self.train).to_pandas(), pq.read_table(self.test).to_pandas()

    def features(self) -> tuple[Any, Any, Any]:
        """Features and target of the training rows, and features of the test rows."""
        train, test = self.frames()
        y = train.pop(self.target)
        return train, y if self.kind == "numbers" else y.astype(object), test[list(train.columns)]

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Task":
        """What `write` kept."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Answer:
    """Predictions of the test rows by what a tool had at a time.

    Attributes:
        stage: The seconds after which it was asked for.
        predictions: Classes or numbers, shape (n,).
        found: Seconds after which the tool had it, without the refit.
        loss: Its cross-validated loss, if it has one.
        configurations: How many were seen by then, if that is known.
        model: `answer` for what the tool hands over, `single` for its best single pipeline where
            that is an ensemble.
        version: Of the tool, where it is installed elsewhere.
    """

    stage: float
    predictions: Any
    found: float
    loss: float | None = None
    configurations: int | None = None
    model: str = "answer"
    version: str = ""


@dataclass(frozen=True)
class Incumbent:
    """The best so far: since when, its loss, what it is, and of how many."""

    found: float
    loss: float
    what: Any
    configurations: int


class Incumbents:
    """What led a search, and when."""

    def __init__(self) -> None:
        self._states: list[tuple[float, Incumbent | None]] = []

    def ended(self, seconds: float, loss: float | None, what: Any) -> None:
        """Take a configuration; it leads if its loss is the least so far."""
        best = self._states[-1][1] if self._states else None
        if loss is not None and (best is None or loss < best.loss):
            best = Incumbent(seconds, loss, what, 0)
        self._states.append((seconds, best))

    def leads(self, seconds: float, loss: float | None, what: Any) -> None:
        """Take a configuration that has ended, and what the tool itself says is in the lead."""
        former = self._states[-1][1] if self._states else None
        if former is None or loss is None or former.what is not what:
            former = None if loss is None else Incumbent(seconds, loss, what, 0)
        self._states.append((seconds, former))

    def at(self, seconds: float) -> Incumbent | None:
        """What led at a time; None if nothing had ended."""
        within = [best for ended, best in self._states if ended <= seconds]
        if not within or (best := within[-1]) is None:
            return None
        return Incumbent(best.found, best.loss, best.what, len(within))

    def answers(self, task: Task, predict: Callable[[Any], Any]) -> Iterator[Answer]:
        """Predictions by what led at each stage; what led at several is fitted once."""
        made: dict[int, Any] = {}
        for stage in task.stages:
            if (best := self.at(stage)) is not None:
                if id(best.what) not in made:
                    made[id(best.what)] = predict(best.what)
                predicted = made[id(best.what)]
                yield Answer(stage, predicted, best.found, best.loss, best.configurations)
