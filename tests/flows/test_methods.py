"""Methods as those of a study: closed, opened again, gone on with and ended in a model."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from finished.searched import searched
from inputs import write_table
from sklearn.neural_network import MLPClassifier
from user_spaces import PRELUDE

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import METHODS, Budget, NotYet, Optimizer, Query, Trial
from prefect_tune.storage.keys import model_record

pytestmark = pytest.mark.slow

DEFAULT = "flash"
"""The one that runs in the default tier."""
N_TRIALS, EARLY, EPOCHS, N_TRAINING = 12, 6, 10, 120
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
OPTIONS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "bapi": {"space": "own", "epochs": EPOCHS, "seed": 2},
    "bohb": {"option": {"fidelity": "folds"}},
}
"""What the methods need beside the defaults; the others are asked and told in their contract."""


def next_of(optimizer: Optimizer) -> list[Query]:
    """Up to three queries, none of them told."""
    queries: list[Query] = []
    with suppress(NotYet):
        while len(queries) < 3:
            queries += [optimizer.ask(Budget(trials_left=3 - len(queries)))]
    return queries


class Ran:
    """A study that was closed early and gone on with by the same call.

    Attributes:
        queries: What was asked for next when it was closed, there and by who opened it again.
    """

    def __init__(self, folder: Path, method: str) -> None:
        (folder / "own.py").write_text(SPACE)
        given = {"space": "small", **OPTIONS[method]}
        data = write_table(folder)
        if given["space"] == "own":
            given["space"] = f"{folder}/own.py:space"
        parameters = {"data": str(data), "target": "target", "method": method, **given}
        asking: list[Optimizer] = []
        ask = Study.ask

        def noted(study: Study, budget: Budget) -> Trial:
            asking.append(study.optimizer)
            return ask(study, budget)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Study, "ask", noted)
            self.store = searched(folder, trials=EARLY, fit=False, **parameters).store
        self.before = dict(self.study().trials)
        self.queries = next_of(asking[-1]), next_of(self.study().optimizer)
        searched(folder, trials=N_TRIALS, **parameters)
        self.view, self.trials = read_study(self.store, "s"), dict(self.study().trials)

    def study(self) -> Study:
        return Study(self.store, "s")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    return cache(lambda method: Ran(tmp_path_factory.mktemp(method), method))


@pytest.mark.parametrize(
    "method", [m if m == DEFAULT else pytest.param(m, marks=pytest.mark.full) for m in OPTIONS]
)
def test_a_study_continues_where_it_was_and_ends_in_a_model(run, method) -> None:
    ran = run(method)
    assert ran.before.items() <= ran.trials.items()
    assert len(ran.trials) == N_TRIALS
    there, again = ran.queries
    assert again == there
    assert 0 <= ran.view.test_loss < ran.view.chance_loss
    optimizer = ran.study().optimizer
    assert optimizer.decisions == ran.view.decisions
    assert optimizer.incumbent.number == ran.view.incumbent.trial
    lines = METHODS[method].render_decisions(ran.view.decisions)
    assert all(isinstance(line, str) for line in lines)


@pytest.mark.full
def test_trainings_are_stopped_and_resumed_from_their_checkpoints(run) -> None:
    ran = run("bapi")
    reached: dict[Any, int] = {}
    gone_on = 0
    for trial in ran.trials.values():
        done, configuration = trial.evaluation, trial.query.configuration
        if done is not None and done.curve and not done.trouble:
            assert done.resumed_from == reached.get(configuration, 0)
            assert len(done.curve) == (trial.query.epochs or EPOCHS)
            gone_on += done.resumed_from > 0
            reached[configuration] = len(done.curve)
    assert gone_on > 0
    ends = ran.view.decisions["ends"]
    assert ends["failed"] == sum(t.state == "failed" for t in ran.trials.values())
    troubled = [t for t in ran.trials.values() if t.evaluation and t.evaluation.trouble]
    assert ends["diverged"] == len(troubled)  # how many depends on measured seconds
    best = ran.study().incumbent.evaluation.best_epoch
    model = ran.store.records.get(model_record("s"))["model"][-1]
    assert isinstance(model, MLPClassifier)
    assert round(model.t_ / N_TRAINING) == best  # a partial fit is one iteration to it


def test_in_a_race_a_promoted_configuration_is_served_its_first_fold(tmp_path) -> None:
    data = {"data": str(write_table(tmp_path)), "target": "target", "space": "small"}
    done = searched(tmp_path, trials=10, fit=False, race=True, **data)
    history = Study(done.store, done.name).optimizer.history
    assert history.stopped
    assert len(history.complete) > 1
    for whole in history.complete[1:]:  # the first configuration ran whole
        first = history.trials_of(whole.query.configuration)[0]
        assert whole.evaluation.fold_losses[0] == first.evaluation.loss
        assert all(step.hit for step in whole.evaluation.steps if step.fold == 0)
