import pytest

from prefect_tune.optimizers.space.configuration import is_full, part_of


def test_only_all_rows_folds_and_epochs_are_full() -> None:
    assert is_full(1.0, None, None)
    assert not any((is_full(0.5, None, None), is_full(1.0, 2, None), is_full(1.0, None, 9)))


def test_all_of_them_are_none_and_more_are_refused() -> None:
    assert [part_of(3, asked, "folds") for asked in (None, 1, 2, 3)] == [None, 1, 2, None]
    assert part_of(None, 9, "folds") == 9
    with pytest.raises(ValueError, match="4 folds where a full evaluation has 3"):
        part_of(3, 4, "folds")
