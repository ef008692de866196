"""Workers start without the user's main module: a script needs no guard, a notebook has none.

`multiprocessing` has each process import the main module of the one that starts it, so that what is
pickled from there can be loaded: a script without a guard would begin again in each worker, once
more whenever one is replaced. Trials have nothing from there: spaces and quantities travel as text.
"""

from multiprocessing import spawn
from typing import Any

__all__ = ["spare_main_module"]

_OF_NANNY = "Dask Worker process (from Nanny)"
"""Name of the processes that nannies start. Dask pickles functions of a main module by value."""
_MAIN = ("init_main_from_name", "init_main_from_path")
_prepared = spawn.get_preparation_data


def spare_main_module() -> None:
    """Start the workers of nannies without the main module of this process from now on."""
    spawn.get_preparation_data = _without_main


def _without_main(name: str) -> dict[str, Any]:
    """Return what a process of that name is told of this one before it starts."""
    told: dict[str, Any] = _prepared(name)
    if name == _OF_NANNY:
        return {what: value for what, value in told.items() if what not in _MAIN}
    return told
