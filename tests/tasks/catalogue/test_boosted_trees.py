"""Boosted trees of other libraries: libraries that are missing."""

import json
import os
import sys
from subprocess import run as run_process

import pytest

from prefect_tune.optimizers import Algorithm, Space, Step
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.libraries import missing_library, usable_part
from prefect_tune.tasks.catalogue.spaces import SPACES

BROKEN = 'raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")'
WITHOUT = """
import json, sys
sys.modules["catboost"] = None
from prefect_tune.tasks.catalogue.libraries import algorithms_of, missing_libraries, usable_part
from prefect_tune.tasks.catalogue.spaces import SPACES
space = SPACES["modern"]
print(json.dumps([[str(m) for m in missing_libraries(algorithms_of(space))],
                  [str(m) for m in missing_libraries(algorithms_of(SPACES["flash"]))], space.digest,
                  [a.id for a in usable_part(space).steps[-1].algorithms]]))
"""


@pytest.mark.slow
def test_a_space_is_the_same_where_libraries_are_missing_and_they_are_named(tmp_path) -> None:
    (tmp_path / "lightgbm.py").write_text(BROKEN)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT]
    ran = run_process(command, env=environment, capture_output=True, text=True, check=True)
    missing, of_flash, digest, models = json.loads(ran.stdout)
    assert digest == SPACES["modern"].digest
    broken, absent = missing
    assert "libgomp.so.1" in broken
    assert ("brew install libomp" if sys.platform == "darwin" else "libgomp1") in broken
    assert "prefect-tune[boosting]" in absent
    assert of_flash == []
    assert "xgboost" in models
    assert not {"lightgbm", "catboost"} & set(models)


def test_a_library_that_comes_later_is_found(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert "pip install" in str(missing_library("lightgbm"))
    monkeypatch.undo()
    assert missing_library("lightgbm") is None


def test_a_step_without_any_usable_algorithm_is_refused_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "catboost", None)
    trees = SPACES["modern"].step("fit model").algorithm("catboost")
    alone = Algorithm(id="trees", estimator=trees.estimator, requires=trees.requires)
    with pytest.raises(BadInput, match=r"catboost for trees.*boosting"):
        usable_part(Space("own", (Step("fit model", (alone,)),)))
