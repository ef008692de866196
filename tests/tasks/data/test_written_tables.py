"""A table is the same table in whatever form it is written."""

import pytest
from written_tables import differences

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.full if seed else ()) for seed in range(40)]
)
def test_each_form_has_the_same_columns_kinds_notes_and_digest(tmp_path, seed) -> None:
    assert list(differences(seed, tmp_path)) == []
