"""The estimator as users call it: real studies on one shared server and worker."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from inputs import table
from own_processes import assert_own_processes_work
from prefect_api import flow_runs
from processes import environment, run_json
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import cross_val_score

from prefect_tune import PipelineSearch, load_study
from prefect_tune.deployments.estimator.training_rows import target_of
from prefect_tune.tasks.bad_input import BadInput

SPACES = Path(__file__).with_name("tiny_spaces.py")

pytestmark = pytest.mark.usefixtures("server")


def search(**changes: Any) -> PipelineSearch:
    quick = {"method": "random", "space": "small", "trials": 4, "workers": 1, "verbose": 0}
    return PipelineSearch(**{**quick, **changes})


def rows(n: int = 150, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    frame = table(n, seed)
    return frame.drop(columns="target"), frame["target"]


@pytest.fixture(scope="module")
def fitted(server: str) -> PipelineSearch:  # noqa: ARG001
    return search(study="fitted").fit(*rows())


def test_search_learns_from_numbers_categories_and_missing_values(fitted, home) -> None:
    X, y = rows(300, seed=5)
    assert fitted.score(X, y) == pytest.approx((fitted.predict(X) == y).mean())
    assert fitted.score(X, y) > 0.7
    assert fitted.score(X, y.to_frame().to_numpy()) == fitted.score(X, y)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.feature_names_in_.tolist() == list(X)
    assert fitted.summary_["test_loss"] is None  # all rows train
    assert run_json("show", "fitted", home=home)["n_trials"] == 4


def test_best_estimator_is_the_exported_model_and_can_be_pickled(fitted) -> None:
    X, _ = rows(20, seed=5)
    exported = load_study(fitted.study_name_).model()
    for model in (exported, fitted.best_estimator_, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    steps = [[type(step) for _, step in m.steps] for m in (exported, fitted.best_estimator_)]
    assert steps[0] == steps[1]


def test_fit_with_new_rows_extends_a_study_only_if_told_to_use_the_stored_rows() -> None:
    search(study="own", trials=1).fit(*rows())
    X, y = rows(seed=1)
    with pytest.raises(BadInput, match="stored"):
        search(study="own", trials=2).fit(X, y)
    extended = search(study="own", trials=2, input="stored").fit(X, y)
    assert extended.cv_results_["trial"].tolist() == [0, 1]


@pytest.mark.parametrize("form", [pl.from_pandas, pa.Table.from_pandas])
def test_search_and_model_accept_frames_of_other_libraries(fitted, form) -> None:
    X, y = rows(40, seed=5)
    for model in (fitted, fitted.best_estimator_):
        np.testing.assert_array_equal(model.predict(form(X)), fitted.predict(X))
    assert fitted.score(form(X), pl.Series(y)) == fitted.score(X, y)
    swapped = form(X[X.columns[::-1]])  # by name, as files
    np.testing.assert_array_equal(fitted.best_estimator_.predict(swapped), fitted.predict(X))


def test_inspection_tools_of_scikit_learn_accept_search_and_model(fitted) -> None:
    X, y = rows(60, seed=5)
    X = X.astype({"count": float})  # scikit-learn refuses whole numbers here
    read = fitted.best_estimator_[:1].transform(rows(60, seed=5)[0])
    inspected = [(fitted, X), (fitted.best_estimator_, X), (fitted.best_estimator_[1:], read)]
    for model, given in inspected:
        found = partial_dependence(model, given, ["count"], grid_resolution=4)
        assert np.isfinite(found["average"]).all()
    assert permutation_importance(fitted, X, y, n_repeats=2).importances_mean.shape == (5,)


def test_results_have_the_columns_of_scikit_learn(fitted) -> None:
    results = pd.DataFrame(fitted.cv_results_)
    best = results.loc[fitted.best_index_]
    splits = results[[f"split{i}_test_score" for i in range(3)]]
    np.testing.assert_allclose(splits.mean(axis=1), results["mean_test_score"])
    np.testing.assert_allclose(splits.std(axis=1, ddof=0), results["std_test_score"])
    assert best["rank_test_score"] == 1
    assert best["params"] == fitted.best_params_
    assert fitted.best_score_ == best["mean_test_score"] == results["mean_test_score"].max()
    assert (results["mean_fit_time"] > 0).all()
    assert results["param_fit model"].tolist() == [p["fit model"] for p in results["params"]]


def test_study_name_continues_a_study_and_a_clone_is_unfitted(fitted) -> None:
    more = clone(fitted).set_params(trials=5)
    assert not hasattr(more, "best_estimator_")
    more.fit(*rows())
    assert len(more.cv_results_["params"]) == 5
    assert more.cv_results_["params"][:4] == fitted.cv_results_["params"]


def test_target_with_the_name_of_a_column_is_renamed() -> None:
    X, y = rows(60)
    assert target_of(search(), y.rename("a"), X, None).name == "a_"
    assert target_of(search(), y.rename("mine"), X, None).name == "mine"


def test_failed_trials_have_nan_scores_and_rank_last() -> None:
    X, y = rows()
    results = search(trials=2, space=f"{SPACES}:half_fail").fit(X[["a"]].fillna(0), y).cv_results_
    failed = results["param_fit model"] == "complementnb"  # which takes no negative numbers
    assert failed.tolist() in ([True, False], [False, True])
    assert np.isnan(results["mean_test_score"]).tolist() == failed.tolist()
    assert np.isnan(results["split2_test_score"]).tolist() == failed.tolist()
    assert results["rank_test_score"][failed].tolist() == [2]


def test_partial_evaluations_are_labeled_and_ranked_last() -> None:
    halving = search(method="halving", option={"fidelity": "folds"}, trials=9)
    found = halving.fit(*rows())
    results = pd.DataFrame(found.cv_results_)
    is_full = results["fidelity"] == ""
    assert set(results["fidelity"][~is_full]) >= {"folds 1 of 3"}
    of_one = results[results["fidelity"] == "folds 1 of 3"]
    assert of_one["split0_test_score"].notna().any()
    assert of_one[["split1_test_score", "split2_test_score"]].isna().all(axis=None)
    ranks = results["rank_test_score"]
    assert ranks[is_full].max() < ranks[~is_full].min()
    assert is_full[found.best_index_]


def test_holdout_gives_one_split_and_repeated_strings_are_categories() -> None:
    X, y = rows()
    X = X.assign(name=[f"n{i % 30}" for i in range(len(X))])
    found = search(holdout=0.3, trials=1).fit(X, pd.Categorical(y))
    splits = [name for name in found.cv_results_ if name.startswith("split")]
    assert splits == ["split0_test_score"]
    assert found.n_features_in_ == 6
    assert set(found.predict(X)) <= {"yes", "no"}


def test_rows_of_a_group_stay_in_one_fold() -> None:
    """Rows of a group are similar, and only rows of the same group reveal the class."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(30), 12)
    X = rng.normal(size=(30, 4))[group] + 1e-3 * rng.normal(size=(360, 4))
    y = rng.permutation(np.repeat([0, 1], 15))[group]
    apart = search(space=f"{SPACES}:neighbors", trials=1).fit(X, y, groups=group.astype(str))
    assert apart.best_score_ < 0.75  # above 0.9 if rows of a group are in training and test
    assert apart.n_features_in_ == 4
    assert apart.predict(X).shape == (360,)


