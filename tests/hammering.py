"""Load for a store: processes that get or make random keys and check what they are given."""

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic

import numpy as np
from contracts.store import entry

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.matrices import canonical

SPAWN = multiprocessing.get_context("spawn")
N_KEYS = 30


def made(number: int) -> Made:
    """An artifact that tells its number."""
    matrix = canonical(np.full((500, 2), float(number)))
    return Made({"train": matrix}, {"rows": 500}, 0.5)


def hammer(address: StoreAddress, seed: int, seconds: float, log: str) -> None:
    """Get or make random keys; each must hold what it should, and the budget must hold."""
    store = ArtifactStore(address, memory_bytes=0)
    chance, until = np.random.default_rng(seed), monotonic() + seconds
    n_made = 0
    while monotonic() < until:
        number = int(chance.integers(N_KEYS))
        kept, fresh = store.get_or_make(entry(f"{number:02x}f"), {}, lambda n=number: made(n))
        n_made += fresh is not None
        read = store.read(kept, ["train"])
        assert read is None or (read["train"] == number).all(), "a torn read"
        totals = store.index.totals()
        assert totals.size_bytes <= totals.budget_bytes
    Path(log).write_text(str(n_made))
    store.close()


def run_together(act: Callable[..., object], *given: tuple[object, ...]) -> None:
    """Run a function in a process for each tuple of arguments; all processes must end well."""
    processes = [SPAWN.Process(target=act, args=arguments) for arguments in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [p.exitcode for p in processes] == [0] * len(processes)


def run_in_threads(*acts: Callable[[], object]) -> None:
    """Call these at the same time, each in a thread of its own."""
    threads = [Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


def run_killed(work: Callable[..., None], *arguments: object) -> None:
    """Run in a process of its own, which kills itself."""
    process = SPAWN.Process(target=work, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
