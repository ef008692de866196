import numpy as np
import pytest
from worlds import mixed_space

from prefect_tune.optimizers import Configuration, Evaluation, Failure, Objective, Query, Trial
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.methods.fabolas.observations import LossScale, SubsetObservations
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import FailureKind

SPACE = mixed_space()
INPUTS = pipeline_inputs(SPACE)
SIZES = Sizes(100, 6_400, (1 / 64, 1 / 16, 1 / 4, 1.0))
ERROR = Objective(n_held_out=1000)
AUROC = Objective("auroc", unit="", upper=1.0, n_held_out=1000)
TREE, BAYES = ("none", "tree"), ("none", "bayes")


def tree(depth: int = 5) -> Configuration:
    return Configuration.of(SPACE, TREE, [{}, {"depth": depth}])


def bayes() -> Configuration:
    return Configuration.of(SPACE, BAYES, [{}, {}])


def observed(*trials: Trial, pending: int = 0, n_folds: int = 1) -> SubsetObservations:
    """Trials told in this order, with some under way behind them."""
    history = History()
    for trial in trials:
        history.record(trial)
    for i in range(pending):
        history.record(Trial(len(trials) + i, Query(bayes())))
    return SubsetObservations.of(history, SIZES, INPUTS, n_folds)


def ended(
    number: int,
    query: Query,
    loss: float = 10.0,
    seconds: float = 1.0,
    uncached: float | None = None,
) -> Trial:
    uncached = seconds if uncached is None else uncached
    return Trial(number, query).ended(Evaluation(loss, (loss,), seconds, uncached))


def failed(
    number: int, query: Query, kind: FailureKind = FailureKind.ERROR, seconds: float = 2.0
) -> Trial:
    return Trial(number, query).failed(Failure(kind, "no loss", cost_seconds=seconds))


def test_trials_stand_in_order_with_their_sizes_and_those_under_way_are_left_out() -> None:
    seen = observed(
        ended(0, Query(tree(), 1 / 64), 40.0),
        ended(1, Query(bayes(), 1 / 8), 30.0),
        ended(2, Query(tree(7)), 20.0),
        pending=2,
    )
    assert [t.number for t in seen.trials] == [0, 1, 2]
    assert seen.s == pytest.approx([0.0, 0.5, 1.0])
    assert seen.losses.tolist() == [40.0, 30.0, 20.0]
    encoded = INPUTS.of(INPUTS.encode([tree(), bayes(), tree(7)]))
    assert seen.inputs[:, :-1] == pytest.approx(encoded)


def test_rows_keep_their_parts_together() -> None:
    seen = observed(*(ended(i, Query(tree(i + 1)), float(i), i + 1.0) for i in range(5)))
    part = seen[np.array([False, True, False, True, False])]
    assert [t.number for t in part.trials] == [1, 3]
    assert part.losses.tolist() == [1.0, 3.0]
    assert part.log_seconds == pytest.approx(np.log([2.0, 4.0]))
    assert part.inputs == pytest.approx(seen.inputs[[1, 3]])
    assert len(part.candidates) == len(part) == 2


def test_a_failed_full_evaluation_has_the_worst_finite_loss() -> None:
    seen = observed(
        ended(0, Query(tree()), 20.0),
        ended(1, Query(tree(7), 1 / 64), 45.0),
        failed(2, Query(tree(9))),
        failed(3, Query(bayes())),
    )
    assert seen.losses.tolist() == [20.0, 45.0, 45.0, 45.0]


def test_without_any_loss_nothing_is_known_of_losses() -> None:
    seen = observed(failed(0, Query(tree())), failed(1, Query(bayes(), 1 / 64), FailureKind.MEMORY))
    assert np.isnan(seen.losses).all()


def test_a_path_that_worked_on_more_rows_has_no_loss_where_it_failed_on_few() -> None:
    small = [failed(i, Query(tree(i + 1), 1 / 64)) for i in range(1, 7)]
    seen = observed(ended(0, Query(tree(), 1 / 4), 20.0), *small)
    assert np.isnan(seen.losses[1:]).all()


def test_the_larger_subset_may_work_later() -> None:
    small = [failed(i, Query(tree(i + 1), 1 / 64)) for i in range(6)]
    seen = observed(*small, ended(6, Query(tree(), 1 / 16), 20.0))
    assert np.isnan(seen.losses[:6]).all()


def test_a_path_that_failed_where_it_had_worked_is_bad() -> None:
    """Neither on more rows than it worked on, nor on as many."""
    seen = observed(
        ended(0, Query(tree(), 1 / 16), 20.0),
        failed(1, Query(tree(2), 1 / 4)),
        failed(2, Query(tree(3), 1 / 16)),
        failed(3, Query(tree(4), 1 / 64)),
    )
    assert seen.losses[1:3].tolist() == [20.0, 20.0]
    assert np.isnan(seen.losses[3])


def test_three_failures_are_granted_to_a_path_that_never_worked() -> None:
    seen = observed(
        ended(0, Query(bayes()), 30.0),
        *(failed(i, Query(tree(i), 1 / 64)) for i in range(1, 6)),
        failed(6, Query(Configuration.of(SPACE, ("unit", "tree"), [{}, {"depth": 3}]), 1 / 64)),
    )
    assert np.isnan(seen.losses).tolist() == [False, True, True, True, False, False, True]
    assert seen.losses[4:6].tolist() == [30.0, 30.0]


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.MEMORY])
def test_what_more_rows_only_make_worse_is_bad_on_subsets_too(kind: FailureKind) -> None:
    seen = observed(ended(0, Query(tree()), 20.0), failed(1, Query(tree(7), 1 / 64), kind))
    assert seen.losses.tolist() == [20.0, 20.0]


