"""A study ends in a final model, on workers that are this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import context_of, draw, store_of
from worlds import evaluation

from prefect_tune.flows import final_model
from prefect_tune.flows.final_model import fit_final_model
from prefect_tune.flows.refitting import _in_turn
from prefect_tune.flows.study.ensemble import ChosenEnsemble
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.predict import final_model as saved_model
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.study.summary import summarize
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.optimizers import Budget
from prefect_tune.storage import Ledger, StoreLost
from prefect_tune.storage.cache.index import pinned_keys
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.final_model import Member
from prefect_tune.tasks.problem import StudyContext

NAME = "ended"
LOSSES = (30.0, 20.0, 10.0, 40.0)
BEST = 2


@dataclass
class Here:
    """Workers that are this process, and report no steps.

    Attributes:
        begun: Names and parameters of the tasks that were run.
        meanwhile: Called between members and what is made of them.
        too_slow: Numbers of the trials whose refit takes longer than it may.
        score: Called before the model is scored.
    """

    begun: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    too_slow: set[int] = field(default_factory=set)
    score: Callable[[], None] = lambda: None

    def run(self, task: Any, parameters: dict[str, Any], **_: Any) -> Any:
        fitted = {parameters.get("number"), *(m.number for m in parameters.get("members", ()))}
        if fitted & self.too_slow:
            raise TimeoutError("took too long")
        self.begun.append((task.name, dict(parameters)))
        if task.name == "score":
            self.score()
        return task.fn(**{**parameters, "report": "trial"}).data

    def run_all(self, jobs: Sequence[Job], **_: Any) -> list[Any]:
        results = [self.run(job.task, dict(job.parameters)) for job in jobs]
        self.meanwhile()
        return results

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.begun]


@dataclass
class Ending:
    """A study of four trials that is about to end, and how it did."""

    study: Study
    context: StudyContext
    workers: Here = field(default_factory=Here)
    notes: list[str] = field(default_factory=list)

    def end(self, rule: EnsembleRule | None = None, **context: Any) -> dict[str, Any]:
        """End it by a rule; the summary."""
        self.workers.begun.clear()
        self.notes.clear()
        self.study.plan = replace(self.study.plan, ensemble=rule, **context)
        observer: Any = SimpleNamespace(note=self.notes.append)
        fit_final_model(self.study, self.workers, replace(self.context, **context), observer)  # type: ignore[arg-type]
        return summarize(self.study.store, NAME)

    def pinned(self) -> set[str]:
        with self.study.store.database.read() as connection:
            return set(connection.execute(pinned_keys()).scalars())


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Ending]:
    context = replace(context_of(tmp_path), study=NAME)
    plan = StudyPlan(
        source=Source(str(tmp_path / "table.csv"), target="target"), data_name="table",
        problem=context.problem, folds=3, holdout=None, test_size=0.2, positive=None,
        chance_loss=40.0, method="random",
    )  # fmt: skip
    store = store_of(context)
    Ledger(store.database).create_study(NAME, plan.problem.to_json(), plan.to_json())
    with Study.opened(store, NAME, plan) as study:
        for number, loss in enumerate(LOSSES):
            study.optimizer._propose = lambda *_, seed=number: draw(context, seed + 10)  # type: ignore[method-assign]
            study.tell(study.start(study.ask(Budget())).ended(evaluation(loss)))
        yield Ending(study, context)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, int | None]]]:
    """Decides what is chosen, and returns what is asked for."""

    def decide(kind: Any, **weights: float) -> list[tuple[str, int | None]]:
        asked: list[tuple[str, int | None]] = []

        def chosen(
            study: Study, kind_asked: str, size: int | None, restore: object
        ) -> ChosenEnsemble:
            assert callable(restore)
            asked.append((kind_asked, size))
            members = tuple((study.trials[int(n[1:])], w) for n, w in weights.items())
            return ChosenEnsemble(kind, members, (10.0, 9.0))

        monkeypatch.setattr(final_model, "choose_ensemble", chosen)
        return asked

    return decide


def test_a_study_ends_in_its_best_trial_unless_it_is_told_otherwise(ending, choose) -> None:
    asked = choose("greedy", t2=0.5, t0=0.5)
    summary = ending.end()
    assert summary["ensemble"] is None
    assert summary["test_loss"] == summary["single_best_test_loss"] > 0
    assert ending.study.result["members"] == [{"trial": BEST, "weight": 1.0}]
    assert ending.workers.names == ["refit", "score"]
    assert asked == []


@pytest.mark.parametrize("said", [None, EnsembleRule("agnostic")])
def test_a_method_may_declare_that_its_studies_end_in_an_ensemble(
    ending, choose, monkeypatch, said
) -> None:
    method = ending.study.optimizer.method
    declared = replace(method, ensemble="agnostic" if said is None else None)
    monkeypatch.setattr(type(ending.study.optimizer), "method", declared)
    asked = choose("agnostic", t2=0.75, t1=0.25)
    summary = ending.end(said)
    assert asked == [("agnostic", None)]
    assert summary["ensemble"]["kind"] == "agnostic"
    assert summary["ensemble"]["members"] == ending.study.result["members"] == [
        {"trial": 2, "weight": 0.75}, {"trial": 1, "weight": 0.25},
    ]  # fmt: skip
    single = ending.end(EnsembleRule("single"))
    assert single["ensemble"] is None
    assert single["test_loss"] == summary["single_best_test_loss"]


def test_the_best_trial_is_tested_alone_at_no_cost_if_it_is_a_member(ending, choose) -> None:
    alone = ending.end()["test_loss"]
    choose("greedy", t2=0.5, t0=0.5)
    summary = ending.end(EnsembleRule("greedy", 2))
    assert ending.workers.names == ["refit member", "refit member", "refit", "score", "score"]
    assert summary["single_best_test_loss"] == alone
    choose("greedy", t0=0.5, t1=0.5)
    summary = ending.end(EnsembleRule("greedy", 3))
    assert ending.workers.names == ["refit member", "refit member", "refit", "score", "score"]
    assert ending.workers.begun[2][1]["what"] == "ensemble of 2"
    assert summary["single_best_test_loss"] == alone
    _, about = saved_model(ending.study.store, NAME)
    assert [member["trial"] for member in about["members"]] == [0, 1]


def test_members_that_begin_alike_take_turns_with_others() -> None:
    begin = ("a", "a", "b", "a", "b")
    members = [
        Member(number, {"configuration": {"rescale": rescale, "fit model": number}})
        for number, rescale in enumerate(begin)
    ]
    assert [member.number for member in _in_turn(members)] == [0, 2, 1, 4, 3]


def test_what_members_are_made_of_is_pinned_until_the_model_is_there(ending, choose) -> None:
    choose("greedy", t2=0.5, t0=0.5)
    seen: list[set[str]] = []
    ending.workers.meanwhile = lambda: seen.append(ending.pinned())
    ending.end(EnsembleRule("greedy", 2))
    assert len(seen[0]) > 4
    assert ending.pinned() == set()


def test_pins_are_released_where_a_member_cannot_be_fitted(ending, choose, monkeypatch) -> None:
    choose("greedy", t2=0.5, t0=0.5)

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr("prefect_tune.tasks.trial.node.fit_model", broken)
    with pytest.raises(StudyFailed, match=r"5 refits failed; trial 2 could not be fitted"):
        ending.end(EnsembleRule("greedy", 2))
    assert ending.pinned() == set()


def test_without_a_cache_one_task_fits_all_members_and_it_is_said(ending, choose) -> None:
    choose("greedy", t2=0.5, t0=0.5)
    cached = ending.end(EnsembleRule("greedy", 2))
    ending.study.set_result(members=None)
    uncached = ending.end(EnsembleRule("greedy", 2), use_cache=False)
    assert ending.workers.names == ["refit", "score", "score"]
    assert "without a cache, members are fitted one after the other" in ending.notes
    losses = ("test_loss", "single_best_test_loss")
    assert [cached[name] for name in losses] == [uncached[name] for name in losses]


def test_a_model_that_is_there_is_not_fitted_again_unless_another_trial_is_the_best(
    ending, choose
) -> None:
    choose("greedy", t2=0.5, t0=0.5)
    ending.end(EnsembleRule("greedy", 2))
    ending.end(EnsembleRule("greedy", 2))
    assert ending.workers.names == []
    ending.study.optimizer._propose = lambda *_: draw(ending.context, 20)  # type: ignore[method-assign]
    ending.study.tell(ending.study.start(ending.study.ask(Budget())).ended(evaluation(1.0)))
    ending.end(EnsembleRule("greedy", 2))
    assert ending.workers.names[-2:] == ["score", "score"]


def test_where_no_ensemble_is_better_the_methods_choice_is_the_model(ending, choose) -> None:
    choose("single", t2=1.0)
    picked = ending.end(EnsembleRule("greedy", 3))["ensemble"]
    assert (picked["kind"], picked["members"]) == ("single", [{"trial": BEST, "weight": 1.0}])
    assert any("no ensemble is better" in note for note in ending.notes)
    compared = ending.end(EnsembleRule("auto"))["ensemble"]
    assert compared["kind"] == "single"
    assert compared["members"] == [{"trial": BEST, "weight": 1.0}]


def test_the_next_best_is_taken_for_a_trial_that_cannot_be_fitted_in_time(ending) -> None:
    ending.workers.too_slow = {2, 1}
    summary = ending.end()
    assert ending.study.result["members"] == [{"trial": 0, "weight": 1.0}]
    assert summary["test_loss"] == summary["single_best_test_loss"]
    assert [note for note in ending.notes if "instead" in note] == [
        "refit of trial 2: took too long; trial 1 is tried instead",
        "refit of trial 1: took too long; trial 0 is tried instead",
    ]
    assert summary["instead_of"]["trials"] == [BEST]
    assert summary["instead_of"]["reason"] == "refit of trial 2: took too long"
    assert summary["model_trial"]["trial"] == 0
    assert summary["incumbent"]["trial"] == BEST


def test_a_refit_that_took_too_long_is_tried_again_when_limits_are_raised(ending) -> None:
    ending.workers.too_slow = {2}
    ending.end()
    ending.workers.too_slow = set()
    ending.end()
    assert ending.workers.names == []  # nothing has changed
    ending.study.plan = replace(ending.study.plan, trial_memory_bytes=10**10)
    ending.end()
    assert ending.study.result["members"] == [{"trial": BEST, "weight": 1.0}]


def test_the_best_trial_is_taken_for_an_ensemble_that_cannot_be_fitted(ending, choose) -> None:
    choose("greedy", t2=0.5, t0=0.5)
    ending.workers.too_slow = {0}
    summary = ending.end(EnsembleRule("greedy"))
    assert summary["ensemble"] is None
    assert ending.study.result["members"] == [{"trial": BEST, "weight": 1.0}]


def test_when_no_trial_can_be_fitted_the_reason_of_the_best_is_reported(ending) -> None:
    ending.workers.too_slow = {0, 1, 2, 3}
    with pytest.raises(StudyFailed, match="4 refits failed; refit of trial 2: took too long"):
        ending.end()


def test_an_accident_while_the_model_is_scored_leaves_the_model(ending) -> None:
    def dies() -> None:
        raise RuntimeError("the worker process died in 2 attempts")

    ending.workers.score = dies
    summary = ending.end()
    assert summary["test_loss"] is None
    assert summary["test_loss_undefined"] == "the worker process died in 2 attempts"
    assert saved_model(ending.study.store, NAME)[1]["trial"] == BEST
    ending.workers.score = lambda: None
    assert ending.end()["test_loss"] is not None
    assert ending.workers.names == ["score"]


def test_a_session_that_ends_before_the_model_is_scored_is_continued_there(ending) -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    ending.workers.score = ends
    with pytest.raises(KeyboardInterrupt):
        ending.end()
    assert saved_model(ending.study.store, NAME)[1]["test_loss"] is None
    ending.workers.score = lambda: None
    assert ending.end()["test_loss"] is not None
    assert ending.workers.names == ["score"]


@pytest.mark.parametrize("error", [MemoryError("no room"), ValueError("nothing to blend")])
def test_an_ensemble_that_cannot_be_chosen_does_not_cost_the_model(
    ending, monkeypatch, error
) -> None:
    def fail(*_: Any) -> ChosenEnsemble:
        raise error

    monkeypatch.setattr(final_model, "choose_ensemble", fail)
    summary = ending.end(EnsembleRule("auto"))
    assert summary["model_trial"]["trial"] == BEST
    assert any(f"no ensemble could be chosen: {type(error).__name__}" in n for n in ending.notes)


def test_a_store_that_is_lost_while_an_ensemble_is_chosen_ends_the_session(
    ending, monkeypatch
) -> None:
    def fail(*_: Any) -> ChosenEnsemble:
        raise StoreLost("away")

    monkeypatch.setattr(final_model, "choose_ensemble", fail)
    with pytest.raises(StoreLost):
        ending.end(EnsembleRule("auto"))
