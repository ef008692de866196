"""Every study with an evaluation ends with a model, even if user estimators misbehave."""

from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from finished.searched import searched
from inputs import table, write_table
from user_spaces import PRELUDE

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.results.predict import final_model
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress

pytestmark = pytest.mark.slow

SPACE = (
    PRELUDE
    + """
class Locked(DecisionTreeClassifier):
    '''Cannot be pickled.'''

    def fit(self, X, y):
        self.lock_ = threading.Lock()
        return super().fit(X, y)


class Turned(DecisionTreeClassifier):
    '''Takes each class for another one once it is read back.'''

    def __setstate__(self, state):
        super().__setstate__({**state, "classes_": state["classes_"][::-1]})


class Lambda(DecisionTreeClassifier):
    '''Needs cloudpickle.'''

    def fit(self, X, y):
        self.same_ = lambda X: X
        return super().fit(X, y)


class Blind(DecisionTreeClassifier):
    '''Cannot predict the rows of which column a is 1000.'''

    def predict(self, X):
        if (np.asarray(X) == 1000).any():
            raise ValueError("out of range")
        return super().predict(X)


class Unlocked(TransformerMixin, BaseEstimator):
    '''A step that can be pickled by nobody, and hands on its rows.'''

    def fit(self, X, y=None):
        self.lock_ = threading.Lock()
        return self

    def transform(self, X):
        return X


stump = one("stump", DecisionTreeClassifier, seeded=True, max_depth=1, max_features=1)
before_stump = (Locked, Turned)
globals().update(
    {c.__name__.lower(): models(one("better", c, DEPTH, seeded=True), stump) for c in before_stump},
    **{c.__name__.lower(): models(one("better", c, DEPTH, seeded=True)) for c in (Lambda, Blind)},
)
unlocked = models(stump, before=(Step("pass", (one("pass", Unlocked, seeded=True),)),))
"""
)


class Place:
    """A folder with a table, spaces and a home, where studies are run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        (folder / "own.py").write_text(SPACE)
        self.parameters: dict[str, Any] = {
            "data": str(write_table(folder)), "target": "target", "ensemble": "single",
        }  # fmt: skip
        self.command = CommandLine(self.home)

    def search(self, space: str, **changed: Any) -> dict[str, Any]:
        """Return the summary of a study in a space of the file."""
        named = f"{self.folder}/own.py:{space}" if space in SPACE.lower() else space
        searched(self.home, **{**self.parameters, "space": named, **changed})
        return self.summary

    @property
    def store(self) -> ArtifactStore:
        return ArtifactStore(StoreAddress(str(self.home / "store")))

    @property
    def summary(self) -> dict[str, Any]:
        return read_study(self.store, "s").to_json()

    def said(self, *command: object) -> str:
        done = self.command(*command)
        assert done.exit_code == 0, done.stderr
        return " ".join(done.stdout.split())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("space", "reason"), [("locked", "cannot pickle"), ("turned", "predicts different values")]
)
def test_best_trial_with_a_storable_model_provides_the_final_model(place, space, reason) -> None:
    summary = place.search(space, trials=12)
    best, of_model = summary["incumbent"], summary["model_trial"]
    assert best["configuration"]["fit model"]["algorithm"] == "better"
    assert of_model["configuration"]["fit model"]["algorithm"] == "stump"
    assert summary["instead_of"]["trials"] == [best["trial"]]
    assert reason in summary["instead_of"]["reason"]
    assert (summary["state"], summary["test_loss"] is None) == ("complete", False)
    model, about = final_model(place.store, "s")
    assert about["trial"] == of_model["trial"]
    assert len(model.predict(table().drop(columns="target"))) == 150


def test_model_refused_by_pickle_is_stored_by_cloudpickle(place) -> None:
    assert place.search("lambda", trials=1)["instead_of"] is None
    new, out = place.folder / "new.csv", place.folder / "p.csv"
    table().drop(columns="target").to_csv(new, index=False)
    assert place.command.json("predict", "s", new, "--out", out)["rows"] == 150
    place.said("export", "s", place.folder / "m.pkl")


def test_step_that_cannot_be_pickled_is_refitted_whenever_needed(place) -> None:
    """The trials count, but no model can be stored."""
    with pytest.raises(StudyFailed, match="cannot pickle"):
        place.search("unlocked", trials=1)
    assert place.summary["n_failed"] == 0


def test_undefined_test_loss_is_reported_and_the_model_is_kept(place) -> None:
    test = place.folder / "test.csv"
    table(40, seed=1).assign(a=1000.0).to_csv(test, index=False)
    summary = place.search("blind", trials=1, test=str(test))
    assert summary["test_loss"] is None
    assert "out of range" in summary["test_loss_undefined"]
    place.said("report", "s", "--out", place.folder / "r.html")
    place.said("export", "s", place.folder / "m.pkl")
    pages = [(place.folder / name).read_text() for name in ("r.html", "m.md")]
    assert all("out of range" in text for text in (place.said("show", "s"), *pages))


PARTIAL: dict[str, Any] = {"method": "halving", "option": {"fidelity": "folds"}, "trials": 3}


def test_best_partial_evaluation_provides_the_final_model_if_no_trial_is_full(place) -> None:
    summary = place.search("small", **PARTIAL, constraint=["model_size_bytes<=1e9"])
    assert summary["n_complete"] == summary["n_partial"] == summary["n_trials"]
    assert summary["model_is_partial"]
    assert summary["model_trial"]["trial"] == summary["incumbent"]["trial"]
    assert summary["model_trial"]["constraints"]["model_size_bytes"] <= 1e9
    assert summary["test_loss"] is not None
    assert summary["model_trial"]["fidelity"] in place.said("show", "s")


def test_evaluation_outside_the_constraints_never_provides_the_final_model(place) -> None:
    for changed in (PARTIAL, {"trials": 1, "study": "full"}):
        with pytest.raises(StudyFailed, match="at most 10"):
            place.search("small", **changed, constraint=["model_size_bytes<=10"])
    for name in ("s", "full"):
        view = read_study(place.store, name)
        assert (view.incumbent, view.model_trial, view.test_loss) == (None, None, None)
        assert view.nearest_infeasible.constraints["model_size_bytes"] > 10
