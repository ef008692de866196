"""Hostile input is refused with a message and nothing left behind, or accepted; never a traceback.

300 cases that are the same each time, and those in which there once was a fault. The benchmark
`deployments/fuzzed` tries more.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import command_lines, data_files, settings, store_files
from fuzzing.ground import Ground
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import settings as cases

_LIKE_THESE: dict[str, Any] = {
    "database": None,
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
    "suppress_health_check": list(HealthCheck),
}


pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground.entered() as made:
        yield made


@given(case=settings.parameters())
@cases(max_examples=80, **_LIKE_THESE)
def test_any_parameters_are_refused_or_prepared(ground: Ground, case: Any) -> None:
    settings.check(ground, case)


@given(case=data_files.damaged())
@cases(max_examples=90, **_LIKE_THESE)
def test_any_data_file_is_refused_or_read(ground: Ground, case: Any) -> None:
    data_files.check(ground, case)


@given(case=command_lines.command_lines())
@example(case=("show", "x", "--store", "ftp://127.0.0.1:9/x"))
@example(case=("run", "ftp://127.0.0.1:9/x.csv"))
@example(case=("run", "reference://x"))
@example(case=("show", "x", "--store", "reference://x"))
@example(case=("show", "x", "--database", "x://u@h:port/x"))
@example(case=("show", "\udcff"))
@example(case=("serve", "--limit=https://u:sw0rdfish@127.0.0.1:9/x"))
@cases(max_examples=100, **_LIKE_THESE)
def test_any_command_line_is_refused_or_obeyed(ground: Ground, case: Any) -> None:
    command_lines.check(ground, case)


def rows(*damages: tuple[tuple[str, str], int, Any], looks: tuple[str, ...]) -> Any:
    return store_files.DamagedStore((), damages, (looks,))


@given(case=store_files.damaged_stores())
@example(case=rows((("studies", "settings"), 0, {}), looks=("show", "flashed")))
@example(case=rows((("studies", "problem"), 0, {}), looks=("export", "flashed", "model.pkl")))
@example(case=rows((("studies", "result"), 0, 0), looks=("show", "flashed", "--json")))
@example(case=rows((("studies", "problem"), 1, "{"), looks=("retry", "picky")))
@example(case=rows((("trials", "body"), 1, []), looks=("show", "flashed")))
@example(case=rows((("trials", "body"), 1, {"state": "complete"}), looks=("trials", "flashed")))
@example(case=rows((("events", "body"), 1, []), looks=("open", "flashed")))
@example(case=rows((("events", "kind"), 1, "x"), looks=("open", "flashed")))
@example(case=rows((("events", "sequence"), 0, 99), looks=("open", "flashed")))
@example(case=rows((("store", "schema"), 0, "x"), looks=("show", "flashed")))
@example(case=rows((("artifacts", "parts"), 0, [1]), looks=("artifacts", "ls")))
@example(case=rows((("records", "parts"), 0, {"a": 1}), looks=("artifacts", "verify")))
@cases(max_examples=30, **_LIKE_THESE)
def test_any_damage_to_a_store_is_told(ground: Ground, case: Any) -> None:
    store_files.check(ground, case)
