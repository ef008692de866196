"""Which of our spaces a tool searches on a table."""

from peer_tools.task import Task
from prefect_tune.tasks.catalogue.spaces import space_named

__all__ = ["space_of"]


def space_of(task: Task) -> str | None:
    """Name of the space that the options name; None for the product's default.

    Of several, written `space=flash+regression`, the one that predicts what the table holds.

    Raises:
        ValueError: If none does.
    """
    if (named := task.options.get("space")) is None:
        return None
    for name in named.split("+"):
        if space_named(name).target == task.kind:
            return name
    raise ValueError(f"space {named} predicts no {task.kind}; name one of each as space=A+B")
