"""Statistics of compared methods: published values, enumeration, scipy, and by hand."""

import json
from collections.abc import Iterable
from itertools import permutations, product
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import beta, poisson_binom, rankdata, ttest_1samp

from prefect_tune.flows.comparison.curves import pooled_standings
from prefect_tune.flows.comparison.pairwise import (
    better_by_counts,
    better_by_errors,
    better_in_most,
    better_on_average,
    better_on_data_set,
    expected_ranks,
    pairwise,
    poisson_binomial,
    sign_test,
    wins,
)
from prefect_tune.flows.comparison.standings import (
    CURVE_COLUMNS,
    SIGNIFICANCE,
    ComparisonOutcome,
    MethodStanding,
    PairStanding,
    Stage,
    Standings,
    least_p_value,
    rank_p_values,
    standings,
    state_at,
)
from prefect_tune.tasks.bad_input import BadInput

FIVE = [0.9, 0.8, 0.6, 0.55, 0.3]


TWENTY_TWO = [0.95] * 12 + [0.7] * 6 + [0.2] * 4


UNKNOWN = np.array([nan])


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=7)


some_losses = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(2, 4)),
    elements=st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.8, inf]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("n_won", "n", "p"),
    [(14, 18, 0.015442), (18, 22, 0.002172), (12, 22, 0.415906), (25, 39, 0.054065),
     (26, 39, 0.026626)],
)  # fmt: skip
def test_the_sign_test_has_its_known_values(n_won, n, p) -> None:
    assert sign_test(n_won, n - n_won) == pytest.approx(p, abs=5e-7)


@pytest.mark.parametrize(
    ("given_probabilities", "expected"), [(FIVE, 0.662618), (TWENTY_TWO, 0.970185), ([1.0], 0.75)]
)
def test_the_poisson_binomial_test_has_its_known_values(given_probabilities, expected) -> None:
    assert better_in_most(given_probabilities) == pytest.approx(expected, abs=5e-7)


@pytest.mark.slow
@given(probabilities)
def test_wins_are_counted_as_by_enumeration_and_by_scipy(given_probabilities) -> None:
    n = len(given_probabilities)
    expected, share = np.zeros(n + 1), 0.0
    for outcome in product([0, 1], repeat=n):
        chance = np.prod(
            [p if won else 1 - p for p, won in zip(given_probabilities, outcome, strict=True)]
        )
        k = sum(outcome)
        expected[k] += chance
        share += chance * beta(k + 1, n - k + 1).sf(0.5)
    np.testing.assert_allclose(poisson_binomial(given_probabilities), expected, atol=1e-12)
    theirs = poisson_binom(given_probabilities).pmf(np.arange(n + 1))
    np.testing.assert_allclose(theirs, expected, atol=1e-12)
    assert better_in_most(given_probabilities) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("won", "lost", "p"), [(12, 5, 0.951874), (5, 5, 0.5), (1, 0, 0.75)])
def test_counts_have_their_known_probabilities(won, lost, p) -> None:
    assert better_by_counts(won, lost) == pytest.approx(p, abs=5e-7)


def test_the_average_is_judged_by_students_t() -> None:
    differences = np.array([-0.3, 0.1, -0.4, -0.2, -0.1])
    expected = ttest_1samp(differences, 0, alternative="less").pvalue
    assert better_on_average(differences) == pytest.approx(1 - expected)
    assert better_on_average(-differences) == pytest.approx(expected)
    assert better_on_average(differences) > 0.9


@st.composite
def overlaps(draw) -> tuple[int, int, int, int]:
    """Rows that both models get wrong, either of them alone, and neither."""
    return tuple(draw(st.integers(0, 40)) for _ in range(4))


@pytest.mark.slow
@given(overlaps())
def test_errors_are_never_judged_more_surely_than_the_rows_would_be(rows) -> None:
    both, first_alone, second_alone, neither = rows
    n_wrong, n_wrong_other = both + first_alone, both + second_alone
    found = better_by_errors(n_wrong, n_wrong_other, sum(rows))
    exact = better_by_counts(second_alone, first_alone)
    assert abs(found - 0.5) <= abs(exact - 0.5) + 1e-12
    if n_wrong != n_wrong_other:
        assert (found > 0.5) == (n_wrong < n_wrong_other)
    if both == 0 or neither == 0:  # nothing can be rarer shared than that
        assert found == pytest.approx(exact)


