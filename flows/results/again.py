"""A trial as a program that evaluates it again without prefect-tune, as far as that can be."""

from collections.abc import Callable

from prefect_tune.flows.results.explained import trial_numbered
from prefect_tune.flows.results.space_as_run import space_as_run
from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.query import Query
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.reproduction.program import TrialToWrite, program
from prefect_tune.tasks.reproduction.splitting_text import Shares
from prefect_tune.tasks.reproduction.steps_text import Epochs
from prefect_tune.tasks.study_context import StudyContext

__all__ = ["again"]


def again(
    store: ArtifactStore, study: str, number: int, note: Callable[[str], None] = lambda _: None
) -> str:
    """Return the text of a program that evaluates a trial again and prints its losses.

    Args:
        store: Where the study is.
        study: Its name.
        number: Number of the trial.
        note: Is told what takes long.

    Raises:
        UnknownName: If there is no such study.
        BadInput: If there is no such trial in it, or its space is another one here.
        StoreLost: If the study's data is not there any more.
    """
    plan = StudyPlan.from_stored(find_study(store, study))
    trial = trial_numbered(store, study, number)
    problem = plan.problem
    space = space_as_run(plan, study)
    if not plan.use_cache:
        note(f"study {study} kept nothing, so steps before the model run once more now")
    context = StudyContext(
        study, problem, store.address, use_cache=plan.use_cache, epochs=plan.epochs
    )
    shares = Shares(plan.folds, plan.holdout, plan.test_size)
    query = Query.from_json(trial.document["query"], space)
    return program(context, _written(study, trial, query, plan.epochs), plan.source, shares)


def _written(study: str, trial: TrialDocument, query: Query, epochs: int | None) -> TrialToWrite:
    evaluation, failure = trial.document["evaluation"], trial.document["failure"]
    best = None if evaluation is None else evaluation.get("best_epoch")
    where = f"{failure['step']}, fold {failure['fold']}: " if failure and failure["step"] else ""
    return TrialToWrite(
        study,
        trial.number,
        query,
        tuple(evaluation["fold_losses"]) if evaluation else (),
        Epochs(epochs, best or query.epochs or epochs) if epochs else None,
        f"{where}{failure['message']}" if failure else "",
        (failure["step"] or "") if failure else None,
    )
