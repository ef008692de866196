"""The task runs of trials, as the ledger has them."""

from collections.abc import Collection

from prefect_tune.storage.ledger import Ledger

__all__ = ["task_runs_of"]


def task_runs_of(ledger: Ledger, study: str, numbers: Collection[int]) -> dict[int, str]:
    """Return ids of the task runs of trials by number, the last of each, where they are known.

    Args:
        ledger: Where the study is.
        study: Its name.
        numbers: Of the trials.
    """
    if not numbers:
        return {}
    bodies = (event.body for event in ledger.events(study, "tell"))
    told = (body for body in bodies if body["number"] in numbers)
    return {body["number"]: body["task_run_id"] for body in told if "task_run_id" in body}
