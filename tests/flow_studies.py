"""Studies in a ledger that a test opens, asks and tells, without a flow."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from studies import store_of

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.series.next_study import prepare_run
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.starting.study_input import StudyRequest
from prefect_tune.flows.study.facts import ModelCheck
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Evaluation, Failure, Query, Trial
from prefect_tune.optimizers.documents import from_document
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.index import pinned_keys
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.problem import Problem, StudyContext


def prepare_study(parameters: Mapping[str, Any], **more: Any) -> PreparedStudy:
    """Prepare a study with parameters of the flow `tune`."""
    request = StudyRequest.parse(parameters)
    return prepare_run(request, request.open_store(), **more)


USUAL = StudyPlan(
    options=StudyOptions(
        data="table.csv", target="target", test_size=0.2, folds=3, space="small", method="random",
        metric="error", constraint=(), race=False, seed=0,
    ),
    data_name="table",
    problem=Problem("data", "split", "small", "digest", "error", seed=0),
    chance_loss=40.0,
)  # fmt: skip


LEADER = {
    "trial": 1, "loss": 12.5, "fidelity": "", "constraints": {"latency_us": 7.0},
    "configuration": {"fit model": {"algorithm": "tree", "hyperparameters": {"depth": 3}}},
}  # fmt: skip
SUMMARY: dict[str, Any] = {
    "study": "s", "method": "random", "metric": "error", "state": "complete",
    "space": "small", "data": "table.csv", "store_options": [],
    "resume_command": "prefect-tune run table.csv --study s",
    "n_trials": 3, "n_complete": 2, "n_partial": 0, "n_failed": 1, "n_begun": 5, "n_waiting": 2,
    "incumbent": LEADER, "model_trial": LEADER, "model_is_partial": False, "model_of_folds": False,
    "instead_of": None, "no_model": None, "nearest_infeasible": None, "holdout": None,
    "constraints": {"latency_us": 10.0}, "ensemble": None, "finalists": [], "plugins": [],
    "test_loss_undefined": None, "single_best_test_loss_undefined": None,
    "test_loss": 13.0, "single_best_test_loss": 13.0, "chance_loss": 50.0,
    "decisions": {}, "notes": [],
    "cache": {"hits": 3, "misses": 1, "size_bytes": 2000, "seconds_saved": 4.0},
    "seconds": {
        "total": 75.0, "evaluating": 70.0, "asking": 1.0, "budget": None, "over_budget": None,
    },
}  # fmt: skip
"""A study that has ended, as `show --json` prints it."""


USELESS = ModelCheck(
    rows="test", loss=13.0, constant_loss=12.0, gain=-1.0, low=-2.0, high=0.5, p=0.9,
    is_useless=True, rare_class="ill", n_rare=12, n_found=3,
)  # fmt: skip
"""A model that is worse than the best constant prediction."""


def study_view(**changes: Any) -> StudyView:
    """Return the study of `SUMMARY` with changes, which are JSON values."""
    return from_document(StudyView, SUMMARY | changes)


def plan(**changes: Any) -> StudyPlan:
    """Return a plan of three random folds and a fifth of the rows as test rows."""
    return changed(USUAL, **changes)


def changed(plan: StudyPlan, **changes: Any) -> StudyPlan:
    """Return the plan with changed options and other changed fields."""
    names = {field.name for field in fields(StudyPlan)}
    of_plan = {name: value for name, value in changes.items() if name in names}
    of_options = {name: value for name, value in changes.items() if name not in names}
    if "problem" in changes:
        problem = changes["problem"]
        of_options = {
            "space": problem.space, "metric": problem.metric, "seed": problem.seed, **of_options
        }  # fmt: skip
    return replace(plan, options=replace(plan.options, **of_options), **of_plan)


def plan_of(context: StudyContext, **changes: Any) -> StudyPlan:
    """Return the plan of `context_of`."""
    return plan(problem=context.problem, **changes)


def enter(context: StudyContext, name: str, **changes: Any) -> StudyPlan:
    """Enter a study into the ledger, and return its plan."""
    plan = plan_of(context, **changes)
    ledger = Ledger(store_of(context).database)
    assert ledger.create_study(name, plan.problem.to_json(), plan.to_json())
    return plan


@contextmanager
def entered(context: StudyContext, name: str, **changes: Any) -> Iterator[Study]:
    """Enter and open a study."""
    plan = enter(context, name, **changes)
    with Study.opened(store_of(context), name, plan) as study:
        yield study


def begin(study: Study, query: Query | None = None) -> Trial:
    """Start the next trial, with the given query if any."""
    if query is not None:
        study.optimizer._propose = lambda *_: query  # type: ignore[method-assign]
    return study.set_trial(study.ask(Budget()).started())


def tell(study: Study, came: Evaluation | Failure, query: Query | None = None) -> Trial:
    """Tell the outcome of the next trial, with the given query if any."""
    trial = begin(study, query)
    told = trial.failed(came) if isinstance(came, Failure) else trial.completed(came)
    study.tell(told)
    return told


def pinned(store: ArtifactStore) -> set[str]:
    """Return the keys that sessions have pinned."""
    with store.database.read() as connection:
        return set(connection.execute(pinned_keys()).scalars())
