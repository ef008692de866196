"""Imports without garbage collection."""

import gc

import pytest

from prefect_tune.tasks.worker.quick_imports import quick_imports


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_importing_and_nothing_imported_is_looked_through() -> None:
    made = []
    with quick_imports():
        assert not gc.isenabled()
        made.append([])
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(one is made[0] for one in gc.get_objects())


def test_an_import_that_fails_ends_it_too() -> None:
    with pytest.raises(ImportError), quick_imports():
        raise ImportError("no such library")
    assert gc.isenabled()


def test_who_collects_nothing_goes_on_so() -> None:
    gc.disable()
    with quick_imports():
        pass
    assert not gc.isenabled()
