"""A space of a user's own: its file travels as text, and its steps may change places."""

import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from command_line import CommandLine
from flow_studies import enter
from studies import configured, context_of, evaluate, store_of, with_space

from prefect_tune.optimizers import Algorithm, Choice, UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.user_code import load_user_code
from prefect_tune.tasks.user_space import find_space, load_user_space

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


space = Space(
    "mine",
    (
        IMPUTE,
        ENCODE,
        Step(
            "bend",
            (
                Algorithm(
                    id="power",
                    estimator=Power,
                    hyperparameters=ConfigurationSpace(space=[Float("exponent", (0.5, 2.0))]),
                ),
            ),
        ),
        Step(
            "fit model",
            (
                Algorithm(
                    id="boosting",
                    estimator="lightgbm.LGBMClassifier",
                    hyperparameters=ConfigurationSpace(space=[Integer("n_estimators", (5, 20))]),
                    fixed={"n_jobs": 1, "verbosity": -1, "min_child_samples": 5},
                    flags=Flags(weights="class_weight", stochastic=True),
                ),
            ),
        ),
    ),
)
"""


def write(folder: Path, text: str = SPACE) -> str:
    (folder / "my_space.py").write_text(text)
    return f"{folder / 'my_space.py'}:space"


def context(folder: Path, text: str = SPACE):
    return with_space(context_of(folder), text)


def query(made):
    return configured(
        made, bend=("power", {"exponent": 1.5}), fit_model=("boosting", {"n_estimators": 10})
    )


@pytest.mark.slow
def test_a_class_of_the_file_and_one_of_another_library_are_run_and_cached(tmp_path) -> None:
    made = context(tmp_path)
    first = evaluate(made, query(made))
    assert first.loss < 40
    again = evaluate(made, query(made))
    assert all(step.hit for step in again.steps)
    assert again.fold_losses == first.fold_losses


@pytest.mark.slow
def test_another_text_is_another_key(tmp_path) -> None:
    made = context(tmp_path)
    first = evaluate(made, query(made))
    other = context(tmp_path, SPACE.replace("np.sign(X) * ", ""))
    second = evaluate(other, query(other))
    hits = {step.step: step.hit for step in second.steps}
    assert hits == {"impute": True, "encode": True, "bend": False, "fit model": False}
    assert {s.key for s in first.steps} & {s.key for s in second.steps}


@pytest.mark.slow
def test_an_edited_docstring_or_comment_finds_what_is_cached(tmp_path) -> None:
    made = context(tmp_path)
    evaluate(made, query(made))
    text = SPACE.replace(
        "    def fit(", '    """Powers."""\n\n    # Nothing is learned.\n    def fit('
    )
    other = context(tmp_path, text)
    assert all(step.hit for step in evaluate(other, query(other)).steps)


@pytest.mark.full
@pytest.mark.slow
def test_a_process_that_never_saw_the_file_reads_what_it_made(tmp_path) -> None:
    made = context(tmp_path)
    outcome = evaluate(made, query(made))
    (tmp_path / "context.pkl").write_bytes(pickle.dumps((made, query(made).to_json())))
    script = (
        "import pickle, sys\n"
        "from prefect_tune.optimizers import Query\n"
        "from prefect_tune.tasks.trial.evaluate import evaluate_query\n"
        "context, query = pickle.load(open(sys.argv[1], 'rb'))\n"
        "query = Query.from_json(query, context.problem.find_space())\n"
        "came = evaluate_query(context, query)\n"
        "print(came.loss, all(step.hit for step in came.steps))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "context.pkl")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(outcome.loss), "True"]


def test_what_is_random_inside_an_estimator_is_seeded_too(tmp_path) -> None:
    text = SPACE.replace("estimator=Power,", "estimator=unseeded, flags=Flags(stochastic=True),")
    space, _ = find_space(write(tmp_path, text))
    algorithm = space.step("bend").algorithms[0]
    how = recipe(algorithm, Choice("power"), MatrixSummary(10, 2, "dense"), balanced=False)
    seeds = [build(how, seed).estimator.random_state for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


LIBRARIES = [
    ("class Mine(LogisticRegression):\n    pass", ["sklearn"]),
    ("def Mine():\n    return LGBMClassifier(n_estimators=3)", ["lightgbm", "sklearn"]),
    ("def Mine():\n    return BaggingClassifier(LGBMClassifier())", ["lightgbm", "sklearn"]),
]


@pytest.mark.parametrize(("code", "packages"), LIBRARIES)
def test_versions_of_what_the_users_code_builds_on_are_in_its_key(code, packages) -> None:
    imports = (
        "from lightgbm import LGBMClassifier\n"
        "from sklearn.ensemble import BaggingClassifier\n"
        "from sklearn.linear_model import LogisticRegression\n"
    )
    module = load_user_code(imports + code, "mine.py")
    algorithm = Algorithm(id="mine", estimator=module.Mine)
    how = recipe(algorithm, Choice("mine"), MatrixSummary(10, 2, "dense"), balanced=False)
    of_text, *others = how.to_json(0)["library"].split(", ")
    assert of_text == module.__name__
    expected = sorted({"numpy", "scipy", *packages})
    assert others == [f"{p} {import_module(p).__version__}" for p in expected]


@pytest.mark.slow
def test_an_artifact_of_the_users_code_is_shown_and_exported_where_it_was_never_loaded(
    tmp_path, monkeypatch
) -> None:
    made = context(tmp_path)
    enter(made, "test")
    key = next(s.key for s in evaluate(made, query(made)).steps if s.step == "bend")
    store_of(made).index.usage.flush()
    algorithm = made.problem.find_space().step("bend").algorithms[0]
    monkeypatch.delitem(sys.modules, algorithm.import_path.rpartition(".")[0])
    load_user_space.cache_clear()
    load_user_code.cache_clear()
    command = CommandLine(tmp_path)
    contents = command.json("artifacts", "show", key)["contents"]
    assert "unreadable" not in contents["estimator"]
    file = tmp_path / "power.pkl"
    assert command("artifacts", "export", key, file, "--part", "estimator").exit_code == 0
    script = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).exponent)"
    said = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "1.5\n"


REFUSED = [
    (("estimator=Power", "estimator=lambda: Power()"), "lambda"),
    (("estimator=Power", "estimator=made_here()"), "by its name"),
    (("def transform", "def change"), "no method transform"),
    (("lightgbm.LGBMClassifier", "sklearn.preprocessing.Normalizer"), "cannot be constructed"),
    (("lightgbm.LGBMClassifier", "lightgbm.LGBMClasifier"), "LGBMClasifier"),
    (("stochastic=True", "stochastic=False"), "stochastic=True"),
    (('"exponent", (', '"expo", ('), "'expo'"),
    (("estimator=Power", "estimator=unseeded"), "estimator__random_state"),
    (("import numpy as np", "import sys; sys.exit(3)"), "SystemExit: 3"),
    (("self.exponent = exponent", "raise SystemExit('no')"), "SystemExit: no"),
    (("import numpy", "import numpi"), "named 'numpi'"),
    (("class Power(", "class Power"), r"line \d+: SyntaxError"),
    (("space = Space(", "space = tuple(("), "SyntaxError|TypeError"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_space_that_cannot_be_used_is_refused_with_the_reason(tmp_path, change, message) -> None:
    with pytest.raises(BadInput, match=message):
        find_space(write(tmp_path, SPACE.replace(*change)))


def test_a_file_that_is_not_there_and_a_name_that_is_not_in_it_are_named(tmp_path) -> None:
    argument = write(tmp_path)
    with pytest.raises(UnknownName, match=r"'spce'.*'space'"):
        find_space(argument.replace(":space", ":spce"))
    with pytest.raises(BadInput, match=r"other\.py"):
        find_space(str(tmp_path / "other.py:space"))
    with pytest.raises(BadInput, match=r"py:NAME"):
        find_space(argument.removesuffix(":space"))
    with pytest.raises(BadInput, match="not a Space"):
        find_space(argument.replace(":space", ":Power"))


@pytest.mark.slow
def test_every_algorithm_of_the_catalogue_may_be_in_a_space_of_ones_own(tmp_path) -> None:
    (tmp_path / "own.py").write_text(
        "from dataclasses import replace\n"
        "from prefect_tune.tasks.catalogue.spaces import SPACES\n"
        "spaces = [replace(space, name='own ' + name) for name, space in SPACES.items()]\n"
        + "".join(f"space_{i} = spaces[{i}]\n" for i in range(len(SPACES)))
    )
    for i, space in enumerate(SPACES.values()):
        found, _ = find_space(f"{tmp_path / 'own.py'}:space_{i}")
        assert found.n_paths == space.n_paths


KINDS = """
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, IsolationForest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