def test_one_repeat_is_judged_by_its_errors_or_else_by_who_won() -> None:
    first, second = np.array([0.05]), np.array([0.08])
    assert better_on_data_set(first, second, np.array([1000.0])) == better_by_counts(80, 50)
    assert better_on_data_set(first, second, UNKNOWN) == 0.75
    assert better_on_data_set(second, first, UNKNOWN) == 0.25
    assert better_on_data_set(first, first, UNKNOWN) == pytest.approx(0.5)
    assert better_on_data_set(first, np.array([inf]), np.array([1000.0])) == 0.75


def test_several_repeats_are_judged_by_their_mean_difference_where_it_can_be_told() -> None:
    rows = np.full(3, 1000.0)
    first, second = np.array([0.05, 0.06, 0.07]), np.array([0.08, 0.07, 0.09])
    assert better_on_data_set(first, second, rows) == better_on_average(first - second)
    # Differences that are all the same, to rounding: Student's t would be certain of three.
    assert better_on_data_set(first, first + 0.01, rows) == better_by_counts(3, 0) == 0.9375
    without = np.array([0.05, inf, inf])
    assert better_on_data_set(without, second, rows) == better_by_counts(1, 2)
    assert better_on_data_set(without, without, rows) == pytest.approx(0.5)


def test_expected_ranks_equal_the_papers_tables() -> None:
    # Table 1, support vector regressor: ESMBO, ERS, SMBO, RS.
    frequencies = np.array(
        [[0.50, 0.66, 0.82, 0.86], [0.34, 0.50, 0.50, 0.77], [0.18, 0.50, 0.50, 0.64],
         [0.14, 0.23, 0.36, 0.50]]
    )  # fmt: skip
    np.testing.assert_allclose(expected_ranks(frequencies), [1.66, 2.38, 2.68, 3.27], atol=0.011)


@pytest.mark.slow
@given(some_losses)
def test_what_one_wins_the_other_loses(losses) -> None:
    found = pairwise(losses, np.arange(len(losses)) // 2)
    one = np.ones(found.win_frequencies.shape)
    np.testing.assert_allclose(found.win_frequencies + found.win_frequencies.T, one)
    np.testing.assert_allclose(found.poisson_binomial + found.poisson_binomial.T, one)
    np.testing.assert_allclose(
        found.on_data_sets + found.on_data_sets.swapaxes(1, 2), np.ones(found.on_data_sets.shape)
    )
    k = losses.shape[1]
    assert found.expected_ranks.sum() == pytest.approx(k * (k + 1) / 2)


@pytest.mark.slow
@given(some_losses, st.randoms(use_true_random=False))
def test_the_order_of_methods_and_of_repeats_does_not_matter(losses, random) -> None:
    data_sets = np.arange(len(losses)) // 2
    methods, repeats = list(range(losses.shape[1])), list(range(len(losses)))
    random.shuffle(methods)
    random.shuffle(repeats)
    found = pairwise(losses, data_sets)
    moved = pairwise(losses[repeats][:, methods], data_sets[repeats])
    np.testing.assert_allclose(moved.expected_ranks, found.expected_ranks[methods])
    square = np.ix_(methods, methods)
    for name in ("win_frequencies", "n_won", "sign_test", "poisson_binomial"):
        np.testing.assert_allclose(getattr(moved, name), getattr(found, name)[square])
    np.testing.assert_allclose(moved.on_data_sets, found.on_data_sets[:, methods][:, :, methods])


@pytest.mark.slow
@given(some_losses)
def test_with_one_repeat_each_it_is_the_paper_pair_by_pair(losses) -> None:
    n, k = losses.shape
    found = pairwise(losses, range(n))
    np.testing.assert_allclose(found.expected_ranks, rankdata(losses, axis=1).mean(axis=0))
    for a, b in product(range(k), repeat=2):
        won, lost = (losses[:, a] < losses[:, b]).sum(), (losses[:, a] > losses[:, b]).sum()
        assert found.win_frequencies[a, b] == pytest.approx((won + (n - won - lost) / 2) / n)
        assert found.n_won[a, b] == won
        assert found.sign_test[a, b] == sign_test(won, lost)
        on_data_sets = 0.25 + wins(losses)[:, a, b] / 2
        assert found.on_data_sets[:, a, b] == pytest.approx(on_data_sets)
        most = better_in_most(found.on_data_sets[:, a, b])
        assert found.poisson_binomial[a, b] == pytest.approx(most)


def test_a_data_set_counts_once_however_many_repeats_it_has() -> None:
    losses = np.array([[1.0, 2.0]] * 6 + [[1.0, 2.0], [2.0, 1.5], [3.0, 2.0]])
    found = pairwise(losses, [0] * 6 + [1] * 3)
    assert found.win_frequencies[0, 1] == pytest.approx((1 + 1 / 3) / 2)
    assert (found.n_won[0, 1], found.n_won[1, 0]) == (1, 1)
    assert found.sign_test[0, 1] == 0.75
    assert found.on_data_sets.shape == (2, 2, 2)
    assert found.on_data_sets[0, 0, 1] == better_by_counts(6, 0)
    assert found.on_data_sets[1, 0, 1] == better_on_average(losses[6:, 0] - losses[6:, 1])


def test_of_one_data_set_its_repeats_are_the_signs() -> None:
    losses = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 1.0], [2.0, 1.5], [1.0, 2.0]])
    found = pairwise(losses, [7] * 5)
    assert (found.n_won[0, 1], found.n_won[1, 0]) == (3, 1)
    assert found.sign_test[0, 1] == sign_test(3, 1)
    assert found.win_frequencies[0, 1] == 0.7
    p = found.on_data_sets[0, 0, 1]
    assert found.poisson_binomial[0, 1] == pytest.approx(0.75 * p + 0.25 * (1 - p))


