"""Modules imported by a user's file: followed imports, keys of steps, and use on workers."""

import json
import pickle
import shutil
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from processes import run_python
from studies import configured, context_of, evaluate

from prefect_tune.optimizers import Query
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.constraints import parse_constraint
from prefect_tune.tasks.problem import Problem, StudyContext, algorithm_ids
from prefect_tune.tasks.user_code import (
    CodeBehind,
    distributions_of,
    follow,
    load_user_code,
    packages_of_distributions,
    portable_pickle,
)
from prefect_tune.tasks.user_space import find_space

PREP = """
from sklearn.base import BaseEstimator, TransformerMixin
{imports}


class Prep(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        {inside}
        return {formula}
"""
SPACE = """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE
{imports}

prep = Algorithm(id="prep", estimator={estimator}{more})
model = Algorithm(
    id="logistic",
    estimator="sklearn.linear_model.LogisticRegression",
    flags=Flags(stochastic=True),
)
space = Space("own", (IMPUTE, ENCODE, Step("prepare", (prep,)), Step("fit model", (model,))))
"""
IN_FILE = PREP.format(imports="from formula import bend", inside="pass", formula="bend(X)")


def prep(formula: str, imports: str = "", inside: str = "pass") -> str:
    return PREP.format(formula=formula, imports=imports, inside=inside)


def space_text(estimator: str, imports: str = "", more: str = "") -> str:
    return SPACE.format(estimator=estimator, imports=imports, more=more)


def write(folder: Path, **texts: str) -> str:
    """Write modules, with `__in__` for `/`, and return the argument of the space."""
    for name, text in texts.items():
        file = folder / (name.replace("__in__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return f"{folder / 'space.py'}:space"


def context(folder: Path, argument: str) -> StudyContext:
    """Return a study of the test table in a user's space, with all imported modules."""
    made, (space, code) = context_of(folder), find_space(argument)
    problem = replace(
        made.problem, space=argument, space_digest=space.digest, space_code=code.text,
        behind=code.behind, algorithms=algorithm_ids(space),
    )  # fmt: skip
    return replace(made, problem=problem)


def query(made: StudyContext) -> Query:
    return configured(made, prepare="prep", fit_model="logistic")


def keys(made: StudyContext) -> dict[str, bool]:
    """Return for each step whether a cached result was used."""
    return {step.step: step.hit for step in evaluate(made, query(made)).steps}


def names(behind: CodeBehind) -> list[str]:
    return [module.name for module in behind.modules]


def test_imports_are_followed_through_functions_packages_and_relative_names(tmp_path) -> None:
    write(
        tmp_path,
        first="def late():\n    from second import x\n    import numpy.linalg, json\n",
        second="import pack.low.leaf\n",
        pack__in____init__="from . import high\n",
        pack__in__high="from .low import helper as h\n",
        pack__in__low__in____init__="",
        pack__in__low__in__leaf="",
        pack__in__low__in__helper="from ..side import y\n",
        pack__in__side="from prefect_tune import Space\n",
        pack__in__unused="",
        unused="",
    )
    behind = follow("import first\nimport nothing_such\n", tmp_path / "space.py")
    inside = ("high", "low", "low.helper", "low.leaf", "side")
    assert names(behind) == ["first", "pack", *(f"pack.{name}" for name in inside), "second"]
    assert not behind.unfollowed


@pytest.mark.parametrize(
    ("source", "is_followed"),
    [
        (None, False),
        ({"url": "file:///w.whl", "archive_info": {}}, False),
        ({"url": "file:///p", "dir_info": {}}, True),
        ({"url": "https://host/p", "vcs_info": {"vcs": "git", "commit_id": "a"}}, True),
    ],
)
def test_only_installed_wheels_are_identified_by_version(
    tmp_path, monkeypatch, request, source, is_followed
) -> None:
    place = tmp_path / "site-packages"
    write(place, some_dist="value = 1")
    monkeypatch.syspath_prepend(str(place))
    packages_of_distributions.cache_clear()
    request.addfinalizer(packages_of_distributions.cache_clear)
    info = place / "some_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some_dist\nVersion: 1.0\n")
    (info / "RECORD").write_text("some_dist.py,,\n")
    if source is not None:
        (info / "direct_url.json").write_text(json.dumps(source))
    assert names(follow("import some_dist", None)) == ["some_dist"] * is_followed
    write(tmp_path / "mine", some_dist="")  # a neighbor of the same name is
    assert names(follow("import some_dist", tmp_path / "mine" / "space.py")) == ["some_dist"]


@pytest.mark.parametrize("package", ["sklearn", "numpy", "yaml", "dateutil", "prefect"])
def test_distributions_of_packages_equal_the_result_of_the_standard_library(package) -> None:
    assert distributions_of(package) == sorted(set(packages_distributions()[package]))


def test_modules_that_cannot_be_followed_are_listed_and_never_share_cached_steps(tmp_path) -> None:
    (tmp_path / f"compiled{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    write(tmp_path, helper="import compiled", names="import importlib as i\ni.import_module(name)")
    behind = follow("import helper, names", tmp_path / "space.py")
    assert [entry.split()[0] for entry in behind.unfollowed] == ["compiled", "names"]
    assert names(behind) == ["helper"]
    again = follow("import helper, names", tmp_path / "space.py")
    assert load_user_code("", "a.py", behind).__name__ != load_user_code("", "a.py", again).__name__


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [
        {"space": space_text("Prep", IN_FILE), "formula": "def bend(X):\n    return {}\n"},
        {
            "space": space_text('"helper_b.Prep"'),
            "helper_b": "__version__ = '0.1.0'\n" + prep("{}"),
        },
    ],
    ids=["function", "dotted path"],
)
def test_step_of_an_edited_module_is_never_served_from_the_old_cache(tmp_path, texts) -> None:
    def rewrite(formula: str) -> StudyContext:
        written = {name: text.replace("{}", formula) for name, text in texts.items()}
        return context(tmp_path, write(tmp_path / "mine", **written))

    first = rewrite("X * 0")
    wrong = evaluate(first, query(first))
    assert all(keys(rewrite("X * 0  # a comment")).values())
    second = rewrite("X")
    assert keys(second) == {"impute": True, "encode": True, "prepare": False, "fit model": False}
    assert evaluate(second, query(second)).loss < wrong.loss  # both texts run in this process
    assert evaluate(replace(first, use_cache=False), query(first)).loss == wrong.loss


@pytest.mark.slow
def test_process_on_another_machine_runs_the_stored_text(tmp_path) -> None:
    argument = write(
        tmp_path / "mine",
        space=space_text('"helper_b.Prep"'),
        helper_b=prep("bend(X)", "from formula import bend"),
        formula="def bend(X):\n    return X * 2\n",
    )
    made = context(tmp_path, argument)
    loss = evaluate(made, query(made)).loss
    stored = Problem.from_json(json.loads(json.dumps(made.problem.to_json())))
    sent = tmp_path / "sent.pkl"
    sent.write_bytes(pickle.dumps((replace(made, problem=stored), query(made).to_json())))
    shutil.rmtree(tmp_path / "mine")
    write(tmp_path / "elsewhere", helper_b=prep("X * 0"))  # of another study there
    script = (
        "import pickle, sys\n"
        "from dataclasses import replace\n"
        "from prefect_tune.optimizers import Query\n"
        "from prefect_tune.tasks.trial.evaluate import evaluate_query\n"
        "context, query = pickle.load(open(sys.argv[1], 'rb'))\n"
        "query = Query.from_json(query, context.problem.find_space())\n"
        "served = all(step.hit for step in evaluate_query(context, query).steps)\n"
        "print(evaluate_query(replace(context, use_cache=False), query).loss, served)\n"
    )
    assert run_python(script, sent, cwd=tmp_path / "elsewhere").split() == [str(loss), "True"]


def test_module_name_of_a_space_without_own_imports_is_unchanged() -> None:
    known = "prefect_tune_user_code_"
    assert load_user_code("x = 1", "a.py").__name__ == f"{known}c1d611b1c3b65ebacc4169bde1b99cbe"
    assert load_user_code("x = 1", "space.py", CodeBehind()) is load_user_code("x = 1", "space.py")


@pytest.mark.slow
def test_modules_that_import_each_other_are_pickled_by_value(tmp_path) -> None:
    write(
        tmp_path,
        pack__in____init__="import pack.high\nimport pack.low\n",
        pack__in__high="import pack.low\ndef f(x):\n    return pack.low.g(x)\n",
        pack__in__low="import pack.high\ndef g(x):\n    return x + 1\n",
    )
    text = "import pack.high\ndef call(x):\n    return pack.high.f(x)\n"
    module = load_user_code(text, "space.py", follow(text, tmp_path / "space.py"))
    data = portable_pickle(module.call)
    (tmp_path / "call.pkl").write_bytes(data)
    script = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(1))"
    assert run_python(script, tmp_path / "call.pkl") == "2\n"


