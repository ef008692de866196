"""The contract of stores, for each place of files and each database."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from contracts.store import StoreContract

from prefect_tune.storage.artifacts import StoreAddress


class TestLocalFolderWithSqlite(StoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> StoreAddress:
        return StoreAddress(str(tmp_path / "store"))


class TestLocalFolderWithPostgres(StoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path, postgres) -> StoreAddress:
        return StoreAddress(str(tmp_path / "store"), postgres.new_database())


class TestS3WithPostgres(StoreContract):
    @pytest.fixture
    def address(self, bucket: str, postgres) -> Iterator[StoreAddress]:
        return StoreAddress(f"s3://{bucket}/{uuid4().hex}", postgres.new_database())
