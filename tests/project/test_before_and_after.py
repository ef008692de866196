"""The comparison of two revisions finds what differs, and nothing else."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed_behaviour.asks import N_ASKS, VARIANTS, WORLDS, asks, observed
from observed_behaviour.differences import verdict
from observed_behaviour.internals import internal
from source_tree import ROOT

from prefect_tune.optimizers import METHODS, Query, make_optimizer

DUMP = {
    "healthcare": {
        "0": {"loss": 12.5, "fold_losses": [12.0, 13.0], "hit": False, "seconds": 1.0},
        "1": {"loss": float("nan"), "curve": [], "trouble": ""},
    }
}


def changed(**of_first: Any) -> dict[str, Any]:
    dump = deepcopy(DUMP)
    dump["healthcare"]["0"] |= of_first
    return dump


def paths(old: Any, new: Any, **options: Any) -> list[str]:
    return [d.path for d in verdict("trials", old, new, **options).unexpected]


def test_equal_dumps_are_equal() -> None:
    found = verdict("trials", DUMP, json.loads(json.dumps(DUMP)))
    assert (found.unexpected, found.expected) == ([], {})
    assert list(found.lines(10)) == ["equal"]


@pytest.mark.parametrize(
    ("of_first", "place"),
    [
        ({"loss": 12.500000000000002}, "loss"),
        ({"fold_losses": [12.0, 13.5]}, "fold_losses/1"),
        ({"fold_losses": [12.0]}, "fold_losses/1"),
        ({"hit": True}, "hit"),
        ({"hit": 0}, "hit"),
        ({"loss": None}, "loss"),
        ({"new": None}, "new"),
    ],
)
def test_one_changed_value_is_found_whichever_side_has_it(
    of_first: dict[str, Any], place: str
) -> None:
    for old, new in ((DUMP, changed(**of_first)), (changed(**of_first), DUMP)):
        assert paths(old, new) == [f"trials/healthcare/0/{place}"]


def test_a_side_without_a_value_is_named() -> None:
    (only,) = verdict("trials", DUMP, changed(new=1)).unexpected
    assert "only in the new code" in only.text


def test_expected_differences_are_counted_by_their_pattern_and_hide_no_others() -> None:
    new = changed(loss=1.0, fold_losses=[1.0, 1.0])
    found = verdict("trials", DUMP, new, allowed=["trials/*/fold_losses/*", "trials/x"])
    assert [d.path for d in found.unexpected] == ["trials/healthcare/0/loss"]
    assert found.expected == {"trials/*/fold_losses/*": 2}


def test_keys_that_are_not_compared_are_left_out_at_any_depth() -> None:
    assert paths(DUMP, changed(seconds=2.0), ignored={"seconds"}) == []


def test_what_raises_on_both_sides_is_not_equal() -> None:
    dump = {"flat": {"raised": "TypeError: x"}}
    assert paths(dump, dump) == ["trials/flat/raised"]


@pytest.mark.slow
@pytest.mark.full
def test_the_same_code_asks_the_same_and_a_changed_loss_is_noticed() -> None:
    first, second = (observed(("tpe",), ("conditional",)) for _ in range(2))
    assert first.keys() == {"tpe", "tpe raced"}
    assert verdict("asks", first, second).unexpected == []
    world = WORLDS["conditional"]()
    outcome, told = world.outcome, 0

    def planted_outcome(query: Query, bootstraps: int) -> Any:
        nonlocal told
        told += 1
        came, seconds = outcome(query, bootstraps)
        return (replace(came, loss=came.loss + 20) if told == 1 else came), seconds

    world.outcome = planted_outcome  # type: ignore[method-assign]
    optimizer = make_optimizer("tpe", world.space, 7, world.objective)
    planted = asks(optimizer, world)
    assert len(planted["asks"]) == N_ASKS
    assert paths(first["tpe"]["conditional"], planted)


@pytest.mark.slow
@pytest.mark.full
def test_worlds_have_failures_and_constraints_and_the_variants_are_of_methods() -> None:
    assert VARIANTS.keys() <= METHODS.keys()
    for name, world in WORLDS.items():
        found = observed(("random",), (name,))["random"][name]
        assert len(found["asks"]) == N_ASKS
        assert found["failed"] >= 1
        assert bool(world().objective.constraints) == (name != "flat")


def test_names_are_found_in_whichever_module_defines_them() -> None:
    assert internal("space_named")("small").name == "small"
    with pytest.raises(LookupError, match="RENAMED"):
        internal("no_such_name")


@pytest.mark.slow
@pytest.mark.full
def test_observing_uses_no_tests_of_the_tree(tmp_path: Path) -> None:
    """The old side has only this package of the new one."""
    out = tmp_path / "asks.json"
    module = (sys.executable, "-m", "observed_behaviour.asks", out)
    subprocess.run(
        [*module, "--only", "random", "--worlds", "flat"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "benchmarks")},
        check=True,
        capture_output=True,
    )
    assert len(json.loads(out.read_text())["random"]["flat"]["asks"]) == N_ASKS