@pytest.mark.slow
@pytest.mark.parametrize("n_data_sets", [22])
def test_of_methods_that_are_alike_few_are_called_better(n_data_sets) -> None:
    rng = np.random.default_rng(0)
    found = [
        pairwise(rng.normal(size=(3 * n_data_sets, 2)), np.arange(3 * n_data_sets) // 3)
        for _ in range(200)
    ]
    assert sum(f.sign_test[0, 1] <= 0.05 for f in found) <= 20  # at most 5 % are expected
    assert sum(f.poisson_binomial[0, 1] > 0.8 for f in found) <= 20


def curves(
    test_losses: dict[str, list[float]], dataset: str = "d", comparison: str = "c"
) -> pd.DataFrame:
    """Runs of 8 trials at seconds 1 to 8 of 8, whose loss falls by one with each trial."""
    rows = []
    for method, losses in test_losses.items():
        for repeat, test_loss in enumerate(losses):
            study = f"{comparison}-{repeat}-{method}"
            common = {
                "comparison": comparison, "data": dataset, "dataset": dataset, "space": "small",
                "metric": "error", "method": method, "repeat": repeat, "seed": repeat,
                "study": study, "budget_seconds": 8.0, "budget_trials": None, "failure": None,
                "ask_seconds": 0.0, "cost_seconds": 1.0,
            }  # fmt: skip
            rows.append({**common, "trials": 0, "seconds": 0.0})
            rows += [
                {
                    **common, "trial": n, "trials": n + 1, "seconds": n + 1.0,
                    "loss": test_loss + 8 - n, "incumbent": n, "incumbent_loss": test_loss + 8 - n,
                    "test_loss": test_loss + (7 - n) / 10,
                }
                for n in range(8)
            ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))


def by_method(rows: Iterable[MethodStanding]) -> dict[str, MethodStanding]:
    return {row.method: row for row in rows}


def test_a_comparison_worked_by_hand() -> None:
    found = standings(
        curves({"a": [1.0, 2.0, 3.0] * 2, "b": [2.0, 2.0, 2.0] * 2, "c": [9.0, 8.0, 7.0] * 2})
    )
    methods = by_method(found.methods)
    # Ranks by repeat: a 1, 1.5, 2; b 2, 1.5, 1; c 3, 3, 3; and the same again.
    assert [methods[m].average_rank for m in "abc"] == [1.5, 1.5, 3.0]
    assert [methods[m].is_tied_with_best for m in "abc"] == [True, True, False]
    assert methods["a"].median_test_loss == 2.0
    assert methods["c"].quartiles_test_loss == [7.25, 8.75]
    assert methods["a"].median_loss == 3.0
    assert (methods["a"].trials, methods["a"].seconds) == (8, 8)
    assert found.n_blocks == 6
    assert found.methods[-1].method == "c"


