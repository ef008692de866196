"""Studies in a ledger that a test opens, asks and tells, without a flow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from studies import store_of

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Evaluation, Failure, Query, Trial
from prefect_tune.storage import ArtifactStore, Ledger
from prefect_tune.storage.cache.index import pinned_keys
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import Problem, StudyContext


def plan(**changes: Any) -> StudyPlan:
    """Three folds of a table, a fifth of the rows for the test, by chance."""
    usual = StudyPlan(
        source=Source("table.csv", target="target"), data_name="table",
        problem=Problem("data", "split", "small", "digest", "error", seed=0), folds=3, holdout=None,
        test_size=0.2, positive=None, chance_loss=40.0, method="random",
    )  # fmt: skip
    return replace(usual, **changes)


def plan_of(context: StudyContext, **changes: Any) -> StudyPlan:
    """The plan of `context_of`."""
    return plan(problem=context.problem, **changes)


def enter(context: StudyContext, name: str, **changes: Any) -> StudyPlan:
    """Enter a study into the ledger; its plan."""
    plan = plan_of(context, **changes)
    ledger = Ledger(store_of(context).database)
    assert ledger.create_study(name, plan.problem.to_json(), plan.to_json())
    return plan


@contextmanager
def entered(context: StudyContext, name: str, **changes: Any) -> Iterator[Study]:
    """A study that is entered and opened."""
    plan = enter(context, name, **changes)
    with Study.opened(store_of(context), name, plan) as study:
        yield study


def begin(study: Study, query: Query | None = None) -> Trial:
    """Start the next trial, which is one of that query if it is given."""
    if query is not None:
        study.optimizer._propose = lambda *_: query  # type: ignore[method-assign]
    return study.start(study.ask(Budget()))


def tell(study: Study, came: Evaluation | Failure, query: Query | None = None) -> Trial:
    """Tell what came of the next trial, which is one of that query if it is given."""
    trial = begin(study, query)
    told = trial.failed(came) if isinstance(came, Failure) else trial.ended(came)
    study.tell(told)
    return told


def pinned(store: ArtifactStore) -> set[str]:
    """Keys that sessions have pinned."""
    with store.database.read() as connection:
        return set(connection.execute(pinned_keys()).scalars())
