from typing import Any

import pytest

from prefect_tune.optimizers.methods.fabolas.declaration import size_lines

DECISIONS: dict[str, Any] = {
    "n_sizes": 7,
    "sizes": [
        {"share": 1 / 64, "runs": 1_012, "failed": 1},
        {"share": 1 / 8, "runs": 1, "failed": 0},
        {"share": 1.0, "runs": 3, "failed": 0},
    ],
    "gate": {"state": "open", "reason": ""},
    "algorithms": {"tree": 0.3, "forest": 0.68, "bayes": 0.02},
    "confirmations": [
        {"trial": 40, "predicted": 12.3456, "deviation": 0.521, "loss": 12.5, "disagrees": False},
        {"trial": 41, "predicted": 12.4, "deviation": 0.5, "loss": 15.0, "disagrees": True},
        {"trial": 42, "predicted": 12.5, "deviation": 0.5, "loss": None, "disagrees": False},
    ],
    "notes": ["said once, when the search has ended"],
}


def test_sizes_models_and_confirmations_are_told() -> None:
    assert size_lines(DECISIONS) == [
        "evaluated on 3 of 7 sizes:",
        "  1/64 of the rows: 1,012 trials, 1 of them failed",
        "  1/8 of the rows: 1 trial",
        "  all of the rows: 3 trials",
        "the best one's model, by probability: forest 0.68, tree 0.30",
        "trial 40: predicted 12.35 (deviation 0.52), came out as 12.5 on all rows",
        "trial 41: predicted 12.4 (deviation 0.5), came out as 15 on all rows, which disagrees",
        "trial 42: predicted 12.5 (deviation 0.5), not evaluated on all rows in time",
        "more than two deviations apart: subsets are not to be relied on here",
    ]


def test_that_subsets_were_given_up_is_told_with_the_reason() -> None:
    gate = {"state": "closed", "reason": "they rank otherwise than the full data"}
    assert "subsets were given up: they rank otherwise than the full data" in size_lines(
        {**DECISIONS, "gate": gate}
    )


@pytest.mark.parametrize(
    "decisions",
    [{}, {"n_sizes": 1, "sizes": [], "confirmations": [], "algorithms": {"svm": 1.0}}],
)
def test_what_was_not_decided_is_not_told(decisions: dict[str, Any]) -> None:
    assert size_lines(decisions) == []


def test_where_there_is_only_the_full_data_no_sizes_are_counted() -> None:
    only = {"n_sizes": 1, "sizes": [{"share": 1.0, "runs": 4, "failed": 0}]}
    assert size_lines(only) == ["evaluated on:", "  all of the rows: 4 trials"]