@pytest.mark.parametrize("kind", [FailureKind.ERROR, FailureKind.CRASHED])
def test_other_failures_on_subsets_are_missing_values(kind: FailureKind) -> None:
    seen = observed(ended(0, Query(tree()), 20.0), failed(1, Query(tree(7), 1 / 64), kind))
    assert np.isnan(seen.losses[1])


def test_seconds_are_those_without_a_cache_and_of_one_fold() -> None:
    seen = observed(
        ended(0, Query(tree()), seconds=3.0, uncached=12.0),
        ended(1, Query(tree(), 1 / 4, folds=2), seconds=1.0, uncached=8.0),
        ended(2, Query(bayes()), seconds=6.0, uncached=0.0),
        failed(3, Query(tree(7)), seconds=9.0),
        n_folds=3,
    )
    assert np.exp(seen.log_seconds) == pytest.approx([4.0, 4.0, 2.0, 3.0])


def test_what_took_no_time_has_finite_seconds() -> None:
    seen = observed(ended(0, Query(tree()), seconds=0.0), failed(1, Query(bayes()), seconds=0.0))
    assert np.exp(seen.log_seconds) == pytest.approx([1e-3, 1e-3])


def of_many(n: int) -> SubsetObservations:
    """Every fourth of all rows, and losses that rise with the number."""
    return observed(
        *(ended(i, Query(tree(1 + i % 40), 1.0 if i % 4 == 0 else 1 / 64), i) for i in range(n))
    )


def test_few_are_not_thinned() -> None:
    seen = of_many(20)
    assert seen.thinned(20) is seen


def test_large_subsets_the_best_and_the_newest_are_kept() -> None:
    seen = of_many(240)
    kept = {t.number for t in seen.thinned(200).trials}
    assert len(kept) == 200
    assert set(range(0, 240, 4)) <= kept
    assert set(range(100)) <= kept
    others = sorted(kept - set(range(0, 240, 4)) - set(range(100)))
    assert others == [i for i in range(240) if i >= 100 and i % 4][-len(others) :]


def test_what_is_thinned_stays_in_order() -> None:
    numbers = [t.number for t in of_many(240).thinned(150).trials]
    assert len(numbers) == 150
    assert numbers == sorted(numbers)


def test_missing_losses_are_not_the_best() -> None:
    missing = [failed(i, Query(tree(i % 40 + 1), 1 / 64)) for i in range(100)]
    small = [ended(100 + i, Query(tree(i % 40 + 1), 1 / 16), float(i)) for i in range(110)]
    seen = observed(*missing, *small, ended(210, Query(tree())))
    kept = [t.number for t in seen.thinned(105).trials]
    assert [n for n in kept if n < 100] == []


def test_errors_are_learned_as_logarithms_with_half_a_row_in_error_at_least() -> None:
    """Fabolas sheet, 1.2: log(max(error, 0.5 / n))."""
    losses = np.array([0.0, 0.01, 5.0, 20.0])
    scale = LossScale.of(losses, ERROR, is_log=True)
    assert scale.floor == pytest.approx(0.05)
    assert scale.flat(losses) == pytest.approx(np.log([0.05, 0.05, 5.0, 20.0]))
    learned = scale.learned(losses)
    assert learned.mean() == pytest.approx(0.0, abs=1e-12)
    assert learned.std() == pytest.approx(1.0)
    assert scale.loss(learned) == pytest.approx([0.05, 0.05, 5.0, 20.0])


def test_a_floor_is_there_where_the_held_out_rows_are_not_known() -> None:
    scale = LossScale.of(np.array([0.0, 3.0]), Objective(), is_log=True)
    assert scale.floor == pytest.approx(0.25)


@pytest.mark.parametrize("is_log", [True, False])
@pytest.mark.parametrize("level", [0.0, 7.0])
def test_equal_losses_are_learned_as_zeros(level: float, *, is_log: bool) -> None:
    scale = LossScale.of(np.full(4, level), ERROR, is_log=is_log)
    assert scale.learned(np.full(4, level)).tolist() == [0.0] * 4
    assert scale.deviation == 1.0


def test_other_losses_are_learned_as_they_are_cut_off_above() -> None:
    """Fabolas sheet, 1.2: at the median and three interquartile ranges."""
    losses = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e8])
    scale = LossScale.of(losses, AUROC, is_log=False)
    low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
    capped = [1.0, 2.0, 3.0, 4.0, 5.0, middle + 3 * (high - low)]
    assert scale.flat(losses) == pytest.approx(capped)
    assert scale.loss(scale.learned(losses)) == pytest.approx(capped)


def test_where_most_losses_are_equal_nothing_is_cut_off() -> None:
    losses = np.array([0.1] * 9 + [0.5])
    assert LossScale.of(losses, AUROC, is_log=False).flat(losses) == pytest.approx(losses)


def test_logarithms_are_not_cut_off() -> None:
    losses = np.array([1.0, 1.1, 1.2, 1.3, 90.0])
    assert LossScale.of(losses, ERROR, is_log=True).flat(losses)[-1] == pytest.approx(np.log(90))
