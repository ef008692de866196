"""Whoever only looks at a store waits for no library that reads matrices."""

import subprocess
import sys
from pathlib import Path

import pytest

from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

LOOK = """
import sys
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.inspection import Selection, list_artifacts, stats

store = ArtifactStore(StoreAddress(sys.argv[1]))
ledger = Ledger(store.database)
assert ledger.study("s") and not ledger.trials("s") and not list_artifacts(store, Selection())
stats(store), store.close()
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.timeout(60)
def test_looking_imports_nothing_heavy(tmp_path: Path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path)))
    Ledger(store.database).create_study("s", {}, {})
    store.close()
    command = [sys.executable, "-c", LOOK, str(tmp_path)]
    looked = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"numpy", "pandas", "pyarrow", "scipy", "sklearn", "ConfigSpace", "prefect", "dask"}
    assert heavy.isdisjoint(looked.stdout.split())
