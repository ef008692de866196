"""The pipeline of a trial, as object and as code, equals the fit of the first fold."""

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished.programs import built_from, parameters
from finished.searched import Searched, searched
from inputs import table, write_meds, write_table
from user_spaces import PRELUDE

from prefect_tune import load_study
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.results import built_pipeline as module
from prefect_tune.flows.results.built_pipeline import built_pipeline, pipeline_code
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem

pytestmark = pytest.mark.slow

Parameters = dict[str, Any]

MINE = (
    PRELUDE
    + """
from prefect_tune.tasks.catalogue.flash import CLASSIFY
from prefect_tune.tasks.catalogue.preparation import BALANCE


class Power(TransformerMixin, BaseEstimator):
    def __init__(self, exponent=0.5):
        self.exponent = exponent

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.sign(X) * np.abs(X) ** self.exponent


BOOSTING = "prefect_tune.tasks.catalogue.boosting"


def seeded(id, estimator, weights, **fixed):
    flags = Flags(stochastic=True, weights=weights)
    return Algorithm(id=id, estimator=estimator, fixed=fixed, flags=flags)


bend = Step("bend", (one("power", Power, exponent=0.7),))
space = models(CLASSIFY.algorithm("k_nearest"), before=(bend,))
iterative = models(
    seeded("sgd", "sklearn.linear_model.SGDClassifier", "class_weight", loss="log_loss"),
    seeded("trees", "sklearn.ensemble.GradientBoostingClassifier", "sample_weight", max_depth=2),
    seeded("lightgbm", f"{BOOSTING}.light_gbm.classifier", "sample_weight", n_estimators=100),
    before=(BALANCE,),
)
"""
)


def on_table(folder: Path, space: str, **more: Any) -> Parameters:
    (folder / "mine.py").write_text(MINE)
    data = {"data": str(write_table(folder)), "target": "target", "folds": 2, "trials": 3}
    return {**data, "space": space, "seed": 3, **more}


def on_events(folder: Path) -> Parameters:
    write_meds(folder / "meds")
    data = {"data": str(folder / "meds"), "labels": "labels/task"}
    return {**data, "space": "healthcare", "trials": 2}


