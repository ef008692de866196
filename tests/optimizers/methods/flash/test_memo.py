"""FLASH's memo as the ledger keeps it."""

import json
from typing import Any

import pytest

from prefect_tune.optimizers.methods.flash.flash import FlashMemo

CHOICE = {"algorithm": "count", "hyperparameters": {"weight": "none"}}


@pytest.mark.parametrize(
    "document",
    [
        {"phase": 1, "design": [3, 0, 1]},
        {"phase": 2, "design": [3, 0], "n_init": 2, "shared": None},
        {
            "phase": 3,
            "design": [3, 0],
            "n_init": 2,
            "n_prune": 1,
            "shared": {"construct features": CHOICE},
            "notes": ["the budget holds too few trials"],
            "ranking": [[3, -0.5], [0, -1.25]],
            "subspace": {"model": ["tree", "bayes"]},
            "n_subspace_paths": 2,
        },
    ],
)
def test_memos_of_studies_begun_before_stay_as_they_are(document: dict[str, Any]) -> None:
    stored = json.loads(json.dumps(document))
    assert FlashMemo.from_json(stored).to_json() == document


def test_a_memo_does_not_change_after_it_was_handed_out() -> None:
    memo = FlashMemo(design=[0], notes=["before"])
    handed_out = memo.to_json()
    memo.notes.append("later")
    memo.subspace = {"model": ["tree"]}
    assert handed_out == {"phase": 1, "design": [0], "notes": ["before"]}


def test_nothing_shared_is_decided_but_not_shown() -> None:
    memo = FlashMemo.from_json({"phase": 2, "shared": None})
    assert memo.shared == {}
    assert "shared" not in memo.rendered([])
