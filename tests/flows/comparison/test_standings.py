"""Ranks, quartiles and ties of compared methods, by hand and against independent ways."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import binomtest, rankdata

from prefect_tune.flows.comparison.curves import pooled_standings
from prefect_tune.flows.comparison.pairwise import better_by_counts, better_on_average
from prefect_tune.flows.comparison.standings import (
    CURVE_COLUMNS,
    SIGNIFICANCE,
    least_p_value,
    rank_p_values,
    standings,
    state_at,
)
from prefect_tune.tasks.bad_input import BadInput


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


def by_method(rows: list[dict]) -> dict[str, dict]:
    return {row["method"]: row for row in rows}


def test_a_comparison_worked_by_hand() -> None:
    found = standings(
        curves({"a": [1.0, 2.0, 3.0] * 2, "b": [2.0, 2.0, 2.0] * 2, "c": [9.0, 8.0, 7.0] * 2})
    )
    methods = by_method(found["methods"])
    # Ranks by repeat: a 1, 1.5, 2; b 2, 1.5, 1; c 3, 3, 3; and the same again.
    assert [methods[m]["average_rank"] for m in "abc"] == [1.5, 1.5, 3.0]
    assert [methods[m]["is_tied_with_best"] for m in "abc"] == [True, True, False]
    assert methods["a"]["median_test_loss"] == 2.0
    assert methods["c"]["quartiles_test_loss"] == [7.25, 8.75]
    assert methods["a"]["median_loss"] == 3.0
    assert (methods["a"]["trials"], methods["a"]["seconds"]) == (8, 8)
    assert found["n_blocks"] == 6
    assert found["methods"][-1]["method"] == "c"


def test_one_block_proves_nothing_and_three_may() -> None:
    losses = {"a": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}
    tied = {m["method"]: m["is_tied_with_best"] for m in standings(curves(losses))["methods"]}
    # Each of the 6 orders is as likely; that all three blocks have the same one has p = 6 / 6^3.
    assert tied == {"a": True, "b": True, "c": False}
    once = curves({method: values[:1] for method, values in losses.items()})
    assert all(m["is_tied_with_best"] for m in standings(once)["methods"])


def test_what_ended_after_the_budget_does_not_count() -> None:
    table = curves({"a": [1.0]}).assign(budget_seconds=4.0)
    assert list(state_at(table, 1.0)["trials"]) == [4]


def test_each_fraction_looks_at_what_was_known_by_then() -> None:
    found = standings(curves({"a": [1.0], "b": [2.0]}))
    stages = {s["fraction"]: by_method(s["methods"])["a"] for s in found["fractions"]}
    assert {f: s["trials"] for f, s in stages.items()} == {0.125: 1, 0.25: 2, 0.5: 4, 0.75: 6, 1: 8}
    assert stages[0.5]["median_test_loss"] == pytest.approx(1.4)
    assert stages[0.125]["median_loss"] == 9.0


def test_budgets_of_trials_are_looked_at_by_trials() -> None:
    table = curves({"a": [1.0]}).assign(budget_seconds=None, budget_trials=8, seconds=99.0)
    assert list(state_at(table, 0.3)["trials"]) == [3]  # 2.4 trials are 3
    assert list(state_at(table, 1.0)["trials"]) == [8]


def test_a_run_that_found_nothing_is_last_and_has_no_figures() -> None:
    table = curves({"a": [1.0, 1.0], "b": [2.0, 2.0]})
    table = table[(table["method"] == "a") | (table["trials"] == 0)]
    methods = by_method(standings(table)["methods"])
    assert methods["b"]["average_rank"] == 2.0
    assert methods["b"]["median_test_loss"] is None
    assert methods["b"]["quartiles_loss"] == [None, None]


def test_p_values_equal_counting_all_orders() -> None:
    losses = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 3.0, 2.0]])
    orders = list(permutations([1.0, 2.0, 3.0]))
    apart = [np.ptp(np.mean(blocks, axis=0)) for blocks in product(orders, repeat=len(losses))]
    average, p_values = rank_p_values(losses, np.random.default_rng(0), 50_000)
    expected = [np.mean(np.array(apart) >= a - average.min() - 1e-9) for a in average]
    np.testing.assert_allclose(p_values, expected, atol=0.008)


def test_of_two_methods_it_is_the_sign_test() -> None:
    losses = np.array([[1.0, 2.0]] * 7 + [[2.0, 1.0]])
    _, p_values = rank_p_values(losses, np.random.default_rng(0), 50_000)
    assert p_values[1] == pytest.approx(binomtest(7, 8).pvalue, abs=0.008)


@pytest.mark.parametrize(("n_blocks", "n_methods"), [(1, 2), (3, 2), (2, 4)])
def test_the_least_p_is_that_of_one_order_in_all_blocks(n_blocks, n_methods) -> None:
    losses = np.tile(np.arange(float(n_methods)), (n_blocks, 1))
    _, p_values = rank_p_values(losses, np.random.default_rng(0), 50_000)
    assert p_values[-1] == pytest.approx(least_p_value(n_blocks, n_methods), abs=0.008)


@pytest.mark.parametrize("n_blocks", [1, 3, 15])
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
def test_average_ranks_are_those_of_scipy_and_the_leader_is_tied_with_itself(losses) -> None:
    average, p_values = rank_p_values(losses, np.random.default_rng(0), 200)
    np.testing.assert_allclose(average, rankdata(losses, axis=1).mean(axis=0))
    assert p_values[np.argmin(average)] == 1.0
    assert ((p_values >= 0) & (p_values <= 1)).all()


def test_ranks_do_not_depend_on_the_scale_of_a_data_set(tmp_path) -> None:
    curves({"a": [1.0, 2.0], "b": [2.0, 1.0]}, "one").to_parquet(tmp_path / "one.parquet")
    curves({"a": [0.1], "b": [0.2]}, "two").to_parquet(tmp_path / "two.parquet")
    files = [str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")]
    found = pooled_standings(files)
    assert found["n_blocks"] == 3
    assert by_method(found["methods"])["a"]["average_rank"] == pytest.approx(4 / 3)
    assert [d["data"] for d in found["data_sets"]] == ["one", "two"]
    with pytest.raises(BadInput, match="the same comparison"):
        pooled_standings([files[0], files[0]])


def test_stretches_of_one_configuration_are_no_comparison_twice(tmp_path) -> None:
    table = curves({"a": [1.0], "b": [2.0]}).assign(trials=lambda rows: rows["trials"] // 2)
    table.to_parquet(tmp_path / "one.parquet")
    found = pooled_standings([str(tmp_path / "one.parquet")])
    assert by_method(found["methods"])["a"]["median_test_loss"] == 1.0


def pair(found: dict, method: str, other: str) -> dict:
    (only,) = (p for p in found["pairs"] if (p["method"], p["other"]) == (method, other))
    return only


def test_each_pair_is_compared_in_both_orders() -> None:
    found = standings(
        curves({"a": [1.0, 2.0, 3.0] * 2, "b": [2.0, 2.0, 2.0] * 2, "c": [9.0, 8.0, 7.0] * 2})
    )
    orders = [(p["method"], p["other"]) for p in found["pairs"]]
    assert orders == [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")]
    assert pair(found, "a", "c") == {
        "method": "a", "other": "c", "win_frequency": 1.0, "n_won": 6, "n_lost": 0,
        "sign_test_p_value": 1 / 64,
        "poisson_binomial": pytest.approx(0.75, abs=0.01),
        "on_data_sets": [better_on_average(np.array([-8.0, -6.0, -4.0] * 2))],
    }  # fmt: skip
    tied = pair(found, "b", "a")
    assert (tied["win_frequency"], tied["n_won"], tied["n_lost"]) == (0.5, 2, 2)
    assert tied["sign_test_p_value"] == 11 / 16
    assert [m["expected_rank"] for m in found["methods"]] == [1.5, 1.5, 3.0]
    assert [s["pairs"][1]["n_won"] for s in found["fractions"]] == [6] * 5


def test_pairs_of_each_fraction_are_those_of_its_losses() -> None:
    table = curves({"a": [1.0], "b": [2.0]})
    early = (table["method"] == "b") & (table["trials"] <= 2)
    table.loc[early, "test_loss"] = 0.0
    found = standings(table)
    won = [pair(stage, "a", "b")["win_frequency"] for stage in found["fractions"]]
    assert won == [0, 0, 1, 1, 1]
    assert pair(found, "a", "b")["win_frequency"] == 1


def test_on_data_sets_has_their_order_and_each_counts_once() -> None:
    # The second comparison comes first by its name, and has three repeats.
    table = pd.concat(
        [
            curves({"a": [1.0], "b": [2.0]}, "one", "z"),
            curves({"a": [3.0] * 3, "b": [2.0] * 3}, "two", "y"),
        ]
    )
    found = standings(table)
    assert [d["data"] for d in found["data_sets"]] == ["one", "two"]
    assert pair(found, "a", "b")["on_data_sets"] == [better_by_counts(1, 0), better_by_counts(0, 3)]
    methods = by_method(found["methods"])
    assert {m: row["expected_rank"] for m, row in methods.items()} == {"a": 1.5, "b": 1.5}
    assert {m: row["average_rank"] for m, row in methods.items()} == {"a": 1.75, "b": 1.25}


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
    assert pair(found, "a", "b")["on_data_sets"] == [pytest.approx(probability)]


def test_what_cannot_be_pooled_is_refused_by_name(tmp_path) -> None:
    curves({"a": [1.0], "b": [2.0]}, "one").to_parquet(tmp_path / "one.parquet")
    curves({"a": [1.0]}, "two", "c2").to_parquet(tmp_path / "two.parquet")
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(BadInput, match="comparison 'c2' has no replicate of 'b' in repeat 0"):
        pooled_standings([str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")])
    with pytest.raises(BadInput, match="no column 'comparison'"):
        pooled_standings([str(tmp_path / "x.parquet")])
    with pytest.raises(BadInput, match="is not a Parquet file"):
        pooled_standings([str(tmp_path / "text.parquet")])
    curves({}).to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(BadInput, match="nothing to compare"):
        pooled_standings([str(tmp_path / "empty.parquet")])
    with pytest.raises(BadInput, match="there is no file"):
        pooled_standings([str(tmp_path / "none.parquet")])
