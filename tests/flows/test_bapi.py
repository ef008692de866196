"""BAPI as the method of a study: trainings on real workers, stopped and gone on with."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import CommandLine
from inputs import write_table
from interrupting import Interrupting
from sklearn.neural_network import MLPClassifier
from studies import configured, epoch_context, store_of, to_epoch

from prefect_tune.flows.comparing import compare
from prefect_tune.flows.final_model import fit_final_model
from prefect_tune.flows.progress import observed_by
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.tuning import tune
from prefect_tune.optimizers import Budget, Evaluation, Optimizer, Query, Trial
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.key import model_record
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.fitting.final_scoring import LossOnTest

pytestmark = pytest.mark.usefixtures("server")

EPOCHS = 10
N_TRAINING = 120
"""Rows of 150, without the test part."""
N_BEGUN = 12
EARLY = 13
"""Trials after which the first session is interrupted: the start is over, plans are made."""
SEED = 2
"""The first nine configurations have each of the five models."""
SPACE = """
from ConfigSpace import ConfigurationSpace, Float, Integer

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import STANDARDIZE
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

NETWORK = "sklearn.neural_network.MLPClassifier"
NEIGHBOURS = "sklearn.neighbors.KNeighborsClassifier"


def algorithm(id, estimator, *space, seeded=True, **fixed):
    return Algorithm(
        id=id, estimator=estimator, fixed=fixed, hyperparameters=ConfigurationSpace(space=space),
        flags=Flags(stochastic=seeded),
    )


