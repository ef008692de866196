"""Random tables in every form of `written_tables`: columns, kinds, notes and digest are the same.

    tests/benchmarks/run tasks/table_forms [--tables 400] [--first 0]

Prints each form that is silently read as another table, and ends with exit code 1 if there is one.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from written_tables import FORMS, differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    n_different = 0
    for seed in range(chosen.first, chosen.first + chosen.tables):
        with tempfile.TemporaryDirectory() as folder:
            for difference in differences(seed, Path(folder)):
                print(difference, flush=True)
                n_different += 1
    print(f"{chosen.tables} tables in {len(FORMS)} forms: {n_different} silently different")
    return bool(n_different)


if __name__ == "__main__":
    sys.exit(main())
