"""A study goes on in the space that it was started with when the catalogue gets an algorithm."""

from dataclasses import replace

import pytest
from inputs import write_table

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.prepare import PreparedStudy, prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Algorithm, Budget
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue import spaces

SMALL = spaces.SPACES["small"]
MODELS = SMALL.steps[-1].algorithms
NEW = Algorithm(id="new", estimator="sklearn.naive_bayes.BernoulliNB")


def knows(monkeypatch: pytest.MonkeyPatch, *models: Algorithm) -> None:
    """Let the catalogue's space `small` have these models."""
    step = replace(SMALL.steps[-1], algorithms=models)
    monkeypatch.setitem(spaces.SPACES, "small", replace(SMALL, steps=(*SMALL.steps[:-1], step)))


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    given = {"data": str(write_table(tmp_path)), "target": "target", "space": "small"}

    def start(study: str, method: str) -> PreparedStudy:
        options = {**dict.fromkeys(OPTIONS), **given, "study": study, "method": method}
        return prepare(TuneSettings.parse(options))

    return start


def queries(made: PreparedStudy, n: int) -> list[object]:
    with Study.opened(made.store, made.name) as study:
        return [study.ask(Budget()).query for _ in range(n)]


@pytest.mark.parametrize("method", ["random", "flash", "admm"])
def test_a_study_asks_as_if_its_space_had_not_grown(start, monkeypatch, method) -> None:
    expected = queries(start("never", method), 6)
    grows = start("grows", method)
    before = queries(grows, 3)
    knows(monkeypatch, NEW, *MODELS)
    assert before + queries(grows, 3) == expected


def test_a_study_of_a_space_that_changed_otherwise_is_refused(start, monkeypatch) -> None:
    made = start("s", "random")
    knows(monkeypatch, NEW, *MODELS[1:])
    with pytest.raises(BadInput, match="knows otherwise; continue it with the version"):
        Study(made.store, made.name)