def test_constraint_function_may_use_a_helper_module(tmp_path) -> None:
    function = "from helper import one\ndef f(pipeline, X, y):\n    return one()\n"
    found = []
    for value in (1, 2):
        write(tmp_path, mine=function, helper=f"def one():\n    return {value}\n")
        quantity = parse_constraint(f"{tmp_path / 'mine.py'}:f<=1").quantity
        module = load_user_code(quantity.code, "mine.py", quantity.behind)
        assert module.f(None, None, None) == value
        found.append(quantity.digest)
    assert found[0] != found[1]


@pytest.mark.slow
def test_step_key_includes_the_content_of_data_files(tmp_path) -> None:
    folder = tmp_path / "mine"
    text = space_text('"sklearn.preprocessing.StandardScaler"', more=', depends_on=("w.csv",)')
    argument = write(folder, space=text)
    with pytest.raises(BadInput, match=r"w\.csv"):
        find_space(argument)
    (folder / "w.csv").write_text("1")
    keys(first := context(tmp_path, argument))
    assert all(keys(first).values())
    (folder / "w.csv").write_text("22")
    changed = context(tmp_path, argument)
    assert keys(changed) == {"impute": True, "encode": True, "prepare": False, "fit model": False}


@pytest.mark.parametrize(
    ("line", "is_followed"),
    [
        ("import importlib; load = importlib.import_module; load('helper')", False),
        ("from importlib.util import spec_from_file_location as s; s('numpy', 'helper.py')", False),
        ("exec(open('helper.py').read())", False),
        ("import builtins as b; b.exec(open('helper.py').read())", False),
        ("import numpy; numpy.frombuffer(b'').eval()", True),
    ],
)
def test_code_loaded_indirectly_is_reported_as_unfollowed(tmp_path, line, is_followed) -> None:
    """A method with the name of a Python function, such as a model's `eval`, loads no code."""
    behind = follow(line, tmp_path / "space.py")
    assert bool(behind.unfollowed) != is_followed