rate = Float("learning_rate_init", (1e-3, 0.1), log=True, default=0.01)
leaves = Integer("max_leaf_nodes", (2, 8), default=4)
alpha = Float("alpha", (1e-4, 1e-2), log=True, default=1e-3)
near = Integer("n_neighbors", (1, 2), default=1)
beyond = Integer("n_neighbors", (5000, 6000), default=5000)
models = (
    algorithm("network", NETWORK, rate, hidden_layer_sizes=[8], batch_size=16),
    algorithm(
        "boosting", "sklearn.ensemble.HistGradientBoostingClassifier", leaves, max_iter=10,
        min_samples_leaf=5,
    ),
    algorithm(
        "diverging", NETWORK, alpha, hidden_layer_sizes=[4, 4], solver="sgd",
        activation="identity", learning_rate_init=1e3, batch_size=20,
    ),
    algorithm("neighbours", NEIGHBOURS, near, seeded=False),
    algorithm("crowded", NEIGHBOURS, beyond, seeded=False),
)
before = (IMPUTE, ENCODE, Step("rescale", (STANDARDIZE,), fixed=True))
every = Space("every", (*before, Step("fit model", models)))
networks = Space("networks", (*before, Step("fit model", models[:1])))
at_once = Space("at_once", (*before, Step("fit model", models[3:4])))
"""


@pytest.fixture(scope="module")
def parameters(server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001 - the flow goes there
    folder = tmp_path_factory.mktemp("bapi")
    (folder / "space.py").write_text(SPACE)
    return {
        "data": str(write_table(folder)), "target": "target", "space": f"{folder}/space.py:every",
        "method": "bapi", "epochs": EPOCHS, "trials": N_BEGUN, "workers": 2, "seed": SEED,
        "store": str(folder / "store"), "study": "b",
    }  # fmt: skip


@pytest.fixture(scope="module")
def next_queries(parameters) -> dict[str, list[Query]]:
    """What was asked for next when Ctrl-C was pressed: there, and by who opens the study again."""
    asking: list[Optimizer] = []
    ask = Study.ask

    def noted(study: Study, budget: Budget) -> Trial:
        asking.append(study.optimizer)
        return ask(study, budget)

    with pytest.MonkeyPatch.context() as patched, observed_by(Interrupting(EARLY)):
        patched.setattr(Study, "ask", noted)
        with pytest.raises(KeyboardInterrupt):
            tune(**parameters)
    return {
        "there": next_of(asking[-1]),
        "again": next_of(study_of(parameters).optimizer),
    }


@pytest.fixture(scope="module")
def summary(parameters, next_queries) -> dict[str, Any]:  # noqa: ARG001 - goes on from there
    return tune(**parameters)


@pytest.fixture(scope="module")
def trials(parameters, summary) -> list[Trial]:  # noqa: ARG001 - when all are told
    return list(study_of(parameters).trials.values())


def epochs_of(model: Any) -> int:
    """Epochs that a model was trained for, from what its kind counts."""
    if isinstance(model, MLPClassifier):  # a partial fit is one iteration to it
        return round(model.t_ / N_TRAINING)
    return int(model.n_iter_)


def next_of(optimizer: Optimizer) -> list[Query]:
    """Three queries, none of them told."""
    assert optimizer.memo is not None
    assert optimizer.memo["n_plans"] > 0
    return [optimizer.ask(Budget(trials_left=3 - n)) for n in range(3)]


def study_of(parameters: Mapping[str, Any], name: str = "b") -> Study:
    return Study(ArtifactStore(StoreAddress(parameters["store"])), name)


def _first(optimizer: Optimizer) -> Trial:
    return optimizer.history[0]


def of_model(trials: list[Trial], model: str) -> list[Trial]:
    return [t for t in trials if t.query.configuration.path == (model,)]


def evaluations(trials: list[Trial]) -> list[Evaluation]:
    return [t.evaluation for t in trials if t.evaluation is not None]


def test_trainings_are_stopped_and_gone_on_with_from_their_checkpoints(summary, trials) -> None:
    assert (summary["state"], summary["n_begun"]) == ("complete", N_BEGUN)
    assert summary["n_stopped"] > 0
    reached: dict[Any, int] = {}
    gone_on = 0
    for trial in trials:
        done, configuration = trial.evaluation, trial.query.configuration
        if done is not None and done.curve and not done.trouble:
            # One that was cut by Ctrl-C may have left a checkpoint in passing.
            assert done.resumed_from >= reached.get(configuration, 0)
            assert trial.attempts > 1 or done.resumed_from == reached.get(configuration, 0)
            assert len(done.curve) == (trial.query.epochs or EPOCHS)
            gone_on += done.resumed_from > 0
            reached[configuration] = len(done.curve)
    assert gone_on > 0
    assert min(reached.values()) < EPOCHS
    assert summary["decisions"]["epochs"] < EPOCHS * len(reached)


def test_a_model_without_epochs_is_fitted_at_once(trials) -> None:
    own = of_model(trials, "neighbours")
    assert own
    assert all(t.query.epochs is None and t.state == "complete" for t in own)
    assert all(done.curve == () and done.best_epoch is None for done in evaluations(own))


def test_a_failed_trial_ends_nothing(summary, trials) -> None:
    failed = of_model(trials, "crowded")
    assert {t.state for t in failed} == {"failed"}
    assert "n_neighbors" in failed[0].failure.message
    assert max(t.number for t in trials) > failed[0].number + 1
    assert summary["decisions"]["ends"]["failed"] == len(failed)


def test_a_diverging_training_ends_with_its_reason_and_its_best_epoch_counts(
    summary, trials
) -> None:
    own = of_model(trials, "diverging")
    assert len({t.query.configuration for t in own}) == len(own)  # none is gone on with
    [first, *_] = evaluations(own)
    assert "non-finite" in first.trouble
    assert len(first.curve) == first.best_epoch == 1
    assert first.loss == first.curve[0]
    assert summary["decisions"]["ends"]["diverged"] == len(evaluations(own))


def test_who_opens_the_study_again_asks_for_the_same(next_queries) -> None:
    assert next_queries["again"] == next_queries["there"]
    assert len(set(next_queries["there"])) == 3


def test_the_final_model_is_trained_for_the_epochs_that_were_best(parameters, summary) -> None:
    study = study_of(parameters)
    assert study.incumbent is not None
    assert study.incumbent.evaluation is not None
    best = study.incumbent.evaluation.best_epoch
    assert summary["incumbent"]["trial"] == study.incumbent.number
    assert study.result["members"] == [{"trial": study.incumbent.number, "weight": 1.0}]
    model = study.store.records.get(model_record(study.name))["model"]
    assert epochs_of(model[-1]) == best
    assert 0 < summary["test_loss"] < 30
    assert study.optimizer.decisions == summary["decisions"]


@pytest.mark.parametrize(("method", "epochs"), [("bapi", 2), ("random", None)])
def test_what_was_best_when_it_was_stopped_is_not_trained_any_further(
    tmp_path, monkeypatch, method: str, epochs: int | None
) -> None:
    """Other methods take it to the end, as no prediction says that it would be worse there."""
    context = epoch_context(tmp_path)
    plan = StudyPlan(
        source=Source("classes.csv", target="target"), data_name="classes",
        problem=context.problem, folds=3, holdout=None, test_size=0.2, positive=None,
        chance_loss=40.0, method=method, epochs=EPOCHS,
    )  # fmt: skip
    store, asked = store_of(context), []
    Ledger(store.database).create_study("s", plan.problem.to_json(), plan.to_json())
    query = to_epoch(configured(context, rescale="none", fit_model="mlp"), 2)

    def fit(_: Any, parameters: Mapping[str, Any], **__: Any) -> Any:
        asked.extend(member.query["epochs"] for member in parameters.get("members", ()))
        return SimpleNamespace(test=LossOnTest(20.0))

    with Study.opened(store, "s", plan) as study:
        study.optimizer._propose = lambda *_: query
        trial = study.start(study.ask(Budget()))
        study.tell(trial.ended(Evaluation(20.0, curve=(30.0, 20.0), best_epoch=2)))
        monkeypatch.setattr(type(study.optimizer), "incumbent", property(_first))
        silent = SimpleNamespace(note=lambda _: None)
        fit_final_model(study, SimpleNamespace(run=fit), context, silent)
    assert asked == [epochs]


def test_in_a_comparison_it_trains_in_epochs_too(parameters, tmp_path) -> None:
    given = {name: parameters[name] for name in ("data", "target", "epochs", "seed")}
    space, store = parameters["space"].replace("every", "networks"), str(tmp_path / "store")
    compare(
        **given, space=space, methods="bapi,random", repeats=1, trials=4, workers=2, name="c",
        store=store, out=str(tmp_path / "curves.parquet"),
    )  # fmt: skip
    planned, random = (study_of({"store": store}, f"c-0-{m}").trials for m in ("bapi", "random"))
    assert {len(t.evaluation.curve) for t in random.values()} == {EPOCHS}
    assert all(t.failure is None for t in planned.values())
    assert {len(t.evaluation.curve) for t in planned.values()} > {2, EPOCHS}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ("method bapi needs the number of epochs", "name it, for instance --epochs 50")),
        (("--epochs", 4), ("--epochs 4: a curve of fewer than 5", "name 5 or more")),
        (
            ("--epochs", 9, "--space", "at_once"),
            ("no model of space 'at_once' trains in epochs", "such as smac or fabolas"),
        ),
        (("--epochs", 9, "--option", "variant=best"), ("'best'", "paper")),
        (("--epochs", 9, "--option", "horizon=0"), ("horizon must be >= 1; got 0",)),
        (("--epochs", 9, "--option", "p=2"), ("p must be in (0, 1]", "got 2")),
        (("--epochs", 9, "--option", "sure=-1"), ("sure must be >= 0; got -1",)),
        (("--epochs", 9, "--option", "horizont=4"), ("horizont", "Did you mean 'horizon'")),
    ],
    ids=lambda value: " ".join(map(str, value)) if value and isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_before_any_work(parameters, tmp_path, arguments, said) -> None:
    file = parameters["space"].partition(":")[0]
    spaces = {"at_once": f"{file}:at_once"}
    done = CommandLine(tmp_path / "home")(
        "run", parameters["data"], "--target", "target", "--method", "bapi", "--space",
        f"{file}:every", *(spaces.get(a, a) for a in arguments),
    )  # fmt: skip
    assert done.exit_code == 2
    for text in said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
