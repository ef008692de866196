"""A user's program that relies on the type of each public name."""

from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np
import pandas as pd
from ConfigSpace import ConfigurationSpace, Float
from numpy.typing import NDArray

import prefect_tune
from prefect_tune import (
    Algorithm,
    ArtifactStore,
    Flags,
    PipelineSearch,
    Space,
    Step,
    compare,
    load_study,
    local_server,
    order_step,
    retry,
    tune,
)
from prefect_tune import optimizers as opt
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named

frame = pd.DataFrame({"dose": [0.1, 0.2], "responder": [0, 1]})


def flows() -> None:
    with local_server() as url:
        assert_type(url, str)
        assert_type(tune("patients.csv", target="responder", trials=10), dict[str, Any])
        assert_type(tune(frame, target="responder", test=frame, budget="30m"), dict[str, Any])
        assert_type(tune(frame[["dose"]], target=frame["responder"]), dict[str, Any])
    assert_type(retry("responders", trial=[3]), dict[str, Any])
    assert_type(compare("patients.csv", methods="flash,random", repeats=2), dict[str, Any])


def estimator() -> None:
    search = PipelineSearch(predicts="classification", trials=10, constraint=["latency_us<=50"])
    X, y = frame[["dose"]], frame["responder"]
    assert_type(search.fit(X, y, groups=[1, 2]), PipelineSearch)
    assert_type(search.predict(X), NDArray[Any])
    assert_type(search.predict_proba(X), NDArray[np.float64])
    assert_type(search.decision_function(X), NDArray[np.float64])
    assert_type(search.score(X, y), float)
    assert_type(search.best_score_, float)
    assert_type(search.best_index_, int)
    assert_type(search.best_params_, dict[str, Any])
    assert_type(search.cv_results_, dict[str, Any])
    assert_type(search.study_name_, str)
    assert_type(search.notes_, list[str])


def study() -> None:
    loaded = load_study("responders", store="file:///store")
    assert_type(loaded.best_trial, int)
    assert_type(loaded.best_value, float)
    assert_type(loaded.best_params, dict[str, Any])
    assert_type(loaded.trials_dataframe(), pd.DataFrame)
    assert_type(loaded.view.to_json(), dict[str, Any])
    store = ArtifactStore(StoreAddress("file:///store"), budget_bytes=10**9)
    assert_type(store.index.totals().count, int)
    store.close()


def space() -> Space:
    tail = ConfigurationSpace(space=[Float("tail", (0.001, 0.2), default=0.05, log=True)])
    clip = Algorithm(id="clip", estimator="package.Clip", hyperparameters=tail)
    model = Algorithm(id="nb", estimator="sklearn.naive_bayes.GaussianNB", flags=Flags())
    steps = (Step("clip", (Algorithm(id="none"), clip)), Step("fit model", (model,)))
    assert_type(Space("mine", steps).n_paths, int)
    assert_type(order_step("clip", "scale"), Step)
    return Space("mine", steps)


def ask_and_tell() -> None:
    objective = opt.Objective(lower=0.0, upper=100.0, chance=50.0)
    optimizer = opt.make_optimizer("random", space_named("small"), seed=0, objective=objective)
    assert_type(optimizer, opt.Optimizer)
    query = optimizer.ask(opt.Budget())
    assert_type(query, opt.Query)
    assert_type(query.configuration, opt.Configuration)
    assert_type(query.configuration.path, tuple[str, ...])
    running = opt.Trial(0, query).started()
    assert_type(running, opt.Trial)
    optimizer.tell(running.completed(opt.Evaluation(0.25, fold_losses=(0.2, 0.3))))
    optimizer.tell(running.failed(opt.Failure(opt.FailureKind.ERROR, "it broke")))
    assert_type(optimizer.history.incumbent, opt.Trial | None)
    opt.Flash(space(), 0, objective, variant="paper")


@dataclass(frozen=True)
class SettleOptions(opt.MethodOptions):
    n_first: int = opt.option("Random configurations at first.", default=5, at_least=1)


SETTLE = opt.Method(
    name="settle",
    purpose="random paths at first",
    implementation="settling:Settle",
    options=SettleOptions,
    fidelities=frozenset({"folds"}),
    render_decisions=lambda decisions, _: [f"settled for {decisions['path']}"],
)


class Settle(opt.Optimizer):
    method = SETTLE

    def _propose(self, budget: opt.Budget, rng: np.random.Generator) -> opt.Query:
        assert_type(budget.trials_left, int | None)
        return opt.Query(opt.new_configuration(self.space, self.history.asked, rng, None))


opt.register(SETTLE)
assert_type(opt.METHODS["settle"], opt.Method)
assert_type(prefect_tune.__version__, str)
