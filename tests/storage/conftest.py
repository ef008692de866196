from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Postgres, s3_server

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
    import s3fs

    with s3_server() as url, pytest.MonkeyPatch.context() as patched:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patched.setenv(name, "test")
        patched.setenv("AWS_ENDPOINT_URL", url)
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem().mkdir("bucket")
        yield "bucket"