@pytest.mark.full
def test_search_can_be_cross_validated() -> None:
    X, y = rows()
    areas = cross_val_score(search(trials=2, metric="auroc"), X, y, cv=2, scoring="roc_auc")
    assert areas.shape == (2,)
    assert areas.mean() > 0.6


def test_regression_is_inferred_from_the_target() -> None:
    X, _ = rows()
    y = 3 * X["a"] + np.random.default_rng(0).normal(size=len(X))
    found = search(space=None, trials=1).fit(X.to_numpy(dtype=object), y)
    assert is_regressor(found)
    assert not hasattr(found, "predict_proba")
    assert found.predict(X.to_numpy(dtype=object)[:3]).shape == (3,)
    assert np.isfinite(found.score(X.to_numpy(dtype=object), y))


def test_parameters_decide_whether_an_unfitted_search_is_a_classifier() -> None:
    assert is_classifier(search())
    for numbers in ({"predicts": "regression", "space": None}, {"metric": "r2"}):
        assert is_regressor(search(**numbers))
    assert is_regressor(search(space="regression"))


def test_no_rows_are_sent_to_prefect(fitted) -> None:
    (run,) = (r for r in flow_runs() if r.name.startswith("fitted") and r.parameters["trials"] == 4)
    assert len(json.dumps(run.parameters)) < 2_000
    assert fitted.summary_["data"] == run.parameters["data"]


