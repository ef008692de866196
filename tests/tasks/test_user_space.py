"""A user's own space: the file is sent as text, and steps may change places."""

from importlib import import_module
from pathlib import Path

import pytest
from studies import configured, context_of, evaluate, with_space

from prefect_tune.optimizers import Algorithm, Choice, UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.user_code import load_user_code
from prefect_tune.tasks.user_space import find_space

SPACE = """
import numpy as np
from ConfigSpace import ConfigurationSpace, Float, Integer
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_selection import SelectFromModel

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


def unseeded(exponent=1.0):
    return SelectFromModel(ExtraTreesClassifier(n_estimators=3))


class Power(TransformerMixin, BaseEstimator):
    def __init__(self, exponent=1.0):
        self.exponent = exponent

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.sign(X) * np.abs(X) ** self.exponent


def made_here():
    class Local(Power):
        pass

    return Local


EXPONENTS = ConfigurationSpace(space=[Float("exponent", (0.5, 2.0))])
power = Algorithm(id="power", estimator=Power, hyperparameters=EXPONENTS)
boosting = Algorithm(
    id="boosting",
    estimator="lightgbm.LGBMClassifier",
    hyperparameters=ConfigurationSpace(space=[Integer("n_estimators", (5, 20))]),
    fixed={"n_jobs": 1, "verbosity": -1, "min_child_samples": 5},
    flags=Flags(weights="class_weight", stochastic=True),
)
space = Space("mine", (IMPUTE, ENCODE, Step("bend", (power,)), Step("fit model", (boosting,))))
"""


def write(folder: Path, text: str = SPACE) -> str:
    (folder / "my_space.py").write_text(text)
    return f"{folder / 'my_space.py'}:space"


@pytest.mark.slow
def test_step_keys_include_the_relevant_code_of_the_file(tmp_path) -> None:
    study = context_of(tmp_path)

    def hits(text: str = SPACE) -> dict[str, bool]:
        made = with_space(study, text)
        bend, boosting = ("power", {"exponent": 1.5}), ("boosting", {"n_estimators": 10})
        steps = evaluate(made, configured(made, bend=bend, fit_model=boosting)).steps
        return {step.step: step.hit for step in steps}

    assert not any(hits().values())
    assert all(hits().values())
    reworded = '    """Powers."""\n\n    # Nothing is learned.\n    def fit('
    assert all(hits(SPACE.replace("    def fit(", reworded)).values())
    other = hits(SPACE.replace("np.sign(X) * ", ""))
    assert other == {"impute": True, "encode": True, "bend": False, "fit model": False}


def test_nested_random_estimator_is_seeded(tmp_path) -> None:
    text = SPACE.replace("estimator=Power,", "estimator=unseeded, flags=Flags(stochastic=True),")
    space, _ = find_space(write(tmp_path, text))
    algorithm = space.step("bend").algorithms[0]
    how = recipe(algorithm, Choice("power"), MatrixSummary(10, 2, "dense"), balanced=False)
    seeds = [build(how, seed).estimator.random_state for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_step_key_includes_versions_of_libraries_used_by_user_code() -> None:
    code = (
        "from lightgbm import LGBMClassifier\n"
        "from sklearn.ensemble import BaggingClassifier\n"
        "def Mine():\n    return BaggingClassifier(LGBMClassifier())"
    )
    module = load_user_code(code, "mine.py")
    algorithm = Algorithm(id="mine", estimator=module.Mine)
    how = recipe(algorithm, Choice("mine"), MatrixSummary(10, 2, "dense"), balanced=False)
    of_text, *others = how.to_json(0)["library"].split(", ")
    assert of_text == module.__name__
    packages = ("lightgbm", "numpy", "scipy", "sklearn")
    assert others == [f"{p} {import_module(p).__version__}" for p in packages]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("estimator=Power", "estimator=made_here()", "by its name"),
        ("estimator=Power", "estimator='__main__.Model'", "running program"),
        ("def transform", "def change", "no method transform"),
        ("lightgbm.LGBMClassifier", "sklearn.preprocessing.Normalizer", "cannot be constructed"),
        ("stochastic=True", "stochastic=False", "stochastic=True"),
        ('"exponent", (', '"expo", (', "'expo'"),
        ("estimator=Power", "estimator=unseeded", "estimator__random_state"),
        ("self.exponent = exponent", "raise SystemExit('no')", "SystemExit: no"),
        ("import numpy", "import numpi", "named 'numpi'"),
        ("class Power(", "class Power", r"line \d+: SyntaxError"),
    ],
)
def test_unusable_space_is_refused_with_the_reason(tmp_path, old, new, named) -> None:
    with pytest.raises(BadInput, match=named):
        find_space(write(tmp_path, SPACE.replace(old, new)))


