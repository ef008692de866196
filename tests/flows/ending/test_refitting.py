"""Members refitted in parallel: a real Prefect server, real processes that are killed."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from flow_studies import entered, tell
from prefect import flow
from prefect.client.schemas.objects import TaskRun
from prefect.runtime import flow_run
from prefect_api import states, task_runs
from processes import wait_for
from studies import configured, context_of, store_of, with_space
from user_spaces import PRELUDE
from worlds import evaluation

from prefect_tune.flows.ending.refitting import member_of, refit_model, score_model
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.final.refit import LossOnTest, RefitFailed
from prefect_tune.tasks.problem import StudyContext

NAME = "side-by-side"
SPACE = (
    PRELUDE
    + """
FOLDER = Path({folder!r})


class Shared(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        with (FOLDER / "prefixes").open("a") as file:
            file.write("made ")
        return self

    def transform(self, X):
        return X


class Meeting(DecisionTreeClassifier):
    '''Is fitted once another one is being fitted, too.'''

    def fit(self, X, y):
        (FOLDER / "meeting" / str(os.getpid())).touch()
        until = monotonic() + 240
        while len(list((FOLDER / "meeting").iterdir())) < 2:
            if monotonic() > until:
                raise TimeoutError("nobody else is fitted")
            sleep(0.01)
        return super().fit(X, y)


class Endless(DecisionTreeClassifier):
    def fit(self, X, y):
        sleep(1000)


MODELS = dict(one=Meeting, other=Meeting, endless=Endless)
space = models(
    *(
        one(id, model, max_depth=depth, random_state=0)
        for depth, (id, model) in enumerate(MODELS.items(), 1)
    ),
    before=(Step("shared", (one("shared", Shared),)),),
)
"""
)


@pytest.fixture
def context(server, tmp_path: Path) -> StudyContext:  # noqa: ARG001 - refits run there
    """Return a study of a space whose steps write notes into the folder."""
    (tmp_path / "meeting").mkdir()
    code = SPACE.format(folder=str(tmp_path))
    return replace(with_space(context_of(tmp_path), code), study=NAME)


def refitted(
    context: StudyContext, *models: str, seconds: float = 300.0
) -> tuple[list[LossOnTest], list[TaskRun]]:
    """Return losses of an ensemble of these models and of the first model alone, and task runs.

    The server receives final states of task runs in batches, so the function waits for them.
    """
    context = replace(context, trial_seconds=seconds)

    @flow(persist_result=False)
    def fit() -> tuple[list[LossOnTest], UUID, int]:
        flow_run_id = UUID(str(flow_run.id))
        with (
            entered(context, NAME) as study,
            DaskTrials.started(context, flow_run_id, n_workers=2) as running,
        ):
            for model in models:
                tell(study, evaluation(10.0), configured(context, shared="shared", fit_model=model))
            weighted = [(trial, 1 / len(models)) for trial in study.trials.values()]
            refit_model(study, running, context, weighted)
            alone = member_of(study, study.trials[0])
            losses = [score_model(running, context, of) for of in (None, alone)]
            return losses, flow_run_id, running.n_task_runs

    losses, flow_run_id, n_runs = fit()

    def settled() -> list[TaskRun]:
        runs = task_runs(flow_run_id)
        is_settled = len(runs) == n_runs and not {"Running", "Pending"} & set(states(runs))
        return runs if is_settled else []

    return losses, wait_for(settled)


def test_ensemble_members_are_refitted_in_parallel_and_shared_steps_only_once(
    context, tmp_path
) -> None:
    losses, runs = refitted(context, "one", "other")
    assert (tmp_path / "prefixes").read_text() == "made "
    assert all(0 <= test.loss < 50 for test in losses)
    tasks = sorted(run.name for run in runs if run.name.startswith("refit"))
    assert tasks == ["refit ensemble of 2", "refit member: trial 0", "refit member: trial 1"]
    members = {run.id for run in runs if run.name.startswith("refit member")}
    shared = [run for run in runs if run.name == "shared: shared"]
    assert {run.task_inputs["__parents__"][0].id for run in shared} == members
    assert sorted(run.state_name for run in shared) == ["Cached", "Completed"]
    model = store_of(context).records.get(model_record(NAME))["model"]
    assert len(model.weights) == 2


@pytest.mark.full
def test_refit_respects_limits(context) -> None:
    with pytest.raises(RefitFailed, match="refit of trial"):
        refitted(context, "endless", seconds=1.5)
