"""Ensembles chosen from predictions of held-out rows, and which of those a study keeps."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest
from flow_studies import entered, tell
from studies import context_of, draw, evaluate, store_of
from worlds import evaluation

from prefect_tune.flows.ending import ensemble
from prefect_tune.flows.ending.ensemble import choose_ensemble, choosing_seconds
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.study import retention as kept_predictions
from prefect_tune.flows.study.retention import Retention
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Trial
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import PREDICTIONS, predictions_record
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.final.ensemble import ChoiceCosts, HeldOut
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

N_TRIALS = 12


def studied(context: StudyContext, name: str, n_trials: int, **changes: object) -> Iterator[Study]:
    """A study with so many complete trials."""
    context = replace(context, study=name)
    with entered(context, name, **changes) as study:
        for query in (draw(context, seed) for seed in range(n_trials)):
            tell(study, evaluate(context, query), query)
        yield study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choosing")


@pytest.fixture(scope="module")
def context(folder: Path) -> StudyContext:
    return context_of(folder)


@pytest.fixture(scope="module")
def study(context: StudyContext) -> Iterator[Study]:
    yield from studied(context, "choosing", N_TRIALS)


def best(study: Study):
    assert study.optimizer.history.incumbent is not None
    return study.optimizer.history.incumbent


def weights_of(chosen) -> dict[int, float]:
    return {trial.number: weight for trial, weight in chosen.members}


def lose(study: Study, folder: Path, number: int) -> Path:
    """Take a trial's predictions of the first fold away; where they lay."""
    trial = study.trials[number]
    assert trial.evaluation is not None
    lay = folder / "store/records" / predictions_record(trial.evaluation.predictions[0])
    lay.rename(folder / "gone")
    return lay


def test_the_best_trial_alone_is_an_ensemble_of_one(study) -> None:
    chosen = choose_ensemble(study, best(study), "single")
    assert (chosen.kind, chosen.members) == ("single", ((best(study), 1.0),))


def test_an_agnostic_ensemble_weighs_all_trials_by_how_often_they_are_best(study) -> None:
    chosen = choose_ensemble(study, best(study), "agnostic", 2)  # the size is of greedy selection
    weights = weights_of(chosen)
    assert chosen.kind == "agnostic"
    assert len(weights) > 2
    assert sum(weights.values()) == pytest.approx(1)
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert len(chosen.losses) == 1
    assert weights_of(choose_ensemble(study, best(study), "agnostic")) == weights
    losses = {t.number: t.loss for t in study.optimizer.history.complete}
    assert losses[next(iter(weights))] <= np.median(list(losses.values()))


def test_bootstraps_are_as_large_as_in_the_search(study, monkeypatch) -> None:
    monkeypatch.setattr(type(study.optimizer), "bootstraps", Bootstraps(1, 0.0))
    weights = weights_of(choose_ensemble(study, best(study), "agnostic"))
    tied = [t.number for t in study.optimizer.history.complete if t.loss == best(study).loss]
    assert weights == dict.fromkeys(tied, pytest.approx(1 / len(tied)))


def test_auto_says_what_it_expects_of_each_kind_and_builds_the_best(study, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 1e3)
    chosen = choose_ensemble(study, best(study), "auto")
    assert set(chosen.nested) == {"single", "greedy", "agnostic"}
    least = min(chosen.nested, key=chosen.nested.__getitem__)
    expected = choose_ensemble(study, best(study), least)
    assert chosen == replace(expected, nested=chosen.nested)


def test_a_choice_that_would_take_too_long_considers_only_the_best_trials(
    study, monkeypatch
) -> None:
    monkeypatch.setattr(study, "choice_costs", ChoiceCosts(100.0, 0.0, 0.0))
    ranked = [trial.number for trial in study.optimizer.history.best(N_TRIALS)]
    chosen = choose_ensemble(study, best(study), "agnostic", seconds=700.0)
    assert set(weights_of(chosen)) <= set(ranked[: N_TRIALS // 2])
    (note,) = chosen.notes
    assert note == f"too little time to choose from {N_TRIALS} trials; using the best 6"
    alone = choose_ensemble(study, best(study), "auto", seconds=0.0)
    assert weights_of(alone) == {best(study).number: 1.0}
    assert choose_ensemble(study, best(study), "agnostic", seconds=1300.0).notes == ()


def test_the_seconds_of_a_choice_are_predicted_from_the_metric_at_work(study, monkeypatch) -> None:
    fold_losses = HeldOut.fold_losses

    def slow(held_out: HeldOut, predictions) -> np.ndarray:
        sleep(0.005)
        return fold_losses(held_out, predictions)

    monkeypatch.setattr(HeldOut, "fold_losses", slow)
    monkeypatch.setattr(study, "choice_costs", None)
    predicted = choosing_seconds(study, "greedy", 8)
    began = perf_counter()
    choose_ensemble(study, best(study), "greedy", 8)
    taken = perf_counter() - began
    assert 0.1 * taken < predicted < 10 * taken  # machines are noisy
    monkeypatch.setattr(study, "choice_costs", ChoiceCosts(0.0, 0.0, 0.0))
    for kind in ("greedy", "agnostic", "auto"):
        with pytest.raises(TimeoutError):
            choose_ensemble(study, best(study), kind, seconds=0.05)


def test_what_auto_builds_is_fitted_in_a_few_times_what_the_best_takes(study, monkeypatch) -> None:
    def seconds_of(trial) -> float:
        return sum(cost.seconds for cost in trial.evaluation.steps) / 3

    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 1e9)  # fits on a busy machine may be slow
    assert len(choose_ensemble(study, best(study), "auto").members) > 1
    monkeypatch.setattr(ensemble, "MOST_REFITS", 1.0)
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 0.0)
    chosen = choose_ensemble(study, best(study), "auto")
    assert sum(seconds_of(trial) for trial, _ in chosen.members) <= seconds_of(best(study)) + 1e-9


