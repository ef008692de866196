"""Standings for people: how sure it is that the first is better."""

from typing import Any

from prefect_tune.deployments.views.comparison import print_comparison


def row(method: str, rank: float) -> dict[str, Any]:
    return {
        "method": method, "average_rank": rank, "expected_rank": rank, "is_tied_with_best": True,
        "median_test_loss": 1.0, "quartiles_test_loss": [1.0, 1.0], "median_loss": 1.0,
        "quartiles_loss": [1.0, 1.0], "trials": 3, "ask_seconds": 0.0,
    }  # fmt: skip


def document(on_data_sets: list[float], **more: Any) -> dict[str, Any]:
    methods = [row("b", 1.75), row("a", 1.25)]
    pair = {
        "method": "a", "other": "b", "win_frequency": 0.75, "sign_test_p_value": 0.3125,
        "poisson_binomial": 0.625, "on_data_sets": on_data_sets,
    }  # fmt: skip
    other = {"method": "b", "other": "a", "win_frequency": 0.25, "sign_test_p_value": 0.9375,
             "poisson_binomial": 0.375, "on_data_sets": []}  # fmt: skip
    return {
        "metric": "error", "methods": methods, "pairs": [other, pair], "n_blocks": 4,
        "fractions": [{"fraction": 1.0, "methods": methods}], **more,
    }  # fmt: skip


def said(capsys, shown: dict[str, Any]) -> tuple[list[list[str]], str]:
    """The lines of the table of pairs, and what is said below it."""
    print_comparison(shown)
    _, _, below = capsys.readouterr().out.partition("expected rank")
    lines = below.splitlines()
    return [line.split() for line in lines[1:3]], lines[3]


def test_of_one_data_set_the_probability_is_that_of_its_repeats(capsys) -> None:
    lines, meaning = said(capsys, document([0.875]))
    assert lines == [["a", "1.25"], ["b", "1.75", "0.75", "0.312", "0.875"]]
    assert "How often each loses to a (a tie is half)" in meaning
    assert "sign test over 4 repeats" in meaning
    assert "a is better on this data set" in meaning


def test_of_several_data_sets_it_is_that_of_the_poisson_binomial_test(capsys) -> None:
    data_sets = [{"data": name, "methods": [row("a", 1.0)]} for name in ("one", "two")]
    lines, meaning = said(capsys, document([0.875, 0.5], data_sets=data_sets))
    assert lines == [["a", "1.25"], ["b", "1.75", "0.75", "0.312", "0.625"]]
    assert "sign test over 2 data sets" in meaning
    assert "more than half of such data sets (Poisson-binomial test)" in meaning


def test_one_method_alone_has_no_pairs(capsys) -> None:
    alone = [row("a", 1.0)]
    shown = document([], methods=alone, fractions=[{"fraction": 1.0, "methods": alone}], pairs=[])
    print_comparison(shown)
    assert "expected rank" not in capsys.readouterr().out
