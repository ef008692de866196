"""Hostile input is accepted or refused with a message, without a traceback or leftover files.

The 150 cases are the same in every run, and include each case that once failed. The variable
`FUZZED_TIMES` multiplies the cases, which then differ in each run.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import data_files, options, store_files
from fuzzing.ground import Ground
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import settings as cases

pytestmark = [pytest.mark.slow, pytest.mark.full]

_TIMES = int(os.environ.get("FUZZED_TIMES", "1"))
_LIKE_THESE: dict[str, Any] = {
    "database": None,
    "derandomize": _TIMES == 1,
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground.entered() as made:
        yield made


@given(case=options.parameters())
@cases(max_examples=40 * _TIMES, **_LIKE_THESE)
def test_any_flow_parameters_are_refused_or_accepted(ground: Ground, case: Any) -> None:
    options.check_parameters(ground, case)


@given(case=data_files.damaged())
@cases(max_examples=45 * _TIMES, **_LIKE_THESE)
def test_any_data_file_is_refused_or_read(ground: Ground, case: Any) -> None:
    data_files.check(ground, case)


@given(case=options.command_lines())
@example(case=("show", "x", "--store", "ftp://127.0.0.1:9/x"))
@example(case=("run", "reference://x"))
@example(case=("compare", "9" * 5000, "--target", "y"))
@example(case=("export", "flashed", "9" * 5000))
@example(case=("run", "~nobody/x.csv"))
@example(case=("show", "x", "--database", "x://u@h:port/x"))
@example(case=("show", "\udcff"))
@example(case=("serve", "--limit=https://u:sw0rdfish@127.0.0.1:9/x"))
@cases(max_examples=50 * _TIMES, **_LIKE_THESE)
def test_any_command_line_is_refused_or_executed(ground: Ground, case: Any) -> None:
    options.check_command_line(ground, case)


def damaged(cell: str, row: int, value: Any, *words: str) -> Any:
    return store_files.DamagedStore([], [(cell, row, value)], [words])


@given(case=store_files.damaged_stores())
@example(case=damaged("studies.settings", 0, {}, "show", "flashed"))
@example(case=damaged("studies.problem", 0, {}, "export", "flashed", "model.pkl"))
@example(case=damaged("studies.result", 0, 0, "show", "flashed", "--json"))
@example(case=damaged("studies.problem", 1, "{", "retry", "picky"))
@example(case=damaged("trials.body", 1, {"state": "complete"}, "trials", "flashed"))
@example(case=damaged("events.body", 1, [], "open", "flashed"))
@example(case=damaged("events.kind", 1, "x", "open", "flashed"))
@example(case=damaged("events.sequence", 0, 99, "open", "flashed"))
@example(case=damaged("store.schema", 0, "x", "show", "flashed"))
@example(case=damaged("artifacts.parts", 0, [1], "artifacts", "ls"))
@example(case=damaged("records.parts", 0, {"a": 1}, "artifacts", "verify"))
@cases(max_examples=15 * _TIMES, **_LIKE_THESE)
def test_any_damage_to_a_store_is_reported(ground: Ground, case: Any) -> None:
    store_files.check(ground, case)
