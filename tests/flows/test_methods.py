"""Every method as that of a study: interrupted, gone on with and answered, on real workers."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import write_meds, write_table
from observing import Interrupting
from sklearn.neural_network import MLPClassifier
from user_spaces import PRELUDE

from prefect_tune.flows.study.facts import WeightedTrial
from prefect_tune.flows.study.progress import observed_by
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.tune import tune
from prefect_tune.optimizers import METHODS, Budget, NotYet, Optimizer, Query, Trial
from prefect_tune.optimizers.trials.history import best_frequencies
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.catalogue.modern import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named

pytestmark = pytest.mark.usefixtures("server")

DEFAULT = "flash"
"""The one that runs in the default tier."""
N_BEGUN, EARLY, EPOCHS, N_HISTORIES, N_TRAINING = 10, 5, 10, 6, 120
SPACE = (
    PRELUDE
    + """
NETWORK = "sklearn.neural_network.MLPClassifier"
rate = Float("learning_rate_init", (1e-3, 0.1), log=True, default=0.01)
alpha = Float("alpha", (1e-4, 1e-2), log=True, default=1e-3)
beyond = Integer("n_neighbors", (5000, 6000), default=5000)
diverging = {
    "hidden_layer_sizes": [4, 4], "solver": "sgd", "activation": "identity",
    "learning_rate_init": 1e3, "batch_size": 20,
}
space = models(
    one("network", NETWORK, rate, seeded=True, hidden_layer_sizes=[8], batch_size=16),
    one("diverging", NETWORK, alpha, seeded=True, **diverging),
    one("crowded", "sklearn.neighbors.KNeighborsClassifier", beyond),
    before=(Step("rescale", (STANDARDIZE,), fixed=True),),
)
"""
)
FOLDS: dict[str, Any] = {"option": {"fidelity": "folds"}}
OPTIONS: dict[str, dict[str, Any]] = {
    "esmbo": {"space": "svm", "option": {"n_histories": N_HISTORIES}},
    "ers": {"space": "svm", "option": {"n_histories": N_HISTORIES}},
    "fabolas": {"n": 900},
    "bapi": {"space": "own", "epochs": EPOCHS, "seed": 2},
    "halving": FOLDS, "hyperband": FOLDS, "bohb": FOLDS,
}  # fmt: skip
"""What some methods need beside the defaults."""


def next_of(optimizer: Optimizer) -> list[Query]:
    """Up to three queries, none of them told."""
    queries: list[Query] = []
    with suppress(NotYet):
        while len(queries) < 3:
            queries += [optimizer.ask(Budget(trials_left=3 - len(queries)))]
    return queries


class Ran:
    """A study that was interrupted, and went on by the same call.

    Attributes:
        summary: Of its end.
        before: Trials that had been told when it was interrupted.
        queries: What was asked for next then, there and by who opened the study again.
    """

    def __init__(self, folder: Path, method: str) -> None:
        (folder / "own.py").write_text(SPACE)
        given = {"space": "small", **OPTIONS.get(method, {})}
        data = write_table(folder, n=given.pop("n", 150))
        if given["space"] == "own":
            given["space"] = f"{folder}/own.py:space"
        self.parameters = {
            "data": str(data), "target": "target", "method": method, "trials": N_BEGUN,
            "workers": 2, "store": str(folder / "store"), "study": "m", **given,
        }  # fmt: skip
        there = self._interrupt()
        self.before = {n: t for n, t in self.study().trials.items() if t.is_told}
        self.queries = next_of(there), next_of(self.study().optimizer)
        self.summary = tune(**self.parameters)

    def _interrupt(self) -> Optimizer:
        asking: list[Optimizer] = []
        ask = Study.ask

        def noted(study: Study, budget: Budget) -> Trial:
            asking.append(study.optimizer)
            return ask(study, budget)

        with pytest.MonkeyPatch.context() as patched, observed_by(Interrupting(EARLY)):
            patched.setattr(Study, "ask", noted)
            with pytest.raises(KeyboardInterrupt):
                tune(**self.parameters)
        return asking[-1]

    def study(self) -> Study:
        return Study(ArtifactStore(StoreAddress(self.parameters["store"])), "m")

    @cached_property
    def trials(self) -> dict[int, Trial]:
        return dict(self.study().trials)


@pytest.fixture(scope="module")
def run(server, tmp_path_factory) -> Callable[[str], Ran]:  # noqa: ARG001 - flows run there
    return cache(lambda method: Ran(tmp_path_factory.mktemp(method), method))


@pytest.fixture(
    scope="module",
    params=[m if m == DEFAULT else pytest.param(m, marks=pytest.mark.full) for m in METHODS],
)
def ran(request, run) -> Ran:
    return run(request.param)  # type: ignore[no-any-return]


def test_what_was_done_before_an_interrupt_stays_and_nothing_is_left_to_do(ran) -> None:
    assert len(ran.before) >= EARLY
    assert ran.before.items() <= ran.trials.items()
    assert (ran.summary["state"], ran.summary["n_waiting"]) == ("complete", 0)
    assert ran.summary["n_begun"] == N_BEGUN


def test_who_opens_the_study_again_asks_for_the_same(ran) -> None:
    there, again = ran.queries
    assert again == there


def test_what_it_has_learned_is_brought_back_and_shown(ran) -> None:
    optimizer = ran.study().optimizer
    assert optimizer.decisions == ran.summary["decisions"]
    known = list(ran.study().facts.algorithm_seconds)
    assert known == optimizer.costs.portable() != []
    assert optimizer.incumbent.number == ran.summary["incumbent"]["trial"]
    lines = METHODS[ran.summary["method"]].render_decisions(ran.summary["decisions"])
    assert all(isinstance(line, str) for line in lines)


def test_it_ends_in_a_model_that_is_better_than_guessing(ran) -> None:
    assert 0 <= ran.summary["test_loss"] < ran.summary["chance_loss"]
    if ran.summary["ensemble"] is None:
        best = ran.summary["incumbent"]["trial"]
        assert ran.study().facts.model.members == (WeightedTrial(best, 1.0),)


def epochs_of(model: Any) -> int:
    """Epochs that a model was trained for, from what its kind counts."""
    if isinstance(model, MLPClassifier):  # a partial fit is one iteration to it
        return round(model.t_ / N_TRAINING)
    return int(model.n_iter_)


@pytest.mark.full
def test_trainings_are_stopped_and_resumed_from_their_checkpoints(run) -> None:
    ran = run("bapi")
    reached: dict[Any, int] = {}
    gone_on = 0
    for trial in ran.trials.values():
        done, configuration = trial.evaluation, trial.query.configuration
        if done is not None and done.curve and not done.trouble:
            # One that was cut by Ctrl-C may have left a checkpoint in passing.
            assert done.resumed_from >= reached.get(configuration, 0)
            assert trial.attempts > 1 or done.resumed_from == reached.get(configuration, 0)
            assert len(done.curve) == (trial.query.epochs or EPOCHS)
            gone_on += done.resumed_from > 0
            reached[configuration] = len(done.curve)
    assert gone_on > 0
    ends = ran.summary["decisions"]["ends"]
    assert ends["failed"] == sum(t.state == "failed" for t in ran.trials.values()) > 0
    assert ends["diverged"] == sum(bool(t.evaluation and t.evaluation.trouble)
                                   for t in ran.trials.values()) > 0  # fmt: skip
    study = ran.study()
    best = study.incumbent.evaluation.best_epoch
    assert epochs_of(study.store.records.get(model_record("m"))["model"][-1]) == best


@pytest.mark.full
def test_what_is_best_on_a_subset_is_confirmed_on_all_rows(run) -> None:
    ran = run("fabolas")
    made = ran.summary["decisions"]["confirmations"]
    assert made
    assert all(ran.trials[c["trial"]].query.is_full for c in made)
    assert all(c["loss"] == ran.trials[c["trial"]].loss for c in made)
    assert ran.summary["incumbent"]["fidelity"] == ""


@pytest.mark.full
@pytest.mark.parametrize("method", ["esmbo", "ers"])
def test_a_search_for_an_ensemble_has_a_risk_for_each_history_and_ends_in_one(run, method) -> None:
    ran = run(method)
    risks = {n: t.evaluation.risks for n, t in ran.trials.items() if t.evaluation}
    assert {len(of_trial) for of_trial in risks.values()} == {N_HISTORIES}
    often = dict(zip(risks, best_frequencies(np.array(list(risks.values()))), strict=True))
    assert ran.study().optimizer.weights == pytest.approx({n: w for n, w in often.items() if w})
    ensemble = ran.summary["ensemble"]
    assert ensemble["kind"] == "agnostic"
    assert sum(member["weight"] for member in ensemble["members"]) == pytest.approx(1)


def raced(folder: Path, **changed: Any) -> tuple[dict[str, Any], Study]:
    parameters = {
        "data": str(write_table(folder)), "target": "target", "space": "small", "method": "random",
        "race": True, "trials": N_BEGUN, "workers": 2, "store": str(folder / "store"),
        "study": "race", **changed,
    }  # fmt: skip
    summary = tune(**parameters)
    return summary, Study(ArtifactStore(StoreAddress(parameters["store"])), "race")


def test_in_a_race_a_promoted_configuration_is_served_its_first_fold(tmp_path) -> None:
    summary, study = raced(tmp_path)
    history, race = study.optimizer.history, summary["decisions"]["race"]
    assert race["begun"] == N_BEGUN == len(history.complete) + race["stopped"]
    assert 0 < race["stopped"] < N_BEGUN
    for whole in history.complete[1:]:  # the first configuration ran whole
        first = history.trials_of(whole.query.configuration)[0]
        assert whole.evaluation.fold_losses[0] == first.evaluation.loss
        assert all(step.hit for step in whole.evaluation.steps if step.fold == 0)


@pytest.mark.full
def test_on_many_rows_a_race_looks_at_a_part_of_them_first(tmp_path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(31_000, 3)).astype(np.float32)
    frame = pd.DataFrame(x, columns=list("abc")).assign(target=np.where(x[:, 0] > 0, "p", "q"))
    summary, study = raced(tmp_path, data=frame, trials=4, test_size=0.0, workers=1)
    history = study.optimizer.history
    assert [t.query.subset for t in history][:4] == [0.5] * 4
    best = min(history.stopped, key=lambda t: t.loss)
    parts = [(t.query.subset, t.query.folds) for t in history.trials_of(best.query.configuration)]
    assert parts == [(0.5, 1), (1.0, 1), (1.0, None)]
    assert summary["incumbent"]["trial"] == history.complete[0].number


@pytest.mark.full
def test_events_are_searched_in_the_space_with_their_construction(tmp_path) -> None:
    meds, store = write_meds(tmp_path / "meds"), str(tmp_path / "store")
    done = tune(data=str(meds), labels="labels/task", trials=6, store=store, workers=2)
    assert (done["method"], done["space"], done["state"]) == ("flash", "events", "complete")
    assert done["incumbent"]["loss"] < done["chance_loss"]
    assert "construct features" in done["incumbent"]["configuration"]


@pytest.mark.full
def test_a_table_and_nothing_else_is_searched_in_the_modern_space_by_a_race(tmp_path) -> None:
    store = str(tmp_path / "store")
    done = tune(data="sklearn:wine", trials=20, store=store, workers=2, study="wine")
    assert (done["method"], done["space"], done["state"]) == ("flash", "modern", "complete")
    assert done["decisions"]["race"]["begun"] == 20
    assert done["ensemble"]["kind"] in {"single", "greedy", "agnostic"}
    assert done["test_loss"] < 0.15 * done["chance_loss"]
    trials = Study(ArtifactStore(StoreAddress(store)), "wine").trials.values()
    start = list(dict.fromkeys(t.query.configuration for t in trials))
    assert start[:3] == portfolio_of(space_named("modern"))[:3]
