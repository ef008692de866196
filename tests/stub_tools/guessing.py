"""A tool that says what most training rows have, or their mean."""

from collections.abc import Iterator
from time import sleep

from peer_tools.task import Answer, Incumbents, Task

DISTRIBUTION = "pandas"


def answers(task: Task) -> Iterator[Answer]:
    """The same at every stage, with a loss from the second on."""
    if "broken" in task.options:
        raise ValueError("it is broken")
    if "sleeps" in task.options:
        sleep(60)
    _, y, X_test = task.features()
    found = Incumbents()
    found.ended(0.1 * task.seconds, None, None)
    found.ended(0.3 * task.seconds, 7.0, y.mode()[0] if task.kind == "classes" else y.mean())
    yield from found.answers(task, lambda guess: [guess] * len(X_test))
