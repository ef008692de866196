"""Small artifacts made and kept per second by processes that share a store with PostgreSQL.

    tests/benchmarks/run storage/puts [--seconds 10] [--processes 1 8] [--delay-ms 0]

Every key is new, so each put takes a lease, writes its files, is admitted and gives the lease back.
With --delay-ms each statement of the database takes so long more, as over a network.
"""

import argparse
import multiprocessing
import os
import tempfile
from pathlib import Path
from time import monotonic, sleep

from contracts.store import entry
from hammering import made
from machine import describe
from services import Postgres
from sqlalchemy import event

from prefect_tune.storage import ArtifactStore, StoreAddress


def put(address: StoreAddress, seconds: float, delay_ms: float, go, counts) -> None:
    """Make and keep new artifacts until the time is over."""
    store = ArtifactStore(address, memory_bytes=0)
    if delay_ms:
        event.listen(
            store.database.engine, "before_cursor_execute", lambda *_: sleep(delay_ms / 1e3)
        )
    made_once, n = made(1), 0
    go.wait()
    until = monotonic() + seconds
    while monotonic() < until:
        key = f"{os.getpid():08x}{n:08x}"[::-1]
        store.get_or_make(entry(key), {}, lambda: made_once)
        n += 1
    store.close()
    counts.put(n)


def per_second(server: Postgres, n_processes: int, seconds: float, delay_ms: float) -> float:
    """Puts per second of so many processes together."""
    with tempfile.TemporaryDirectory() as folder:
        address = StoreAddress(f"{folder}/store", server.new_database())
        ArtifactStore(address).close()
        spawn = multiprocessing.get_context("spawn")
        go, counts = spawn.Barrier(n_processes), spawn.Queue()
        arguments = (address, seconds, delay_ms, go, counts)
        processes = [spawn.Process(target=put, args=arguments) for _ in range(n_processes)]
        for process in processes:
            process.start()
        total = sum(counts.get() for _ in processes)
        for process in processes:
            process.join()
        return total / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--delay-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder, "postgres"))
        for n in arguments.processes:
            rate = per_second(server, n, arguments.seconds, arguments.delay_ms)
            print(f"{n} processes: {rate:.0f} puts/s")
        server.stop()
    print(describe())


if __name__ == "__main__":
    main()
