from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from services import Postgres, bucket_at, s3_server

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.notices import noticed_by


@pytest.fixture(autouse=True)
def _hear_earlier_warnings() -> None:
    """Discard warnings of earlier tests, so that the next listener does not receive them."""
    with noticed_by(lambda _: None):
        pass


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress(str(tmp_path / "store"))


@pytest.fixture
def store(address: StoreAddress) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(address, memory_bytes=0)
    yield opened
    opened.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.slow, pytest.mark.full])]
)
def either_address(request: pytest.FixtureRequest, address: StoreAddress) -> StoreAddress:
    """An empty store with its index in its folder or on a server."""
    if request.param == "sqlite":
        return address
    return replace(address, database=request.getfixturevalue("postgres").new_database())


@pytest.fixture
def either_store(either_address: StoreAddress) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(either_address, memory_bytes=0)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """Name of an empty bucket; environment variables name its server."""
    with s3_server() as url, bucket_at(url) as name:
        yield name
