"""Predictions of a study: those stay that something may still use, and others are made again."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from inputs import write_table
from studies import context_of, draw, evaluate, store_of

from prefect_tune.flows.study import retention as kept_predictions
from prefect_tune.flows.study.ensemble import choose_ensemble
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.retention import KeptPredictions
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Evaluation, Trial
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.key import PREDICTIONS, predictions_record
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import StudyContext

SPACE = space_named("small")
CONFIGURATIONS = [sample_configuration(SPACE, np.random.default_rng(i)) for i in range(400)]


@pytest.fixture
def store(tmp_path) -> Iterator[ArtifactStore]:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    store.leases.acquire("study s")
    yield store
    store.close()


def ended(number: int, loss: float, *, key: str = "", is_whole: bool = True) -> Trial:
    """A trial with a loss."""
    query = Query(CONFIGURATIONS[number], folds=None if is_whole else 1)
    evaluation = Evaluation(
        loss=loss, fold_losses=(loss,), cost_seconds=1.0, cost_uncached_seconds=1.0,
        predictions=(key or f"{number:064x}",),
    )  # fmt: skip
    return Trial(number, query).started().ended(evaluation)


def kept_by(store: ArtifactStore, **changes: bool) -> KeptPredictions:
    options = {"uses_all": False, "can_go_on": False, **changes}
    return KeptPredictions(store.records, "s", "study s", lambda _: 0.0, **options)


def record(store: ArtifactStore, trial: Trial) -> None:
    for key in trial.evaluation.predictions:
        store.records.put(predictions_record(key), {"label": [1]}, "s")


def left(store: ArtifactStore) -> set[int]:
    """Numbers of the trials whose predictions are there."""
    return {int(r.rsplit("/", 1)[-1], 16) for r in store.records.used_by("s", PREDICTIONS)}


def tell(kept: KeptPredictions, store: ArtifactStore, trials: list[Trial]) -> None:
    for trial in trials:
        record(store, trial)
        kept.tell(trial, None)


def test_the_best_and_the_last_stay(store) -> None:
    kept = kept_by(store)
    kept.begin([], None)
    tell(kept, store, [ended(number, float(number * 37 % 100)) for number in range(100)])
    best = {number for number in range(100) if number * 37 % 100 < 50}
    assert left(store) == best | set(range(90, 100))
    assert verify(store).is_sound
    assert store.index.journal.under_way() == []


def test_what_ensembles_of_all_trials_use_stays_up_to_a_bound(store, monkeypatch) -> None:
    monkeypatch.setattr(kept_predictions, "BEST_OF_ENSEMBLES", 70)
    kept = kept_by(store, uses_all=True)
    kept.begin([], None)
    tell(kept, store, [ended(number, float(number)) for number in range(100)])
    assert left(store) == {*range(70), *range(90, 100)}


def test_a_session_drops_what_those_before_it_left(store) -> None:
    trials = [ended(number, float(number)) for number in range(100)]
    for trial in trials:
        record(store, trial)
    store.records.put(predictions_record("f" * 64), {"label": [1]}, "s")  # of a refit
    kept_by(store).begin(trials, trials[70])
    assert left(store) == {*range(50), 70, *range(90, 100), int("f" * 64, 16)}


def test_what_is_shared_goes_with_the_last_that_keeps_it(store) -> None:
    kept = kept_by(store)
    kept.begin([], None)
    shared = f"{999:064x}"
    tell(kept, store, [ended(0, 1.0, key=shared), ended(1, 99.0, key=shared)])
    tell(kept, store, [ended(number, float(number)) for number in range(2, 100)])
    assert 999 in left(store)  # the first of the two is among the best
    store.records.put(predictions_record(f"{98:064x}"), {"label": [1]}, "another study")
    tell(kept, store, [ended(number, 0.5) for number in range(100, 160)])
    assert 999 not in left(store)
    assert store.records.exists(predictions_record(f"{98:064x}"))  # another study uses it


def test_what_a_method_may_go_on_with_stays_until_it_is_complete(store) -> None:
    kept = kept_by(store, can_go_on=True)
    kept.begin([], None)
    tell(kept, store, [ended(0, 99.0, is_whole=False), ended(1, 98.0, is_whole=False)])
    tell(kept, store, [ended(number, float(number % 7)) for number in range(2, 100)])
    assert {0, 1} <= left(store)
    whole = replace(ended(0, 99.0, key=f"{200:064x}"), number=200)
    assert whole.state == TrialState.COMPLETE
    tell(kept, store, [whole, *(ended(number, 0.5) for number in range(101, 160))])
    assert left(store) & {0, 1, 200} == {1}


def test_who_has_lost_the_study_drops_nothing(store) -> None:
    kept = kept_by(store)
    kept.begin([], None)
    store.leases.release("study s")
    with pytest.raises(LeaseLost):
        tell(kept, store, [ended(number, float(number)) for number in range(100)])
    assert len(left(store)) >= 60


@pytest.fixture
def context(tmp_path) -> StudyContext:
    return replace(context_of(tmp_path, data=write_table(tmp_path)), study="s")


def test_a_study_keeps_few_and_its_ensembles_are_the_same(context, monkeypatch) -> None:
    monkeypatch.setattr(kept_predictions, "_BEST", 3)
    monkeypatch.setattr(kept_predictions, "_LAST", 2)
    monkeypatch.setattr(kept_predictions, "_TRIALS_PER_DROP", 1)
    store = store_of(context)
    plan = StudyPlan(
        source=Source("table.csv", target="target"), data_name="table", problem=context.problem,
        folds=3, holdout=None, test_size=0.2, positive=None, chance_loss=40.0, method="random",
        ensemble=EnsembleRule("greedy"),
    )  # fmt: skip
    Ledger(store.database).create_study("s", plan.problem.to_json(), plan.to_json())
    with Study.opened(store, "s", plan) as study:
        with study.session():
            for seed in range(10):
                query = draw(context, seed)
                study.optimizer._propose = lambda *_, query=query: query  # type: ignore[method-assign]
                trial = study.start(study.ask(Budget()))
                study.tell(trial.ended(evaluate(context, query)))
        assert len(left(store)) <= 3 * (3 + 2)

        asked = []

        def restore(trials) -> None:
            asked.extend(trials)
            for trial in trials:
                evaluate(context, trial.query)

        chosen = choose_ensemble(study, "greedy", restore=restore)
        assert asked
        assert chosen.notes == ()
        for trial in study.optimizer.history.complete:
            evaluate(replace(context, use_cache=False), trial.query)
        assert choose_ensemble(study, "greedy") == chosen
