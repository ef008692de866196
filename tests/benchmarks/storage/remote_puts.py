"""Seconds until an artifact of three parts is in a bucket that takes 100 ms for each request.

tests/benchmarks/run storage/remote_puts [--puts 20]
"""

import argparse
import tempfile
from statistics import median
from time import perf_counter
from uuid import uuid4

from contracts.store import entry
from machine import Goals, describe
from services.faulty_bucket import faulty_bucket

from prefect_tune.storage import ArtifactStore, Made, StoreAddress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puts", type=int, default=20)
    n_puts = parser.parse_args().puts
    print(describe())
    seconds = []
    with tempfile.TemporaryDirectory() as folder, faulty_bucket() as proxy:
        address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{folder}/index.sqlite")
        store = ArtifactStore(address, memory_bytes=0)
        proxy.fault = "slow"
        made = Made({"train": {"a": 1}, "held_out": {"b": 2}, "estimator": {"c": 3}}, {}, 1.0)
        for number in range(n_puts):
            started = perf_counter()
            store.write(entry(f"{number:02x}f"), made, {})
            seconds.append(perf_counter() - started)
        proxy.fault = ""
        store.close()
    print(describe())
    goals = Goals()
    goals.at_most("seconds of a put, median", median(seconds), 0.25)
    goals.end()


if __name__ == "__main__":
    main()
