"""Ensembles chosen by held-out predictions, and the predictions that a study keeps."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_studies import entered, tell
from studies import context_of, draw, evaluate
from worlds import evaluation

from prefect_tune.flows.ending import ensemble
from prefect_tune.flows.ending.ensemble import ChosenEnsemble, choose_ensemble, choosing_seconds
from prefect_tune.flows.study import retention
from prefect_tune.flows.study.retention import Retention
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Trial
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import PREDICTIONS, predictions_record
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.final import ensemble as tasks
from prefect_tune.tasks.final.ensemble import ChoiceCosts

pytestmark = pytest.mark.slow

N_TRIALS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choosing")


@pytest.fixture(scope="module")
def study(folder) -> Iterator[Study]:
    """Return a study with `N_TRIALS` complete trials."""
    context = replace(context_of(folder), study="choosing")
    with entered(context, "choosing") as study:
        for query in (draw(context, seed) for seed in range(N_TRIALS)):
            tell(study, evaluate(context, query), query)
        yield study


def chosen_of(study: Study, kind: Any, size: int | None = None, **more: Any) -> ChosenEnsemble:
    return choose_ensemble(study, best(study), kind, size, **more)


def best(study: Study) -> Trial:
    assert study.optimizer.history.incumbent is not None
    return study.optimizer.history.incumbent


def weights_of(chosen: ChosenEnsemble) -> dict[int, float]:
    return {trial.number: weight for trial, weight in chosen.members}


def test_agnostic_ensemble_weights_trials_by_the_frequency_of_being_best(
    study, monkeypatch
) -> None:
    chosen = chosen_of(study, "agnostic", 2)  # the size is of greedy selection
    weights, complete = weights_of(chosen), study.optimizer.history.complete
    assert (chosen.kind, len(chosen.losses)) == ("agnostic", 1)
    assert len(weights) > 2
    assert sum(weights.values()) == pytest.approx(1)
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    losses = {t.number: t.loss for t in complete}
    assert losses[next(iter(weights))] <= np.median(list(losses.values()))
    # Bootstraps are as large as in the search.
    monkeypatch.setattr(type(study.optimizer), "bootstraps", Bootstraps(1, 0.0))
    tied = [t.number for t in complete if t.loss == best(study).loss]
    expected = dict.fromkeys(tied, pytest.approx(1 / len(tied)))
    assert weights_of(chosen_of(study, "agnostic")) == expected


def test_auto_builds_the_most_promising_kind_of_ensemble(study, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 1e9)
    chosen = chosen_of(study, "auto")
    assert set(chosen.nested) == {"single", "greedy", "agnostic"}
    least: Any = min(chosen.nested, key=chosen.nested.__getitem__)
    assert chosen == replace(chosen_of(study, least), nested=chosen.nested)
    assert len(chosen.members) > 1
    # It is fitted in a few times what the best trial takes.
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 0.0)
    limited = chosen_of(study, "auto", most_refits=1)
    seconds = [ensemble.fold_seconds(trial) for trial, _ in limited.members]
    assert sum(seconds) <= ensemble.fold_seconds(best(study)) + 1e-9
    # If no kind can be judged, it is the best trial alone.
    monkeypatch.setattr(ensemble, "nested_losses", lambda *_, **__: {})
    unknown = chosen_of(study, "auto")
    assert (unknown.kind, weights_of(unknown)) == ("single", {best(study).number: 1.0})


def test_slow_choice_of_an_ensemble_considers_only_the_best_trials(study, monkeypatch) -> None:
    monkeypatch.setattr(study, "choice_costs", ChoiceCosts(100.0, 0.0, 0.0))
    ranked = [trial.number for trial in study.optimizer.history.best(N_TRIALS)]
    chosen = chosen_of(study, "agnostic", seconds=700.0)
    assert set(weights_of(chosen)) <= set(ranked[: N_TRIALS // 2])
    assert "6" in chosen.notes[0]
    assert weights_of(chosen_of(study, "auto", seconds=0.0)) == {best(study).number: 1.0}
    assert chosen_of(study, "agnostic", seconds=1300.0).notes == ()
    monkeypatch.setattr(study, "choice_costs", ChoiceCosts(0.0, 0.0, 0.0))
    for kind in ("greedy", "agnostic", "auto"):
        with pytest.raises(TimeoutError):  # it takes longer nevertheless
            chosen_of(study, kind, seconds=0.0)
    monkeypatch.setattr(study, "choice_costs", None)  # it is measured
    few, all_trials = (choosing_seconds(study, "greedy", 8, n) for n in (2, None))
    assert 0 < few < all_trials


def test_loss_of_an_ensemble_chosen_on_a_sample_covers_all_held_out_rows(
    study, monkeypatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_ROWS", 30)
    monkeypatch.setattr(tasks, "_RAREST", 5)
    chosen = chosen_of(study, "agnostic")
    trials, whole = ensemble.stored_predictions(study, [trial for trial, _ in chosen.members])
    assert len(ensemble._sample(study, whole).rows[0]) < len(whole.rows[0])
    weights = np.array([weights_of(chosen)[trial.number] for trial in trials])
    expected = whole.fold_losses(whole.blended(weights)).mean()
    assert chosen.losses == (pytest.approx(expected),)


def test_trials_without_predictions_are_excluded_from_ensembles_and_counted(study, folder) -> None:
    heaviest, *_ = weights_of(chosen_of(study, "agnostic"))
    key = study.trials[heaviest].evaluation.predictions[0]
    lay = folder / "store/records" / predictions_record(key)
    lay.rename(folder / "gone")
    try:
        chosen = chosen_of(study, "agnostic")
    finally:
        (folder / "gone").rename(lay)
    assert heaviest not in weights_of(chosen)
    assert chosen.notes[0].startswith("1 trial")
    assert chosen_of(study, "agnostic").notes == ()


SPACE = space_named("small")
CONFIGURATIONS = [sample_configuration(SPACE, np.random.default_rng(i)) for i in range(160)]


@pytest.fixture
def store(tmp_path) -> Iterator[ArtifactStore]:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    store.leases.acquire("study s")
    yield store
    store.close()


def ended(number: int, loss: float, *, key: int | None = None, is_whole: bool = True) -> Trial:
    """Return a trial with a loss and, unless `key` is given, separate predictions."""
    query = Query(CONFIGURATIONS[number], folds=None if is_whole else 1)
    predictions = (f"{number if key is None else key:064x}",)
    came = replace(evaluation(loss), predictions=predictions)
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
    """Return the trials that have predictions, by trial number."""
    return {int(r.rsplit("/", 1)[-1], 16) for r in store.records.used_by("s", PREDICTIONS)}


def keep(kept: Retention, store: ArtifactStore, trials: list[Trial]) -> None:
    for trial in trials:
        record(store, trial)
        kept.tell(trial, None)


def test_predictions_of_the_best_and_the_last_trials_are_kept(store, monkeypatch) -> None:
    keep(kept_by(store), store, [ended(n, float(n * 37 % 100)) for n in range(100)])
    assert left(store) == {n for n in range(100) if n * 37 % 100 < 50} | set(range(90, 100))
    assert verify(store).is_sound
    assert store.index.journal.unfinished() == []
    monkeypatch.setattr(retention, "BEST_OF_ENSEMBLES", 70)  # an ensemble may be of all trials
    keep(kept_by(store, uses_all=True), store, [ended(n, float(n)) for n in range(100)])
    assert left(store) == {*range(70), *range(90, 100)}


def test_session_drops_predictions_left_by_earlier_sessions(store) -> None:
    trials = [ended(number, float(number)) for number in range(100)]
    for trial in trials:
        record(store, trial)
    store.records.put(predictions_record("f" * 64), {"label": [1]}, "s")  # of a refit
    kept_by(store).begin(trials, trials[70])
    assert left(store) == {*range(50), 70, *range(90, 100), int("f" * 64, 16)}


def test_predictions_of_resumable_trials_are_kept_until_the_trials_are_complete(store) -> None:
    kept = kept_by(store, model_step="fit model")
    keep(kept, store, [ended(0, 99.0, is_whole=False), ended(1, 98.0, is_whole=False)])
    keep(kept, store, [ended(number, float(number % 7)) for number in range(2, 100)])
    assert {0, 1} <= left(store)
    whole = replace(ended(0, 99.0, key=200), number=200)
    keep(kept, store, [whole, *(ended(number, 0.5) for number in range(101, 160))])
    assert left(store) & {0, 1, 200} == {1}


def test_process_without_the_lease_of_a_study_drops_no_predictions(store) -> None:
    kept = kept_by(store)
    store.leases.release("study s")
    with pytest.raises(LeaseLost):
        keep(kept, store, [ended(number, float(number)) for number in range(100)])
    assert len(left(store)) >= 60


def test_running_study_drops_predictions_of_old_and_bad_trials(study, monkeypatch) -> None:
    monkeypatch.setattr(retention, "_BEST", 3)
    monkeypatch.setattr(retention, "_LAST", 2)
    monkeypatch.setattr(retention, "_TRIALS_PER_DROP", 1)
    context = replace(context_of(Path(study.store.address.url).parent), study="s")
    with entered(context, "s") as running, running.clock.running(), running.searching():
        for number in range(8):
            trial = ended(number, float(number))
            record(running.store, trial)
            tell(running, trial.evaluation, draw(context, number))
        assert left(running.store) == {0, 1, 2, 6, 7}
