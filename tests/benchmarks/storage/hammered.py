"""Eight processes on 200 keys with a budget for 40, for a minute.

    tests/benchmarks/run storage/hammered [--seconds 60]

No exception, no torn read, the budget kept at each look, each key made once per residence.
"""

import argparse
import multiprocessing
import tempfile
from pathlib import Path

from contracts.store import entry
from hammering import hammer, made
from machine import Goals, describe

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.inspection import verify

N_PROCESSES, N_KEYS = 8, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        address = StoreAddress(f"{folder}/store")
        store = ArtifactStore(address)
        store.set_budget(40 * store.write(entry("a"), made(0), {}).size_bytes)
        logs = [Path(folder, str(i)) for i in range(N_PROCESSES)]
        spawn = multiprocessing.get_context("spawn")
        processes = [
            spawn.Process(target=hammer, args=(address, i, seconds, str(log), N_KEYS))
            for i, log in enumerate(logs)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        totals = store.index.totals()
        n_made = sum(int(log.read_text()) for log in logs if log.exists())
        goals = Goals()
        failed = sum(p.exitcode != 0 for p in processes)
        goals.at_most("processes with an exception or a torn read", failed, 0)
        residences = totals.evicted + totals.count
        goals.at_most("makings beyond one per residence", n_made + 1 - residences, 0)
        wrong = 0 if verify(store).is_sound else 1
        goals.at_most("stores that are not sound afterwards", wrong, 0)
        print(f"{totals.hits} hits, {totals.misses} made, {totals.evicted} evicted")
        store.close()
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
