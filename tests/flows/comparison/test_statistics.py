"""Rankings of compared methods, checked by enumeration and by hand."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from reports.compared import curves_of, replicate

from prefect_tune.flows.comparison.curves import read_curves
from prefect_tune.flows.comparison.standings import Standings, permutation_test, standings
from prefect_tune.tasks.bad_input import BadInput


def curves(
    test_losses: dict[str, list[float | None]], dataset: str = "d", comparison: str = "c"
) -> pd.DataFrame:
    """Return studies of 8 trials, with a loss that falls by one in each trial."""
    names = {"data": dataset, "dataset": dataset, "comparison": comparison}
    return curves_of(
        replicate(method, repeat, [9.0 - n + repeat for n in range(8)], test_loss, **names)
        for method, losses in test_losses.items()
        for repeat, test_loss in enumerate(losses)
    )


def by_method(found: Standings) -> dict[str, Any]:
    return {row.method: row for row in found.methods.itertuples()}


def test_standings_match_an_example_worked_by_hand() -> None:
    found = standings(
        curves({"a": [1.0, 2.0, 3.0] * 2, "b": [2.0, 2.0, 2.0] * 2, "c": [9.0, 8.0, 7.0] * 2})
    )
    methods = by_method(found)
    # Ranks by repeat: a 1, 1.5, 2; b 2, 1.5, 1; c 3, 3, 3; and the same again.
    assert [methods[m].average_rank for m in "abc"] == [1.5, 1.5, 3.0]
    assert [methods[m].is_tied_with_best for m in "abc"] == [True, True, False]
    assert methods["a"].median_test_loss == 2.0
    assert methods["c"].quartiles_test_loss == [7.25, 8.75]
    assert (methods["a"].median_loss, methods["a"].quartiles_loss) == (4.5, [3.25, 5.75])
    assert (methods["a"].trials, methods["a"].seconds) == (8, 80)
    assert (found.n_blocks, found.repeats, found.comparison) == (6, 6, "c")
    assert found.methods.method.tolist() == ["a", "b", "c"]
    pairs = {(a, b): numbers for a, b, *numbers in found.pairs.itertuples(index=False)}
    assert list(pairs) == [*permutations("abc", 2)]
    assert pairs["a", "c"] == [6, 0, methods["c"].p_value]
    assert pairs["b", "a"] == [2, 2, 1.0]


def test_differences_can_be_significant_on_three_blocks_but_not_on_a_single_block() -> None:
    losses = {"a": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}
    methods = by_method(standings(curves(losses)))
    tied = {name: bool(method.is_tied_with_best) for name, method in methods.items()}
    # Each of the 6 orders is as likely; that all three blocks have the same one has p = 6 / 6^3.
    assert tied == {"a": True, "b": True, "c": False}
    once = standings(curves({method: values[:1] for method, values in losses.items()}))
    assert once.methods.is_tied_with_best.all()
    assert len(once.warnings) == 1


def test_study_without_a_result_ranks_last_and_has_no_figures() -> None:
    table = curves({"a": [1.0, 1.0], "b": [None, None]})
    found = standings(table[(table["method"] == "a") | (table["trials"] == 0)])
    methods = by_method(found)
    assert methods["b"].average_rank == 2.0
    document = next(m for m in found.to_json()["methods"] if m["method"] == "b")
    assert document["median_test_loss"] is None
    assert document["quartiles_loss"] == [None, None]
    assert found.untested == ["c-0-b", "c-1-b"]


def test_p_values_match_an_enumeration_of_all_orders() -> None:
    losses = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 3.0, 2.0]])
    orders = list(permutations([1.0, 2.0, 3.0]))
    apart = [np.ptp(np.mean(blocks, axis=0)) for blocks in product(orders, repeat=len(losses))]
    average, p_values = permutation_test(losses, np.random.default_rng(0), 50_000)
    for a, b in product(range(3), repeat=2):
        expected = np.mean(np.array(apart) >= abs(average[a] - average[b]) - 1e-9)
        assert p_values[a, b] == pytest.approx(expected, abs=0.008)


def test_ranks_do_not_depend_on_the_scale_of_a_data_set(tmp_path) -> None:
    files = [str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")]
    curves({"a": [1.0, 2.0], "b": [2.0, 1.0]}, "one").to_parquet(files[0])
    curves({"a": [0.1], "b": [0.2]}, "two").to_parquet(files[1])
    found = standings(read_curves(files))
    assert (found.n_blocks, found.data, found.metric) == (3, None, "error")
    assert by_method(found)["a"].average_rank == pytest.approx(4 / 3)
    with pytest.raises(BadInput, match="the same comparison"):
        read_curves([files[0], files[0]])


def test_error_names_comparisons_that_cannot_be_pooled(tmp_path) -> None:
    one, two = curves({"a": [1.0], "b": [2.0]}, "one"), curves({"a": [1.0]}, "two", "c2")
    with pytest.raises(BadInput, check=lambda e: "'c2'" in e.reason and "'b'" in e.reason):
        standings(pd.concat([one, two]))
    with pytest.raises(BadInput, match="nothing to compare"):
        standings(curves({}))
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    (tmp_path / "text.parquet").write_text("text")
    for name, reason in (("x", "no column 'comparison'"), ("text", "text"), ("none", "no file")):
        with pytest.raises(BadInput, match=reason):
            read_curves([str(tmp_path / f"{name}.parquet")])