STUDIES: dict[str, Callable[[Path], Parameters]] = {
    "flash": lambda folder: on_table(folder, "flash", trials=5),
    "own code": lambda folder: on_table(folder, "mine.py:space", trials=1),
    "events": on_events,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def documents(found: Searched) -> list[Any]:
    """Return the trials of a study."""
    return [trial.document for trial in open_study(found.store, "s").trials()]


def fitted_in_first_fold(found: Searched, trial: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return parameters of the cached estimators of a trial's first fold, by step."""
    steps = [step for step in trial["evaluation"]["steps"] if step["fold"] == 0]
    entries = found.store.index.entries([step["key"] for step in steps])
    return {
        step["step"]: parameters(found.store.read(entries[step["key"]], ["estimator"])["estimator"])
        for step in steps
    }


@pytest.mark.parametrize("study", ["flash", "own code", "events"])
def test_built_pipeline_equals_the_estimators_of_the_first_fold(study: str, tmp_path: Path) -> None:
    found = searched(tmp_path, fit=False, **STUDIES[study](tmp_path))
    loaded = load_study("s", str(tmp_path / "store"))
    for trial in documents(found):
        assert trial["failure"] is None
        pipeline = loaded.pipeline(trial["number"])
        fitted = fitted_in_first_fold(found, trial)
        assert list(dict(pipeline.steps)) == list(fitted)
        for name, estimator in pipeline.steps:
            as_built, expected = parameters(estimator), fitted[name]
            for argument in set(as_built) & set(expected):
                if argument.endswith("class_weight"):  # the fitted one has it in figures
                    as_built[argument] = expected[argument]
            assert as_built == expected
        code = pipeline_code(found.store, "s", trial["number"], pytest.fail)
        built = built_from(code)
        if study != "events":  # a program for a table reads raw rows first
            assert built.steps[0][0] == "read rows"
            built = built[1:]
        assert parameters(built) == parameters(pipeline), code


def test_pipeline_trained_in_epochs_is_built_for_the_best_epoch(tmp_path: Path) -> None:
    given = on_table(tmp_path, "mine.py:iterative", trials=6, epochs=10)
    found = searched(tmp_path, fit=False, **given)
    models = set()
    for trial in documents(found):
        best = trial["evaluation"]["best_epoch"]
        built = built_pipeline(found.store, "s", trial["number"])
        model = built.pipeline["fit model"]
        models.add(type(model).__name__)
        given = model.get_params()
        if "max_iter" in given:
            assert model.max_iter == best
            assert f"{best} passes" in built.remarks[0]
        else:
            rounds = given.get("n_estimators", given.get("estimator__n_estimators"))
            assert rounds == 10 * best
    assert len(models) == 3


def test_pipeline_of_the_final_model_trains_as_long_as_the_refit(tmp_path, monkeypatch) -> None:
    """Training that was stopped at the best epoch runs to the end in a refit."""
    more = {"method": "hyperband", "trials": 4, "epochs": 10, "ensemble": "single"}
    found = searched(tmp_path, fit=False, **on_table(tmp_path, "mine.py:iterative", **more))
    monkeypatch.setattr(module, "is_in_final_model", lambda *_: True)
    stopped = [t for t in documents(found) if t["state"] == "stopped"]
    rising = [t for t in stopped if t["evaluation"]["best_epoch"] == t["query"]["epochs"]]
    assert rising
    for trial in rising:
        given = built_pipeline(found.store, "s", trial["number"]).pipeline["fit model"].get_params()
        names = {"max_iter", "n_estimators", "estimator__n_estimators"} & given.keys()
        assert {given[name] for name in names} <= {10, 100}


def test_code_of_a_trial_runs_and_weights_rows_as_in_the_study(tmp_path: Path) -> None:
    found = searched(tmp_path, fit=False, **on_table(tmp_path, "mine.py:iterative", trials=4))
    frame = table()
    X, y = frame.drop(columns="target"), frame["target"]
    X = X.astype({name: "category" for name in X if X[name].dtype == object})
    weighted = set()
    for number in range(4):
        built = built_pipeline(found.store, "s", number)
        Path("code.py").write_text(pipeline_code(found.store, "s", number, pytest.fail))
        fitted = runpy.run_path("code.py", {"X": X, "y": y})["pipeline"]
        assert (fitted.predict(X) == y).mean() > 0.7
        model, weights = built.pipeline["fit model"], built.weighted
        weighted.add((type(model).__name__, weights or model.get_params().get("class_weight")))
    assert weighted >= {
        ("SGDClassifier", "balanced"), ("GradientBoostingClassifier", "fit model__sample_weight"),
    }  # fmt: skip


def test_building_a_pipeline_without_a_cache_reruns_the_steps_before_the_model(
    tmp_path: Path,
) -> None:
    given, notes = on_table(tmp_path, "flash", trials=2), list[str]()
    kept = searched(tmp_path / "kept", fit=False, **given)
    nothing = searched(tmp_path / "nothing", fit=False, **given, no_cache=True)
    for number in range(2):
        expected = pipeline_code(kept.store, "s", number, pytest.fail)
        assert pipeline_code(nothing.store, "s", number, notes.append) == expected
    assert len(notes) == 2


def test_failed_step_is_not_rerun(tmp_path: Path) -> None:
    given = on_table(tmp_path, "mine.py:space", trials=1, no_cache=True)
    ran = tmp_path / "ran"
    fails = f"open({str(ran)!r}, 'a').write('x')\n        raise MemoryError"
    Path("mine.py").write_text(MINE.replace("return np.sign(X)", f"{fails}\n        np.sign(X)"))
    found = searched(tmp_path, fit=False, **given)
    before = ran.read_text()
    code = pipeline_code(found.store, "s", 0, lambda _: None)
    assert ran.read_text() == before
    assert "failed in 'bend'" in code
    steps = ["read rows", "impute", "encode", "bend", "fit model"]
    assert list(dict(built_from(code).steps)) == steps


def test_unknown_trials_and_unusable_spaces_are_refused(ended, monkeypatch) -> None:
    with pytest.raises(BadInput, check=lambda e: (e.option, e.value) == ("trial", 77)):
        built_pipeline(ended.store, "h", 77)
    own = open_study(ended.store, "h").plan.find_space()
    models = tuple(replace(a, requires=("catboost",)) for a in own.steps[-1].algorithms)
    needy = replace(own, steps=(*own.steps[:-1], replace(own.steps[-1], algorithms=models)))
    with monkeypatch.context() as patched:
        patched.setattr(Problem, "find_space", lambda _: space_named("flash"))
        with pytest.raises(BadInput, match="differs"):
            built_pipeline(ended.store, "h", 0)
    monkeypatch.setattr(StudyPlan, "find_space", lambda _: needy)
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(BadInput, match="catboost"):
        built_pipeline(ended.store, "h", 0)