def test_one_block_proves_nothing_and_three_may() -> None:
    losses = {"a": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}
    tied = {m.method: m.is_tied_with_best for m in standings(curves(losses)).methods}
    # Each of the 6 orders is as likely; that all three blocks have the same one has p = 6 / 6^3.
    assert tied == {"a": True, "b": True, "c": False}
    once = curves({method: values[:1] for method, values in losses.items()})
    assert all(m.is_tied_with_best for m in standings(once).methods)


def test_what_ended_after_the_budget_does_not_count() -> None:
    table = curves({"a": [1.0]}).assign(budget_seconds=4.0)
    assert list(state_at(table, 1.0)["trials"]) == [4]


def test_each_fraction_looks_at_what_was_known_by_then() -> None:
    found = standings(curves({"a": [1.0], "b": [2.0]}))
    stages = {s.fraction: by_method(s.methods)["a"] for s in found.fractions}
    assert {f: s.trials for f, s in stages.items()} == {0.125: 1, 0.25: 2, 0.5: 4, 0.75: 6, 1: 8}
    assert stages[0.5].median_test_loss == pytest.approx(1.4)
    assert stages[0.125].median_loss == 9.0


def test_budgets_of_trials_are_looked_at_by_trials() -> None:
    table = curves({"a": [1.0]}).assign(budget_seconds=None, budget_trials=8, seconds=99.0)
    assert list(state_at(table, 0.3)["trials"]) == [3]  # 2.4 trials are 3
    assert list(state_at(table, 1.0)["trials"]) == [8]


def test_a_run_that_found_nothing_is_last_and_has_no_figures() -> None:
    table = curves({"a": [1.0, 1.0], "b": [2.0, 2.0]})
    table = table[(table["method"] == "a") | (table["trials"] == 0)]
    methods = by_method(standings(table).methods)
    assert methods["b"].average_rank == 2.0
    assert methods["b"].median_test_loss is None
    assert methods["b"].quartiles_loss == [None, None]


def test_p_values_equal_counting_all_orders() -> None:
    losses = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 3.0, 2.0]])
    orders = list(permutations([1.0, 2.0, 3.0]))
    apart = [np.ptp(np.mean(blocks, axis=0)) for blocks in product(orders, repeat=len(losses))]
    average, p_values = rank_p_values(losses, np.random.default_rng(0), 50_000)
    expected = [np.mean(np.array(apart) >= a - average.min() - 1e-9) for a in average]
    np.testing.assert_allclose(p_values, expected, atol=0.008)


@pytest.mark.parametrize(("n_blocks", "n_methods"), [(1, 2), (3, 2), (2, 4)])
def test_the_least_p_comes_from_one_order_in_all_blocks(n_blocks, n_methods) -> None:
    losses = np.tile(np.arange(float(n_methods)), (n_blocks, 1))
    _, p_values = rank_p_values(losses, np.random.default_rng(0), 50_000)
    assert p_values[-1] == pytest.approx(least_p_value(n_blocks, n_methods), abs=0.008)


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [3])
def test_of_methods_that_are_alike_one_is_behind_in_one_case_of_twenty(n_blocks) -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(400):
        _, p_values = rank_p_values(rng.random((n_blocks, 4)), rng, 400)
        found += bool((p_values <= SIGNIFICANCE).any())
    assert found <= 36  # 5 % are 20; 36 or more of 400 come once in 2,000 times


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 4)),
                  elements=st.integers(0, 5).map(float))
)  # fmt: skip
def test_average_ranks_equal_scipy_and_the_leader_is_tied_with_itself(losses) -> None:
    average, p_values = rank_p_values(losses, np.random.default_rng(0), 200)
    np.testing.assert_allclose(average, rankdata(losses, axis=1).mean(axis=0))
    assert p_values[np.argmin(average)] == 1.0
    assert ((p_values >= 0) & (p_values <= 1)).all()


