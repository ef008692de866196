"""Studies that are entered into a store without being run."""

from time import time
from typing import Any

from flow_studies import plan_of

from prefect_tune.optimizers import Space, StepCost
from prefect_tune.storage import ArtifactStore, Ledger
from prefect_tune.tasks.problem import Problem, StudyContext

__all__ = ["artifact", "enter"]


def enter(store: ArtifactStore, space: Space, **changes: Any) -> Ledger:
    """Enter the study `s` of FLASH in a space, and return its ledger."""
    problem = Problem("data", "split", space.name, space.digest, "error", seed=0)
    context = StudyContext("s", problem, store.address)
    plan = plan_of(context, **{"method": "flash", "chance_loss": 50.0, **changes})
    ledger = Ledger(store.database)
    ledger.create_study("s", problem.to_json(), plan.to_json())
    return ledger


def artifact(step: StepCost, i: int, *, is_present: bool = True) -> dict[str, Any]:
    """A row of the index: what a step of the study `s` made."""
    return {
        "key": step.key, "parent": None, "study": "s", "step": step.step, "algorithm": "any",
        "fold": step.fold, "is_present": is_present, "size_bytes": 1000, "cost_seconds": 1.0,
        "created": time(), "last_used": time(), "hits": 0, "facts": {"rows": 100}, "parts": {},
        "place": f"p{i}", "is_cheap": False,
    }  # fmt: skip
