"""Studies whose pipelines must meet constraints."""

from pathlib import Path
from typing import Any

import pytest
from finished.searched import searched
from inputs import QUICK, write_table

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress

pytestmark = pytest.mark.slow

FUNCTIONS = """
def broken(pipeline, X, y):
    raise OSError('no meter')

def worth(pipeline, X, y):
    return 1.0
"""


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return {"data": str(write_table(tmp_path)), "target": "target", "trials": 3, **QUICK}


def test_what_is_limited_is_in_each_trial_and_in_the_summary(given, tmp_path) -> None:
    function = f"{tmp_path}/mine.py:worth"
    limits = ["latency_us<=1e6", "disparate_impact(colour)<=100", f"{function}<=2"]
    done = searched(tmp_path, **given, constraint=limits)
    view = read_study(done.store, done.name)
    assert view.constraints == {"latency_us": 1e6, "disparate_impact(colour)": 100, function: 2}
    assert view.incumbent.constraints.keys() == view.constraints.keys()
    assert view.incumbent.constraints[function] == 1.0


@pytest.mark.parametrize(
    ("limit", "why"),
    [("model_size_bytes<=10", "allowed: 10"), ("mine.py:broken<=2", "OSError: no meter")],
)
def test_a_study_in_which_nothing_keeps_within_a_limit_says_by_how_much(
    given, tmp_path, monkeypatch, limit, why
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyFailed, match=why):
        searched(tmp_path, **given, constraint=[limit])
    view = read_study(ArtifactStore(StoreAddress(str(tmp_path / "store"))), "s")
    assert view.incumbent is None
    assert view.test_loss is None
    if why.startswith("allowed"):
        assert view.nearest_infeasible.constraints["model_size_bytes"] > 10