X, Y = rows(30)


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        ({"X": X.rename(columns={"a": "b"})}, {}, "two columns .*'b'"),
        ({"X": sparse.csr_matrix(np.eye(30))}, {}, "sparse csr_matrix"),
        ({"X": X.astype({"count": pd.SparseDtype("int64")})}, {}, "column 'count' .*sparse"),
        ({"y": Y.where(Y.index > 1)}, {}, "2 of 30"),
        ({"y": pd.Series([1, "x"] * 15, dtype=object)}, {}, "y .*types"),
        ({"y": np.r_[np.inf, np.arange(29)]}, {}, "y .*infinite"),
        ({"y": np.ones(30)}, {}, "one class, 1.0"),
        ({"y": Y[:-1]}, {}, r"\[30, 29\]"),
        ({"groups": np.arange(30)}, {"group": "a"}, "group='a' is set"),
        ({"groups": np.arange(29)}, {}, r"groups .*\(29,\)"),
        ({"groups": np.zeros((30, 2))}, {}, r"groups .*\(30, 2\)"),
        ({"groups": [1, "b"] * 15}, {}, r"groups .*\(int, str\)"),
        ({"groups": pd.Series([None, *range(29)], dtype=object)}, {}, "1 of 30"),
        ({}, {"predicts": "labels"}, "predicts 'labels'"),
        ({}, {"predicts": "classification", "metric": "r2"}, "r2 .*regression"),
        ({}, {"method": "magic"}, "magic"),
        ({}, {"trials": 0}, "trials=0"),
        ({}, {"folds": 31}, "31 folds"),
    ],
)
def test_unusable_input_is_reported_before_any_work(given, changes, message) -> None:
    before = len(flow_runs())
    with pytest.raises(ValueError, match=message):
        search(**changes).fit(**{"X": X, "y": Y, **given})
    assert len(flow_runs()) == before


def test_new_rows_must_match_the_rows_of_the_fit(fitted) -> None:
    X, y = rows(30)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.rename(columns={"a": "A"}))
    with pytest.raises(ValueError, match=r"row 1 .*'x'"):
        fitted.predict(X.assign(a="x"))
    with pytest.raises(BadInput, match="the class 'maybe'"):
        fitted.score(X, y.where(y == "yes", "maybe"))


SCRIPT = """
from pathlib import Path

with Path("imports").open("a") as file:
    file.write(f"{__name__}\\n")

from sklearn.datasets import load_iris
from prefect_tune import PipelineSearch, load_study

X, y = load_iris(return_X_y=True)
quick = {"space": "small", "method": "random", "trials": 2, "workers": 1}
for verbose in (0, 1):
    print(PipelineSearch(**quick, verbose=verbose).fit(X, y).score(X, y) > 0.5)
"""


@pytest.mark.slow
@pytest.mark.full
def test_script_needs_no_guard_and_no_server(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(tmp_path / "home"),
        capture_output=True, text=True, timeout=270, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]
    assert (tmp_path / "imports").read_text().split() == ["__main__"]
    lines = done.stderr.splitlines()
    assert "150 rows" in lines[0]  # not a word without
    assert "final model" in lines[-1]
    assert not [line for line in lines if "prefect" in line.lower()]


IN_PROGRAM = """
from sklearn.datasets import load_iris
from prefect_tune import PipelineSearch
quick = {"space": "small", "method": "random", "trials": 2, "workers": 2, "verbose": 0}
PipelineSearch(**quick).fit(*load_iris(return_X_y=True))
"""


@pytest.mark.slow
@pytest.mark.full
def test_fit_does_not_disturb_processes_or_console_of_the_calling_program(tmp_path: Path) -> None:
    assert assert_own_processes_work(IN_PROGRAM, tmp_path) == []
