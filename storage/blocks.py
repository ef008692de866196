"""The Prefect block of a store, which a deployment opens by name.

    ArtifactStoreBlock(url="s3://bucket/store", database=SecretStr("postgresql+psycopg://...")).save("main")
    store = ArtifactStoreBlock.load("main").open()

A study uses it with `--store block:main`.
"""

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, field_validator

from prefect_tune.storage.privacy.masking import has_password
from prefect_tune.storage.store import ArtifactStore, StoreAddress

__all__ = ["ArtifactStoreBlock"]


class ArtifactStoreBlock(Block):
    """Address of an artifact store.

    Attributes:
        url: fsspec URL of its folder.
        database: SQLAlchemy URL of its index; empty for the SQLite file inside a local folder.
    """

    _block_type_name = "ArtifactStore"
    _block_type_slug = "prefect-tune-artifact-store"

    url: str = Field(description="fsspec URL of the store's folder.")
    database: SecretStr = Field(
        default=SecretStr(""), description="SQLAlchemy URL of its index, for a remote store."
    )

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str) -> str:
        if has_password(url):
            raise ValueError(
                "Prefect shows the URL of the store's folder; give its keys in the environment, as "
                "AWS_SECRET_ACCESS_KEY for s3:// or as FSSPEC_PROTOCOL_OPTION for any filesystem"
            )
        return url

    def open(self) -> ArtifactStore:
        """Open the store.

        Raises:
            StoreRefused: If it cannot be used.
        """
        return ArtifactStore(self.address)

    @property
    def address(self) -> StoreAddress:
        """The store's address, as it travels to workers."""
        return StoreAddress(self.url, self.database.get_secret_value())
