from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Postgres, bucket_at, s3_server

from prefect_tune.storage import ArtifactStore, StoreAddress


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress(str(tmp_path / "store"))


@pytest.fixture
def store(address: StoreAddress) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(address, memory_bytes=0)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """Name of an empty bucket; the environment says where its server is."""
    with s3_server() as url, bucket_at(url) as name:
        yield name
