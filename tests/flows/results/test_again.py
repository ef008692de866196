"""A trial as a program comes to the losses of the trial, to the last digit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from finished.programs import fold_losses, run_without_prefect_tune
from finished.searched import searched
from inputs import table, write_meds

from prefect_tune.flows.results.again import again
from prefect_tune.flows.study.lookup import list_trials
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem

Parameters = dict[str, Any]

HELD_OUT: Parameters = {"folds": None, "holdout": 0.3, "trials": 1}


def numbers(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """The test table with numbers to predict."""
    frame = table(n, seed)
    noise = np.random.default_rng(1).normal(size=n)
    return frame.assign(target=frame["a"] * 30 + noise)


def grouped(n: int = 150) -> pd.DataFrame:
    """The test table with patients of several rows, and numbers with gaps that name wards."""
    frame, rows = table(n), np.arange(n)
    return frame.assign(patient=rows // 3, ward=np.where(rows % 7 == 0, np.nan, rows % 4))


def csv(frame: pd.DataFrame, folder: Path, name: str = "table.csv") -> str:
    frame.to_csv(folder / name, index=False)
    return str(folder / name)


def small(folder: Path) -> Parameters:
    data = {"data": csv(table(), folder), "target": "target"}
    return {**data, "space": "small", "trials": 2, "folds": 2}


def flash(folder: Path) -> Parameters:
    return {**small(folder), "space": "flash", "seed": 3}


def modern(folder: Path) -> Parameters:
    return {**small(folder), "space": "modern", "trials": 2, "metric": "auroc", "seed": 5}


def regression(folder: Path) -> Parameters:
    test = csv(numbers(40, 3), folder, "test.csv")
    return {
        **small(folder),
        "data": csv(numbers(), folder, "numbers.csv"),
        "space": "regression",
        "test": test,
    }


def nothing_kept(folder: Path) -> Parameters:
    return {**small(folder), "no_cache": True, "metric": "average_precision", "positive": "no"}


def patients(folder: Path) -> Parameters:
    frame = csv(grouped(), folder, "grouped.csv")
    wards = {"group": "patient", "categorical": ["ward"], "drop": ["c"]}
    return {**small(folder), "data": frame, **wards, "metric": "f1", "positive": "no"}


def one_part_of_patients(folder: Path) -> Parameters:
    frame = csv(grouped(), folder, "grouped.csv")
    return {**small(folder), "data": frame, "group": "patient", **HELD_OUT}


def one_part(folder: Path) -> Parameters:
    return {**small(folder), **HELD_OUT, "test_size": 0.0}


def parquet(folder: Path) -> Parameters:
    frame = grouped().assign(day=pd.Timestamp("2020-01-01"), target=np.arange(150) % 2 == 0)
    frame.to_parquet(folder / "table.parquet")
    return {**small(folder), "data": str(folder / "table.parquet"), "drop": ["patient"]}


def arff(folder: Path) -> Parameters:
    rows = [
        ",".join("?" if pd.isna(value) else str(value) for value in row)
        for row in table().itertuples(index=False)
    ]
    kinds = [*("NUMERIC",) * 4, "{red,green,blue}", "{yes,no}"]
    head = [f"@ATTRIBUTE {name} {kind}" for name, kind in zip(table(), kinds, strict=True)]
    text = "\n".join(["@RELATION t", *head, "@DATA", *rows, ""])
    (folder / "table.arff").write_text(text)
    return {**small(folder), "data": str(folder / "table.arff"), "trials": 1}


def subsets(folder: Path) -> Parameters:
    frame = csv(grouped(1200), folder, "grouped.csv")
    option = {"fidelity": "subset"}
    return {
        **small(folder),
        "data": frame,
        "group": "patient",
        "method": "hyperband",
        "option": option,
    }


def epochs(folder: Path) -> Parameters:
    """The first trials that Hyperband asks for are an epoch each, among them passes and trees."""
    space = "space.py:space"
    (folder / "space.py").write_text(ITERATIVE)
    return {**small(folder), "space": space, "method": "hyperband", "epochs": 9, "trials": 5}


def own_code(folder: Path) -> Parameters:
    (folder / "mine.py").write_text(MINE)
    return {**small(folder), "space": "mine.py:space", "trials": 1}


def nothing_selected(folder: Path) -> Parameters:
    (folder / "strict.py").write_text(STRICT)
    return {**small(folder), "space": "strict.py:space", "trials": 1}


def last_digits(folder: Path) -> Parameters:
    """Sums whose last digits depend on the order in memory, and on how rows are transformed."""
    (folder / "digits.py").write_text(DIGITS)
    data = {"data": "sklearn:diabetes", "metric": "neg_mean_squared_error"}
    return {**data, "space": "digits.py:space", "trials": 1}


def of_events(folder: Path) -> Parameters:
    write_meds(folder / "meds")
    data = {"data": str(folder / "meds"), "labels": "labels/task"}
    return {**data, "space": "healthcare", "trials": 2}


def bundled(_: Path) -> Parameters:
    return {"data": "sklearn:wine", "space": "small", "metric": "auroc", "trials": 2}


ITERATIVE = """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.balancing import BALANCE
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE


