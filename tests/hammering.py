"""Threads and processes that use a store at the same time, or are killed during use."""

import multiprocessing
import signal
from collections.abc import Callable
from threading import Thread

SPAWN = multiprocessing.get_context("spawn")


def run_together(act: Callable[..., object], *given: tuple[object, ...]) -> None:
    """Run a function in one process per tuple of arguments; all processes must succeed."""
    processes = [SPAWN.Process(target=act, args=arguments) for arguments in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
    assert [p.exitcode for p in processes] == [0] * len(processes)


def run_in_threads(*acts: Callable[[], object]) -> None:
    """Call the functions at the same time, each in a separate thread."""
    threads = [Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)


def run_killed(work: Callable[..., None], *arguments: object) -> None:
    """Run a function in a separate process, which kills itself."""
    process = SPAWN.Process(target=work, args=arguments)
    process.start()
    process.join(200)
    assert process.exitcode == -signal.SIGKILL