def test_missing_file_or_name_is_reported(tmp_path) -> None:
    argument = write(tmp_path)
    with pytest.raises(UnknownName, match="'spce'"):
        find_space(argument.replace(":space", ":spce"))
    for wrong in (str(tmp_path / "other.py:space"), argument.removesuffix(":space"),
                  argument.replace(":space", ":Power")):  # fmt: skip
        with pytest.raises(BadInput, check=lambda e: e.option == "space"):
            find_space(wrong)


KINDS = """
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


class Duck:
    def fit(self, X, y):
        return self

    def predict(self, X):
        return X


class OldDuck(Duck):
    _estimator_type = "regressor"


def wrapped(): return make_pipeline(StandardScaler(), LinearRegression())
def logistic(): return make_pipeline(LogisticRegression(random_state=0))
def forest(): return IsolationForest(random_state=0)
"""


@pytest.mark.parametrize(
    ("estimators", "of_classes", "of_numbers"),
    [
        (("LinearRegression", "wrapped", "OldDuck"), False, True),
        (("logistic",), True, False),
        (("Duck",), True, True),  # of no known kind
        (("forest", "StandardScaler"), False, False),
    ],
)
def test_model_for_a_wrong_target_is_refused(tmp_path, estimators, of_classes, of_numbers) -> None:
    for estimator in estimators:
        for target, is_taken in (("classification", of_classes), ("regression", of_numbers)):
            steps = f"(IMPUTE, ENCODE, Step('m', (Algorithm(id='a', estimator={estimator}),)))"
            space = f"space = Space('own', {steps}, target='{target}')\n"
            argument = write(tmp_path, KINDS + space)
            if is_taken:
                assert find_space(argument)[0].target == target
                continue
            with pytest.raises(BadInput) as refused:
                find_space(argument)
            right = "classifier" if target == "classification" else "regressor"
            assert estimator == "StandardScaler" or right in refused.value.remedy


ORDERED_SPACE = """
from ConfigSpace import ConfigurationSpace, Integer

from prefect_tune import Algorithm, Space, Step, order_step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

none = Algorithm(id="none")
standardize = Algorithm(id="standardize", estimator="sklearn.preprocessing.StandardScaler")
pca = Algorithm(
    id="pca",
    estimator="sklearn.decomposition.PCA",
    fixed={"svd_solver": "full", "random_state": 0},
    hyperparameters=ConfigurationSpace(space=[Integer("n_components", (1, 2), default=1)]),
)
tree = Algorithm(
    id="tree", estimator="sklearn.tree.DecisionTreeClassifier", fixed={"random_state": 0}
)
order = order_step("rescale", "project")
rescale, project = Step("rescale", (none, standardize)), Step("project", (none, pca))
space = Space("own", (IMPUTE, ENCODE, order, rescale, project, Step("fit model", (tree,))))
"""


@pytest.mark.slow
def test_steps_run_and_are_stored_in_the_order_of_the_configuration(tmp_path) -> None:
    made = with_space(context_of(tmp_path), ORDERED_SPACE)

    def ordered(order, rescale="standardize"):
        project = ("pca", {"n_components": 2})
        choices = {"order": order, "rescale": rescale, "project": project, "fit_model": "tree"}
        return evaluate(made, configured(made, **choices))

    one, other = ordered("rescale_before_project"), ordered("project_before_rescale")
    first_fold = [s.step for s in other.steps if s.fold == 0]
    assert first_fold == ["impute", "encode", "project", "rescale", "fit model"]
    assert one.fold_losses != other.fold_losses
    hits = {s.step: s.hit for s in other.steps}
    assert hits["encode"]
    assert not hits["rescale"]
    # What comes first in this order is what a pipeline without the other step makes.
    plain = ordered("rescale_before_project", rescale="none")
    assert {s.step: s.hit for s in plain.steps}["project"]