def seeded(id, estimator, weights="none", **fixed):
    flags = Flags(stochastic=True, weights=weights)
    return Algorithm(id=id, estimator=estimator, fixed=fixed, flags=flags)


models = (
    seeded("sgd", "sklearn.linear_model.SGDClassifier", "class_weight", loss="log_loss"),
    seeded("mlp", "sklearn.neural_network.MLPClassifier", hidden_layer_sizes=[4]),
    seeded("trees", "sklearn.ensemble.GradientBoostingClassifier", n_estimators=18),
)
space = Space("mine", (IMPUTE, ENCODE, BALANCE, Step("fit model", models)))
"""
MINE = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.classification import DECISION_TREE
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE


class Power(TransformerMixin, BaseEstimator):
    def __init__(self, exponent=0.5):
        self.exponent = exponent

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.sign(X) * np.abs(X) ** self.exponent


bend = Step("bend", (Algorithm(id="power", estimator=Power, fixed={"exponent": 0.7}),))
space = Space("mine", (IMPUTE, ENCODE, bend, Step("fit model", (DECISION_TREE,))))
"""
STRICT = """
from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.classification import GAUSSIAN_NB
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE

strict = Algorithm(
    id="strict",
    estimator="prefect_tune.tasks.catalogue.estimators.select_by_p_value",
    fixed={"alpha": 1e-300, "mode": 2},
)
model = Step("fit model", (GAUSSIAN_NB,))
space = Space("strict", (IMPUTE, ENCODE, Step("select", (strict,)), model))
"""
DIGITS = """
from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.preprocessing import PCA
from prefect_tune.tasks.catalogue.rescaling import STANDARDIZE
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE

ridge = Algorithm(id="ridge", estimator="sklearn.linear_model.BayesianRidge")
rotate = Step("rotate", (PCA,))
scale = Step("scale", (STANDARDIZE,), fixed=True)
space = Space(
    "digits", (IMPUTE, ENCODE, scale, rotate, Step("fit model", (ridge,))), target="numbers"
)
"""
STUDIES = [
    small, flash, modern, regression, nothing_kept, patients, one_part_of_patients, one_part,
    parquet, arff, subsets, epochs, own_code, nothing_selected, last_digits, of_events, bundled,
]  # fmt: skip
WITH_OURS = {
    "modern": "ArithmeticCombinations is prefect-tune's: scikit-learn has no counterpart",
    "nothing_selected": "where it would select no column, it keeps the best one",
    "of_events": "EventAggregation is prefect-tune's: scikit-learn has no counterpart",
}
"""Studies of which programs need prefect-tune, and what is said of it in one of them."""


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_a_program_comes_to_the_losses_of_its_trial(
    study: Callable[[Path], Parameters], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = searched(tmp_path, fit=False, **study(tmp_path))
    texts = []
    for trial in list_trials(found.store, found.name):
        assert trial["failure"] is None, trial["failure"]
        text = again(found.store, found.name, trial["number"])
        assert fold_losses(text, tmp_path) == trial["evaluation"]["fold_losses"], text
        texts.append(text)
    remark = WITH_OURS.get(study.__name__)
    code = "\n".join(text.split('"""', 2)[2] for text in texts)
    assert ("prefect_tune" in code) == (remark is not None)
    assert remark is None or remark in code


@pytest.mark.slow
def test_a_program_runs_where_prefect_tune_cannot_be_imported(tmp_path: Path) -> None:
    study = searched(tmp_path, fit=False, **{**small(tmp_path), "trials": 1})
    file = tmp_path / "again.py"
    file.write_text(again(study.store, "s", 0))
    (trial,) = list_trials(study.store, "s")
    moved = tmp_path / "moved.csv"
    (tmp_path / "table.csv").rename(moved)
    said = run_without_prefect_tune(file, moved).splitlines()
    losses = [f"{loss:.6g}" for loss in trial["evaluation"]["fold_losses"]]
    assert said[:2] == [f"fold {i}: {x}, the trial had {x}" for i, x in enumerate(losses)]
    assert said[2].startswith("mean error: ")


def test_another_number_of_rows_is_said(tmp_path: Path, capsys) -> None:
    study = searched(tmp_path, fit=False, **{**small(tmp_path), "trials": 1})
    text = again(study.store, "s", 0)
    shorter = Path(csv(table()[:140], tmp_path, "shorter.csv"))
    fold_losses(text, tmp_path, shorter)
    assert "has 140 rows, and the study had 150: losses differ" in capsys.readouterr().out


def test_a_failed_trial_becomes_a_program_that_fails_as_it_did(tmp_path: Path) -> None:
    said = "picky " + "\\" + "d " + '"' * 3  # in a docstring of its own it would end that
    broken = MINE.replace("return np.sign", f"raise ValueError({said!r})\n        return np.sign")
    (tmp_path / "mine.py").write_text(broken)
    parameters = {**small(tmp_path), "space": str(tmp_path / "mine.py:space"), "trials": 1}
    study = searched(tmp_path, fit=False, **parameters)
    text = again(study.store, "s", 0)
    assert "The trial failed: bend, fold 0: ValueError: picky" in text
    assert "the trial failed before it: its data is taken for that before" in text
    with pytest.raises(ValueError, match="picky"):
        fold_losses(text, tmp_path)


@pytest.mark.parametrize("no_cache", [False, True])
def test_a_step_that_failed_does_not_run_once_more(tmp_path: Path, no_cache: bool) -> None:
    ran = tmp_path / "ran"
    fails = f"open({str(ran)!r}, 'a').write('x')\n        raise MemoryError\n        return np.sign"
    (tmp_path / "mine.py").write_text(MINE.replace("return np.sign", fails))
    mine = {"space": str(tmp_path / "mine.py:space"), "trials": 1, "no_cache": no_cache}
    study = searched(tmp_path, fit=False, **{**small(tmp_path), **mine})
    (trial,) = list_trials(study.store, "s")
    assert trial["failure"]["step"] == "bend"
    before, notes = ran.read_text(), list[str]()
    text = again(study.store, "s", 0, notes.append)
    assert ran.read_text() == before
    assert "the trial failed before it: its data is taken for that before" in text
    assert len(notes) == no_cache


def test_a_trial_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    study = searched(tmp_path, fit=False, **{**small(tmp_path), "trials": 2})
    with pytest.raises(BadInput, match="--trial 7: study s has the trials 0 to 1"):
        again(study.store, "s", 7)


def test_a_space_that_is_another_one_here_is_refused_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = searched(tmp_path, fit=False, **{**small(tmp_path), "trials": 1})
    monkeypatch.setattr(Problem, "find_space", lambda _: space_named("flash"))
    monkeypatch.setattr(
        "prefect_tune.tasks.catalogue.spaces.missing_libraries", lambda _: ("catboost",)
    )
    with pytest.raises(BadInput, match=r"small of study 's' is another one here, without catboost"):
        again(study.store, "s", 0)
