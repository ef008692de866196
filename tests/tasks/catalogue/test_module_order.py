"""Steps that change places: what runs, what is shared, and what users of such a space see."""

import pickle
from dataclasses import replace

import pytest
from command_line import CommandLine
from inputs import QUICK, write_table
from studies import configured, context_of, evaluate

from prefect_tune.flows.tuning import tune
from prefect_tune.tasks.user_space import find_space

SPACE = """
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
    (tmp_path / "my_space.py").write_text(SPACE)
    argument = f"{tmp_path / 'my_space.py'}:space"
    space, code = find_space(argument)
    context = context_of(tmp_path)
    problem = replace(context.problem, space=argument, space_digest=space.digest, space_code=code)
    return replace(context, problem=problem)


def query(context, order, rescale="standardize"):
    return configured(
        context,
        order=order,
        rescale=rescale,
        project=("pca", {"n_components": 2}),
        fit_model="tree",
    )


def test_steps_run_and_are_kept_in_their_order(made) -> None:
    one = evaluate(made, query(made, "rescale_before_project"))
    other = evaluate(made, query(made, "project_before_rescale"))
    first_fold = [s.step for s in other.steps if s.fold == 0]
    assert first_fold == ["impute", "encode", "project", "rescale", "fit model"]
    assert one.fold_losses != other.fold_losses
    hits = {s.step: s.hit for s in other.steps}
    assert hits["encode"]
    assert not hits["rescale"]
    # What comes first in this order is what a pipeline without the other step makes.
    plain = evaluate(made, query(made, "rescale_before_project", rescale="none"))
    assert {s.step: s.hit for s in plain.steps}["project"]


@pytest.mark.usefixtures("server")
def test_a_study_over_orders_ends_in_a_model_that_runs_in_its_order(tmp_path) -> None:
    (tmp_path / "my_space.py").write_text(SPACE)
    summary = tune(
        data=str(write_table(tmp_path)),
        target="target",
        trials=7,
        workers=1,
        study="ordered",
        store=str(tmp_path / "store"),
        **{**QUICK, "space": f"{tmp_path / 'my_space.py'}:space", "method": "admm"},
    )
    configuration = summary["incumbent"]["configuration"]
    order = configuration["order"]["algorithm"].split("_before_")
    idle = {s for s, c in configuration.items() if c["algorithm"] == "none"}
    command = CommandLine(tmp_path)
    file = tmp_path / "model.pkl"
    assert command("export", "ordered", file, "--store", tmp_path / "store").exit_code == 0
    steps = [name for name, _ in pickle.loads(file.read_bytes()).steps]
    assert [s for s in steps if s in order] == [s for s in order if s not in idle]
