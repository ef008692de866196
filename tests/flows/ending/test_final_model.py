"""Final models of studies, with workers in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished.searched import Here
from flow_studies import changed, entered, pinned, tell
from observing import Heard
from studies import context_of, draw
from worlds import evaluation

from prefect_tune.flows.ending import ensemble
from prefect_tune.flows.ending.ensemble import ChosenEnsemble
from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.results.predict import final_model as saved_model
from prefect_tune.flows.study.facts import ModelFacts, WeightedTrial
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.workers.dask_trials import Job
from prefect_tune.optimizers import Trial
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

NAME = "ended"
LOSSES = (30.0, 20.0, 10.0, 40.0)
BEST = 2
PAIR = EnsembleRule("greedy", 2)


@dataclass
class Workers(Here):
    """Workers in this process.

    Attributes:
        meanwhile: Called after the members are fitted, before the model is made.
        too_slow: Trials whose refit exceeds the time limit, by trial number.
        score: Called before the model is scored.
    """

    meanwhile: Callable[[], None] = lambda: None
    too_slow: set[int] = field(default_factory=set)
    score: Callable[[], None] = lambda: None

    def run(self, task: Any, parameters: dict[str, Any], **options: Any) -> Any:
        fitted = {parameters.get("number"), *(m.number for m in parameters.get("members", ()))}
        if fitted & self.too_slow:
            raise TimeoutError("took too long")
        if task.name == "score":
            self.score()
        return super().run(task, parameters, **options)

    def run_all(self, jobs: Sequence[Job], **options: Any) -> list[Any]:
        results = super().run_all(jobs, **options)
        self.meanwhile()
        return results


@dataclass
class Ending:
    """A study of four trials that is about to end, and its result."""

    study: Study
    context: StudyContext
    workers: Workers = field(default_factory=Workers)
    heard: Any = field(default_factory=Heard)

    def end(self, rule: EnsembleRule | None = None, *, use_cache: bool = True) -> dict[str, Any]:
        """End the study with an ensemble rule, and return the summary."""
        self.workers.begun.clear()
        self.heard.notes.clear()
        self.study.plan = changed(self.study.plan, ensemble=rule, no_cache=not use_cache)
        context = replace(self.context, use_cache=use_cache)
        fit_final_model(self.study, self.workers, context, self.heard)  # type: ignore[arg-type]
        return read_study(self.study.store, NAME).to_json()

    @property
    def members(self) -> tuple[WeightedTrial, ...]:
        return self.study.facts.model.members


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Ending]:
    context = replace(context_of(tmp_path), study=NAME)
    with entered(context, NAME) as study:
        for number, loss in enumerate(LOSSES):
            tell(study, evaluation(loss), draw(context, number + 10))
        yield Ending(study, context)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, int | None]]]:
    """Set the chosen ensemble, and return the list of requested choices."""

    def decide(kind: Any, **weights: float) -> list[tuple[str, int | None]]:
        asked: list[tuple[str, int | None]] = []

        def chosen(
            study: Study, _: Trial, kind_asked: str, size: int | None, seconds: float, **_more: Any
        ) -> ChosenEnsemble:
            assert seconds == inf
            asked.append((kind_asked, size))
            members = tuple((study.trials[int(n[1:])], w) for n, w in weights.items())
            return ChosenEnsemble(kind, members, (10.0, 9.0))

        monkeypatch.setattr(ensemble, "choose_ensemble", chosen)
        return asked

    return decide


def test_final_model_is_the_best_trial_by_default(ending, choose) -> None:
    asked = choose("greedy", t2=0.5, t0=0.5)
    summary = ending.end()
    assert summary["ensemble"] is None
    assert summary["test_loss"] == summary["single_best_test_loss"] > 0
    assert ending.members == (WeightedTrial(BEST, 1.0),)
    assert ending.workers.begun == ["refit", "score"]
    assert asked == []
    # The model is compared with the best constant on the test rows.
    check, split = summary["usefulness"], load_split(ending.study.store, ending.study.problem.split)
    assert (check["rows"], check["is_useless"]) == ("test", False)
    assert check["loss"] == pytest.approx(summary["test_loss"])
    y = load_dataset(ending.study.store, ending.study.problem.dataset).y[split.held_out(REFIT)]
    assert check["constant_loss"] == pytest.approx(100 * (1 - np.bincount(y).max() / len(y)))


@pytest.mark.parametrize("said", [None, EnsembleRule("agnostic")])
def test_method_may_declare_an_ensemble_as_default(ending, choose, monkeypatch, said) -> None:
    method = ending.study.optimizer.method
    declared = replace(method, ensemble="agnostic" if said is None else None)
    monkeypatch.setattr(type(ending.study.optimizer), "method", declared)
    asked = choose("agnostic", t2=0.75, t1=0.25)
    summary = ending.end(said)
    assert asked == [("agnostic", None)]
    assert summary["ensemble"]["kind"] == "agnostic"
    assert ending.members == (WeightedTrial(2, 0.75), WeightedTrial(1, 0.25))
    single = ending.end(EnsembleRule("single"))
    assert single["ensemble"] is None
    assert single["test_loss"] == summary["single_best_test_loss"]


def test_ensemble_members_are_refitted_and_the_best_trial_is_also_tested_alone(
    ending, choose
) -> None:
    alone = ending.end()["test_loss"]
    seen: list[set[str]] = []
    ending.workers.meanwhile = lambda: seen.append(pinned(ending.study.store))
    of_members = ["refit member", "refit member", "refit", "score", "score"]
    for weights in ({"t2": 0.5, "t0": 0.5}, {"t0": 0.5, "t1": 0.5}):
        choose("greedy", **weights)
        summary = ending.end(PAIR)
        assert ending.workers.begun == of_members
        assert summary["single_best_test_loss"] == alone
    _, about = saved_model(ending.study.store, NAME)
    assert [member["trial"] for member in about["members"]] == [0, 1]
    assert len(seen[0]) > 4
    assert pinned(ending.study.store) == set()
    ending.end(PAIR)
    assert ending.workers.begun == []  # the model is there
    # Without a cache, one task fits all members.
    ending.study.record(replace(ending.study.facts, model=ModelFacts()))
    uncached = ending.end(PAIR, use_cache=False)
    assert ending.workers.begun == ["refit", "score", "score"]
    assert uncached["test_loss"] == summary["test_loss"]


def test_best_trial_replaces_an_ensemble_that_cannot_be_fitted(ending, choose, monkeypatch) -> None:
    choose("greedy", t2=0.5, t0=0.5)
    with monkeypatch.context() as patched:
        patched.setattr("prefect_tune.tasks.trial.node.fit_model", lambda *_, **__: 1 // 0)
        with pytest.raises(StudyFailed, match="4 refits failed"):
            ending.end(PAIR)
    assert pinned(ending.study.store) == set()
    ending.workers.too_slow = {0}
    assert ending.end(PAIR)["ensemble"] is None
    assert ending.members == (WeightedTrial(BEST, 1.0),)


def test_next_best_trial_replaces_a_trial_that_cannot_be_fitted_in_time(ending) -> None:
    ending.workers.too_slow = {2, 1}
    summary = ending.end()
    assert ending.members == (WeightedTrial(0, 1.0),)
    assert summary["test_loss"] == summary["single_best_test_loss"]
    assert summary["instead_of"]["trials"] == [BEST]
    assert "took too long" in summary["instead_of"]["reason"]
    assert (summary["model_trial"]["trial"], summary["incumbent"]["trial"]) == (0, BEST)
    ending.workers.too_slow = set()
    ending.end()
    assert ending.workers.begun == []  # nothing has changed
    ending.study.plan = changed(ending.study.plan, trial_memory=10**10)
    ending.end()
    assert ending.members == (WeightedTrial(BEST, 1.0),)


def test_model_is_kept_after_an_error_during_scoring(ending) -> None:
    def fail(error: BaseException) -> None:
        raise error

    ending.workers.score = lambda: fail(RuntimeError("the worker process died"))
    summary = ending.end()
    assert (summary["test_loss"], summary["test_loss_undefined"]) == (
        None, "the worker process died"
    )  # fmt: skip
    ending.workers.score = lambda: fail(KeyboardInterrupt())  # and the session ends there
    with pytest.raises(KeyboardInterrupt):
        ending.end()
    assert saved_model(ending.study.store, NAME)[1]["trial"] == BEST
    ending.workers.score = lambda: None
    assert ending.end()["test_loss"] is not None
    assert ending.workers.begun == ["score"]


def test_model_is_fitted_even_if_choosing_an_ensemble_fails(ending, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "choose_ensemble", lambda *_, **__: 1 // 0)
    summary = ending.end(EnsembleRule("auto"))
    assert summary["model_trial"]["trial"] == BEST
    assert any("no ensemble could be chosen" in note for note in ending.heard.notes)
