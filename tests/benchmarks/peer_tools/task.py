"""The task and the answers of a tool. Cheap to import, in any environment."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

__all__ = ["STAGES", "Answer", "Incumbents", "Task"]

STAGES = (0.25, 0.5, 1.0)
"""Shares of the seconds after which answers are asked for."""


@dataclass(frozen=True)
class Task:
    """A table to learn from within a time limit.

    Attributes:
        train: Parquet file of the training rows.
        test: Parquet file of the test rows, with the same columns.
        target: Column to predict.
        kind: `classes` or `numbers`.
        seconds: Seconds to search, start-up included.
        seed: Source of all randomness.
        started: Start of the process, by this machine's monotonic clock.
        folder: Folder for files of the run.
        options: Options of the tool, as written.
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
        """Seconds at which answers are due."""
        return tuple(share * self.seconds for share in STAGES)

    def elapsed(self) -> float:
        """Return seconds since the process was started."""
        return monotonic() - self.started

    def left(self) -> float:
        """Return the seconds left to search."""
        return self.seconds - self.elapsed()

    def frames(self) -> tuple[Any, Any]:
        """Return training and test rows; strings are categories."""
        import pyarrow.parquet as pq

        return pq.read_table(self.train).to_pandas(), pq.read_table(self.test).to_pandas()

    def write(self, path: Path) -> None:
        """Write the task as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Task":
        """Read a task written by `write`."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Answer:
    """Predictions of the test rows by the model that a tool had at some time.

    Attributes:
        stage: Seconds at which the answer was due.
        predictions: Classes or numbers, shape (n,).
        found: Seconds after which the tool had the model, without the refit.
        loss: Cross-validated loss, if the model has one.
        configurations: Configurations evaluated by then, if known.
        model: `answer` for the final answer of the tool, `single` for its best single pipeline if
            the answer is an ensemble.
        version: Version of a tool that is installed elsewhere.
    """

    stage: float
    predictions: Any
    found: float
    loss: float | None = None
    configurations: int | None = None
    model: str = "answer"
    version: str = ""


class Incumbents:
    """The best configurations of a search, with the times of their discovery."""

    def __init__(self) -> None:
        self._states: list[tuple[Any, Answer]] = []

    def ended(
        self, seconds: float, loss: float | None, what: Any, *, leads: bool | None = None
    ) -> None:
        """Record a configuration; the least loss so far leads unless `leads` is given."""
        before = self._states[-1] if self._states else (None, Answer(0, None, 0))
        best = before[1].loss
        is_least = loss is not None and (best is None or loss < best)
        if is_least if leads is None else leads:
            before = what, Answer(0, None, seconds, loss)
        number = len(self._states) + 1
        self._states.append((before[0], replace(before[1], stage=seconds, configurations=number)))

    def answers(self, task: Task, predict: Callable[[Any], Any]) -> Iterator[Answer]:
        """Return predictions by the incumbent of each stage; each incumbent is fitted once."""
        made: dict[int, Any] = {}
        for stage in task.stages:
            within = [state for state in self._states if state[1].stage <= stage]
            what, answer = within[-1] if within else (None, None)
            if what is not None and answer is not None:
                if id(what) not in made:
                    made[id(what)] = predict(what)
                yield replace(answer, stage=stage, predictions=made[id(what)])