class Duck:
    def fit(self, X, y):
        return self

    def predict(self, X):
        return X


class OldDuck(Duck):
    _estimator_type = "regressor"


class Untagged(BaseEstimator):
    def __init__(self, estimator=None):
        self.estimator = estimator

    fit, predict = Duck.fit, Duck.predict


def wrapped(): return make_pipeline(StandardScaler(), LinearRegression())
def searched(): return GridSearchCV(wrapped(), {})
def targets(): return TransformedTargetRegressor(LinearRegression())
def rest(): return OneVsRestClassifier(LinearRegression())
def bag(): return BaggingClassifier(LinearRegression(), random_state=0)
def logistic(): return make_pipeline(LogisticRegression(random_state=0))
def forest(): return IsolationForest(random_state=0)
def means(): return KMeans(random_state=0)
def mixture(): return GaussianMixture(random_state=0)
def delegating(): return Untagged(LinearRegression())
"""


def kind_space(folder: Path, estimator: str, target: str) -> str:
    model = f"Algorithm(id='own', estimator={estimator})"
    text = (
        f"space = Space('own', (IMPUTE, ENCODE, Step('fit model', ({model},))), target='{target}')"
    )
    return write(folder, f"{KINDS}{text}\n")


@pytest.mark.parametrize(
    ("estimator", "target", "kind"),
    [
        *((e, "classes", "regressor") for e in ("LinearRegression", "wrapped", "searched",
                                                "targets", "OldDuck")),
        *((e, "numbers", "classifier") for e in ("logistic", "rest", "bag")),
        ("means", "classes", "clusterer"),
        ("forest", "classes", "outlier_detector"),
        ("mixture", "numbers", "density_estimator"),
    ],
)  # fmt: skip
def test_a_model_that_predicts_something_else_is_refused(tmp_path, estimator, target, kind) -> None:
    with pytest.raises(BadInput, match=f"kind {kind}") as found:
        find_space(kind_space(tmp_path, estimator, target))
    right = "classifier" if target == "classes" else "regressor"
    assert (found.value.option, f"use a {right}" in found.value.remedy) == ("space", True)


def test_a_model_that_cannot_predict_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="no method predict"):
        find_space(kind_space(tmp_path, "StandardScaler", "classes"))


def test_a_class_of_the_program_itself_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="running program"):
        find_space(kind_space(tmp_path, "'__main__.Model'", "classes"))


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        *((e, "classes") for e in ("logistic", "rest", "bag", "Duck", "delegating")),
        *((e, "numbers") for e in ("LinearRegression", "targets", "searched", "Duck", "OldDuck")),
    ],
)
def test_a_model_of_the_right_kind_or_of_no_known_kind_is_taken(
    tmp_path, estimator, target
) -> None:
    space, _ = find_space(kind_space(tmp_path, estimator, target))
    assert space.target == target


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
space = Space(
    "any_order",
    (
        IMPUTE,
        ENCODE,
        order_step("rescale", "project"),
        Step("rescale", (none, standardize)),
        Step("project", (none, pca)),
        Step("fit model", (tree,)),
    ),
)
"""


@pytest.fixture
def made(tmp_path):
    return context(tmp_path, ORDERED_SPACE)


def ordered_query(context, order, rescale="standardize"):
    return configured(
        context,
        order=order,
        rescale=rescale,
        project=("pca", {"n_components": 2}),
        fit_model="tree",
    )


@pytest.mark.slow
def test_steps_run_and_are_kept_in_their_order(made) -> None:
    one = evaluate(made, ordered_query(made, "rescale_before_project"))
    other = evaluate(made, ordered_query(made, "project_before_rescale"))
    first_fold = [s.step for s in other.steps if s.fold == 0]
    assert first_fold == ["impute", "encode", "project", "rescale", "fit model"]
    assert one.fold_losses != other.fold_losses
    hits = {s.step: s.hit for s in other.steps}
    assert hits["encode"]
    assert not hits["rescale"]
    # What comes first in this order is what a pipeline without the other step makes.
    plain = evaluate(made, ordered_query(made, "rescale_before_project", rescale="none"))
    assert {s.step: s.hit for s in plain.steps}["project"]
