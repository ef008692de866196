from collections.abc import Iterator
from pathlib import Path

import pytest

from prefect_tune.storage import ArtifactStore, StoreAddress


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress(str(tmp_path / "store"))


@pytest.fixture
def store(address: StoreAddress) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(address, memory_bytes=0)
    yield opened
    opened.close()