def test_ranks_do_not_depend_on_the_scale_of_a_data_set(tmp_path) -> None:
    curves({"a": [1.0, 2.0], "b": [2.0, 1.0]}, "one").to_parquet(tmp_path / "one.parquet")
    curves({"a": [0.1], "b": [0.2]}, "two").to_parquet(tmp_path / "two.parquet")
    files = [str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")]
    found = pooled_standings(files).standings
    assert found.n_blocks == 3
    assert by_method(found.methods)["a"].average_rank == pytest.approx(4 / 3)
    assert [d.data for d in found.data_sets] == ["one", "two"]
    with pytest.raises(BadInput, match="the same comparison"):
        pooled_standings([files[0], files[0]])


@pytest.mark.parametrize("n_data_sets", [1, 2])
def test_an_outcome_is_the_same_after_its_json(tmp_path, n_data_sets) -> None:
    files = [str(tmp_path / f"{name}.parquet") for name in ("one", "two")[:n_data_sets]]
    for k, file in enumerate(files):
        curves({"a": [1.0, 2.0], "b": [2.0, 1.0]}, f"d{k}", f"c{k}").to_parquet(file)
    outcome = pooled_standings(files)
    document = outcome.to_json()
    assert json.loads(json.dumps(document)) == document
    assert ("data_sets" in document) is (n_data_sets > 1)
    again = ComparisonOutcome.from_json(document)
    assert again.to_json() == document
    assert again.warnings == outcome.warnings


def test_stretches_of_one_configuration_are_no_comparison_twice(tmp_path) -> None:
    table = curves({"a": [1.0], "b": [2.0]}).assign(trials=lambda rows: rows["trials"] // 2)
    table.to_parquet(tmp_path / "one.parquet")
    found = pooled_standings([str(tmp_path / "one.parquet")]).standings
    assert by_method(found.methods)["a"].median_test_loss == 1.0


def pair(found: Standings | Stage, method: str, other: str) -> PairStanding:
    (only,) = (p for p in found.pairs if (p.method, p.other) == (method, other))
    return only


def test_each_pair_is_compared_in_both_orders() -> None:
    found = standings(
        curves({"a": [1.0, 2.0, 3.0] * 2, "b": [2.0, 2.0, 2.0] * 2, "c": [9.0, 8.0, 7.0] * 2})
    )
    orders = [(p.method, p.other) for p in found.pairs]
    assert orders == [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")]
    assert pair(found, "a", "c") == PairStanding(
        "a", "c", win_frequency=1.0, n_won=6, n_lost=0, sign_test_p_value=1 / 64,
        poisson_binomial=pytest.approx(0.75, abs=0.01),
        on_data_sets=[better_on_average(np.array([-8.0, -6.0, -4.0] * 2))],
    )  # fmt: skip
    tied = pair(found, "b", "a")
    assert (tied.win_frequency, tied.n_won, tied.n_lost) == (0.5, 2, 2)
    assert tied.sign_test_p_value == 11 / 16
    assert [m.expected_rank for m in found.methods] == [1.5, 1.5, 3.0]
    assert [s.pairs[1].n_won for s in found.fractions] == [6] * 5


def test_pairs_of_each_fraction_follow_its_losses() -> None:
    table = curves({"a": [1.0], "b": [2.0]})
    early = (table["method"] == "b") & (table["trials"] <= 2)
    table.loc[early, "test_loss"] = 0.0
    found = standings(table)
    won = [pair(stage, "a", "b").win_frequency for stage in found.fractions]
    assert won == [0, 0, 1, 1, 1]
    assert pair(found, "a", "b").win_frequency == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "test_rows", "scale", "probability"),
    [
        ("error", 200, 1.0, better_by_counts(20, 10)),
        ("accuracy", 200, 0.01, better_by_counts(20, 10)),
        ("auroc", 200, 0.01, 0.75),
        ("error", None, 1.0, 0.75),
    ],
)
def test_errors_are_counted_where_the_test_rows_are_known(
    metric, test_rows, scale, probability
) -> None:
    table = curves({"a": [5.0 * scale], "b": [10.0 * scale]})
    found = standings(table.assign(metric=metric, test_rows=test_rows))
    assert pair(found, "a", "b").on_data_sets == [pytest.approx(probability)]


def test_what_cannot_be_pooled_is_refused_by_name(tmp_path) -> None:
    curves({"a": [1.0], "b": [2.0]}, "one").to_parquet(tmp_path / "one.parquet")
    curves({"a": [1.0]}, "two", "c2").to_parquet(tmp_path / "two.parquet")
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(BadInput, match="'c2' has no"):
        pooled_standings([str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")])
    with pytest.raises(BadInput, match="no column 'comparison'"):
        pooled_standings([str(tmp_path / "x.parquet")])
    with pytest.raises(BadInput, match=r"text\.parquet"):
        pooled_standings([str(tmp_path / "text.parquet")])
    curves({}).to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(BadInput, match="nothing to compare"):
        pooled_standings([str(tmp_path / "empty.parquet")])
    with pytest.raises(BadInput, match=r"none\.parquet"):
        pooled_standings([str(tmp_path / "none.parquet")])
