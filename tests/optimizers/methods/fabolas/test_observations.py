"""Sizes, subsets, and results as they are learned from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from subset_worlds import configuration
from worlds import mixed_space, recorded

from prefect_tune.optimizers import (
    Configuration,
    Evaluation,
    Failure,
    History,
    Objective,
    Query,
    Trial,
)
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.methods.fabolas.observations import LossScale, SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import (
    COST,
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
    Sizes,
    Subsets,
    log_size,
)
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
    history = recorded(*trials)
    for i in range(pending):
        history.record(Trial(len(trials) + i, Query(bayes())))
    return SubsetObservations.of(history, SIZES, INPUTS, n_folds)


def ended(number, query, loss=10.0, seconds=1.0, uncached=None) -> Trial:
    uncached = seconds if uncached is None else uncached
    return Trial(number, query).ended(Evaluation(loss, (loss,), seconds, uncached))


def failed(number, query, kind=FailureKind.ERROR, seconds=2.0) -> Trial:
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


def test_a_failure_has_the_worst_loss_unless_its_path_worked_on_more_rows() -> None:
    seen = observed(
        ended(0, Query(tree()), 20.0),
        ended(1, Query(tree(7), 1 / 64), 45.0),
        failed(2, Query(tree(9))),
        failed(3, Query(bayes())),
    )
    assert seen.losses.tolist() == [20.0, 45.0, 45.0, 45.0]
    small = [failed(i, Query(tree(i + 1), 1 / 64)) for i in range(1, 7)]
    seen = observed(ended(0, Query(tree(), 1 / 4), 20.0), *small)
    assert np.isnan(seen.losses[1:]).all()


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


def of_many(n: int) -> SubsetObservations:
    """Every fourth of all rows, and losses that rise with the number."""
    return observed(
        *(ended(i, Query(tree(1 + i % 40), 1.0 if i % 4 == 0 else 1 / 64), i) for i in range(n))
    )


def test_large_subsets_the_best_and_the_newest_are_kept_and_no_missing_loss_is_best() -> None:
    seen = of_many(240)
    kept = {t.number for t in seen.thinned(200).trials}
    assert len(kept) == 200
    assert set(range(0, 240, 4)) <= kept
    assert set(range(100)) <= kept
    others = sorted(kept - set(range(0, 240, 4)) - set(range(100)))
    assert others == [i for i in range(240) if i >= 100 and i % 4][-len(others) :]
    missing = [failed(i, Query(tree(i % 40 + 1), 1 / 64)) for i in range(100)]
    small = [ended(100 + i, Query(tree(i % 40 + 1), 1 / 16), float(i)) for i in range(110)]
    seen = observed(*missing, *small, ended(210, Query(tree())))
    kept = [t.number for t in seen.thinned(105).trials]
    assert [n for n in kept if n < 100] == []


def test_errors_are_learned_as_logarithms_with_half_a_row_in_error_at_least() -> None:
    """log(max(error, 0.5 / n))."""
    losses = np.array([0.0, 0.01, 5.0, 20.0])
    scale = LossScale.of(losses, ERROR, is_log=True)
    assert scale.floor == pytest.approx(0.05)
    assert scale.flat(losses) == pytest.approx(np.log([0.05, 0.05, 5.0, 20.0]))
    learned = scale.learned(losses)
    assert learned.mean() == pytest.approx(0.0, abs=1e-12)
    assert learned.std() == pytest.approx(1.0)
    assert scale.loss(learned) == pytest.approx([0.05, 0.05, 5.0, 20.0])


def test_other_losses_are_learned_as_they_are_cut_off_above_if_they_differ() -> None:
    """At the median and three interquartile ranges."""
    losses = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e8])
    scale = LossScale.of(losses, AUROC, is_log=False)
    low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
    capped = [1.0, 2.0, 3.0, 4.0, 5.0, middle + 3 * (high - low)]
    assert scale.flat(losses) == pytest.approx(capped)
    assert scale.loss(scale.learned(losses)) == pytest.approx(capped)
    losses = np.array([0.1] * 9 + [0.5])
    assert LossScale.of(losses, AUROC, is_log=False).flat(losses) == pytest.approx(losses)


LARGE = Objective(n_rows=50_000, n_classes=10, n_rarest=4_000)


def test_sizes_are_logarithmic_and_those_outside_the_range_at_its_ends() -> None:
    s = log_size([3_125, 50_000 / 64, 100, 50_000], 100, 50_000)
    assert s == pytest.approx([0.5538594424, 0.3307891636, 0.0, 1.0], abs=1e-10)
    assert (1 - s[0]) ** 2 == pytest.approx(0.1990413971, abs=1e-10)
    assert log_size([10, 10_000], 100, 5_000).tolist() == [0.0, 1.0]
    assert log_size([1, 7], 7, 7).tolist() == [1.0, 1.0]


@given(n_min=st.integers(1, 1_000), factor=st.floats(1.5, 1e5), s=st.floats(0, 1))
def test_rows_at_s_are_at_s(n_min: int, factor: float, s: float) -> None:
    n_max = int(np.ceil(n_min * factor))
    n = n_min * (n_max / n_min) ** s
    assert float(log_size(n, n_min, n_max)) == pytest.approx(s, abs=1e-9)


@pytest.mark.parametrize(
    ("objective", "smallest", "n_min"),
    [
        (LARGE, 1 / 256, 195),
        (Objective(n_rows=50_000, n_classes=200, n_rarest=200), 1 / 16, 3_125),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=3_000), 1 / 128, 70),
        (Objective(n_rows=9_000, n_classes=0, n_rarest=5), 1 / 128, 70),
        (Objective(n_rows=9_000), 1 / 128, 70),
        (Objective(n_rows=400, n_classes=2, n_rarest=100), 1 / 8, 50),
        (Objective(), 1 / 64, 1),
    ],
)
def test_the_smallest_subset_holds_enough_rows_and_each_class(objective, smallest, n_min) -> None:
    sizes = Sizes.of(objective)
    assert (sizes.shares[0], sizes.n_min, sizes.note) == (smallest, n_min, "")
    assert not sizes.is_single


def test_a_rare_class_raises_the_smallest_subset_with_a_note() -> None:
    sizes = Sizes.of(Objective(n_rows=9_000, n_classes=2, n_rarest=33))
    assert sizes.shares == (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    assert "1/16" in sizes.note
    assert "33 training rows" in sizes.note


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (Objective(n_rows=399, n_classes=2, n_rarest=100), "399"),
        (Objective(n_rows=40), "40"),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=15), "15 of the 9000"),
        (Objective(n_rows=9_000, n_classes=2, n_rarest=1), "18000"),
    ],
)
def test_data_without_room_for_subsets_is_worked_on_whole(objective: Objective, why: str) -> None:
    sizes = Sizes.of(objective)
    assert sizes.is_single
    assert (sizes.shares, sizes.n_min) == ((1.0,), sizes.n_max)
    assert sizes.note.startswith("subsets cannot help")
    assert why in sizes.note
    assert float(sizes.s(1.0)) == 1.0


@given(n_rows=st.integers(1, 10_000_000), n_classes=st.integers(0, 300), rare=st.floats(0, 1))
def test_shares_of_any_data_halve_and_each_holds_what_it_needs(n_rows, n_classes, rare) -> None:
    rarest = max(1, int(rare * n_rows / max(n_classes, 1)))
    sizes = Sizes.of(Objective(n_rows=n_rows, n_classes=n_classes, n_rarest=rarest))
    assert [2**-k for k in reversed(range(len(sizes.shares)))] == list(sizes.shares)
    assert len(sizes.shares) <= 12
    s = sizes.s(sizes.shares)
    assert s[-1] == 1.0
    if not sizes.is_single:
        assert len(sizes.shares) >= 4
        assert s == pytest.approx(np.linspace(0, 1, len(s)), abs=5e-3)
        assert sizes.shares[0] * n_rows >= max(50, 10 * n_classes)
        assert not n_classes or sizes.shares[0] * rarest >= 2


BASES = {"log": LOG_LOSS, "raw": RAW_LOSS, "paper": PAPER_LOSS, "cost": COST, "full": FULL}


def test_worked_values_of_the_paper() -> None:
    phi = PAPER_LOSS.functions(log_size(np.array([3125.0]), 100, 50_000))
    assert phi[0] == pytest.approx([1.0, 0.1990413971], abs=1e-10)


@pytest.mark.parametrize("name", BASES)
def test_slopes_agree_with_central_differences(name: str) -> None:
    basis, s = BASES[name], np.linspace(0.1, 0.9, 5)
    expected = (basis.functions(s + 1e-6) - basis.functions(s - 1e-6)) / 2e-6
    assert basis.slopes(s) == pytest.approx(expected, abs=1e-8)


def test_a_power_law_of_the_rows_is_linear_where_logarithms_are_learned() -> None:
    rows = np.array([100.0, 400.0, 3_000.0, 50_000.0])
    s = log_size(rows, 100, 50_000)
    for basis, power in ((LOG_LOSS, -0.4), (COST, 1.8)):
        phi, target = basis.functions(s)[:, :2], np.log(3.0 * rows**power)
        weights = np.linalg.lstsq(phi, target)[0]
        assert phi @ weights == pytest.approx(target, abs=1e-9)
    exponent = weights[1] / np.log(500)
    assert exponent == pytest.approx(1.8)


def test_two_tasks_are_told_apart_and_the_full_data_is_the_first() -> None:
    assert TASKS.functions(np.array([0.0, 0.6, 1.0])).tolist() == [[0, 1], [0, 1], [1, 0]]


HERE = configuration(0.5)


def asked(*queries: Query) -> History:
    return recorded(*(Trial(number, query) for number, query in enumerate(queries)))


def test_families_are_given_in_turn_and_anew_for_a_configuration() -> None:
    subsets, history = Subsets(3), History()
    for i, share in enumerate([0.25, 0.5, 1.0, 0.25, 0.25, 1.0, 0.25]):
        history.record(Trial(i, subsets.query(configuration(i / 10), share, history)))
    assert [t.query.subset_draw for t in history] == [0, 1, 0, 2, 0, 0, 1]
    history = asked(Query(HERE, 0.25, 2), Query(configuration(0.1), 0.25, 0))
    # The turn is that of the family that it has had.
    assert Subsets(3).query(HERE, 0.25, history).subset_draw == 0
    assert Subsets(3).query(HERE, 0.5, history).subset_draw == 2
    history = asked(Query(HERE, 0.25, 0), Query(HERE, 0.25, 1))
    assert Subsets(2).query(HERE, 0.25, history).subset_draw in (0, 1)


def test_small_subsets_are_on_the_first_folds_and_others_on_all_of_them() -> None:
    subsets = Subsets(folds=1)
    assert subsets.query(HERE, 0.125, History()).folds == 1
    assert subsets.query(HERE, 0.25, History()).folds is None
    assert subsets.query(HERE, 1.0, History()) == Query(HERE)
    assert Subsets().query(HERE, 0.125, History()).folds is None


@pytest.mark.parametrize(("n_draws", "share", "most"), [(3, 0.25, 3), (3, 1.0, 1), (1, 0.25, 1)])
def test_a_size_is_asked_for_as_often_as_it_has_families(n_draws, share, most) -> None:
    assert Subsets(n_draws).most(share) == most