def test_where_no_kind_can_be_judged_the_best_trial_alone_is_taken(study, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "nested_losses", lambda *_, **__: {})
    chosen = choose_ensemble(study, best(study), "auto")
    assert (chosen.kind, weights_of(chosen)) == ("single", {best(study).number: 1.0})
    assert "held-out" in chosen.notes[0]


def test_trials_whose_predictions_are_gone_are_left_out_and_counted(study, folder) -> None:
    heaviest = next(iter(weights_of(choose_ensemble(study, best(study), "agnostic"))))
    lay = lose(study, folder, heaviest)
    try:
        chosen = choose_ensemble(study, best(study), "agnostic")
    finally:
        (folder / "gone").rename(lay)
    assert heaviest not in weights_of(chosen)
    (note,) = chosen.notes
    assert note.startswith("1 trial excluded")
    assert choose_ensemble(study, best(study), "agnostic").notes == ()


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
    came = replace(evaluation(loss), predictions=(key or f"{number:064x}",))
    return Trial(number, query).started().completed(came)


def kept_by(store: ArtifactStore, **changes: Any) -> Retention:
    options = {"uses_all": False, "model_step": None, **changes}
    kept = Retention(store, "s", lambda _: 0.0, **options)
    kept.begin([], None)
    return kept


def record(store: ArtifactStore, trial: Trial) -> None:
    for key in trial.evaluation.predictions:
        store.records.put(predictions_record(key), {"label": [1]}, "s")


def left(store: ArtifactStore) -> set[int]:
    """Numbers of the trials whose predictions are there."""
    return {int(r.rsplit("/", 1)[-1], 16) for r in store.records.used_by("s", PREDICTIONS)}


def keep(kept: Retention, store: ArtifactStore, trials: list[Trial]) -> None:
    for trial in trials:
        record(store, trial)
        kept.tell(trial, None)


def test_the_best_and_the_last_stay(store) -> None:
    kept = kept_by(store)
    keep(kept, store, [ended(number, float(number * 37 % 100)) for number in range(100)])
    best = {number for number in range(100) if number * 37 % 100 < 50}
    assert left(store) == best | set(range(90, 100))
    assert verify(store).is_sound
    assert store.index.journal.unfinished() == []


def test_what_ensembles_of_all_trials_use_stays_up_to_a_bound(store, monkeypatch) -> None:
    monkeypatch.setattr(kept_predictions, "BEST_OF_ENSEMBLES", 70)
    kept = kept_by(store, uses_all=True)
    keep(kept, store, [ended(number, float(number)) for number in range(100)])
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
    keep(kept, store, [ended(0, 1.0, key=shared), ended(1, 99.0, key=shared)])
    keep(kept, store, [ended(number, float(number)) for number in range(2, 100)])
    assert 999 in left(store)  # the first of the two is among the best
    store.records.put(predictions_record(f"{98:064x}"), {"label": [1]}, "another study")
    keep(kept, store, [ended(number, 0.5) for number in range(100, 160)])
    assert 999 not in left(store)
    assert store.records.exists(predictions_record(f"{98:064x}"))  # another study uses it


def test_resumable_trials_stay_until_they_are_complete(store) -> None:
    kept = kept_by(store, model_step="fit model")
    keep(kept, store, [ended(0, 99.0, is_whole=False), ended(1, 98.0, is_whole=False)])
    keep(kept, store, [ended(number, float(number % 7)) for number in range(2, 100)])
    assert {0, 1} <= left(store)
    whole = replace(ended(0, 99.0, key=f"{200:064x}"), number=200)
    assert whole.state == TrialState.COMPLETE
    keep(kept, store, [whole, *(ended(number, 0.5) for number in range(101, 160))])
    assert left(store) & {0, 1, 200} == {1}


def test_who_has_lost_the_study_drops_nothing(store) -> None:
    kept = kept_by(store)
    store.leases.release("study s")
    with pytest.raises(LeaseLost):
        keep(kept, store, [ended(number, float(number)) for number in range(100)])
    assert len(left(store)) >= 60


def test_a_study_keeps_few_and_its_ensembles_are_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kept_predictions, "_BEST", 3)
    monkeypatch.setattr(kept_predictions, "_LAST", 2)
    monkeypatch.setattr(kept_predictions, "_TRIALS_PER_DROP", 1)
    context = replace(context_of(tmp_path), study="s")
    with entered(context, "s", ensemble=EnsembleRule("greedy")) as study:
        with study.timed(), study.searching():
            for query in (draw(context, seed) for seed in range(10)):
                tell(study, evaluate(context, query), query)
        assert len(left(store_of(context))) <= 3 * (3 + 2)
        kept = choose_ensemble(study, best(study), "greedy")
        assert kept.losses[-1] <= best(study).loss
