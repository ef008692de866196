"""The Prefect block that holds a store's address, so that deployments open the store by name.

A Prefect server finds the block through the entry point `prefect.collections`. To register the
block manually, run `prefect block register -m prefect_tune.storage.blocks`.

    ArtifactStoreBlock(url="s3://bucket/store", database=SecretStr("postgresql+psycopg://...")).save("main")
    store = ArtifactStoreBlock.load("main").open()

To use the block in a study, pass `--store block:main`.
"""

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, field_validator

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.masking import has_password

__all__ = ["ArtifactStoreBlock"]


class ArtifactStoreBlock(Block):
    """Address of an artifact store: fsspec `url` of the folder, SQLAlchemy URL of the `database`.

    Without `database`, the index is a SQLite file inside the folder, which must then be local.
    """

    _block_type_name = "ArtifactStore"
    _block_type_slug = "prefect-tune-artifact-store"
    _description = (
        "Folder and database in which prefect-tune stores the step results of pipelines and the "
        "records of studies. To use the block in a study, set store=block:NAME."
    )

    url: str = Field(description="fsspec URL of the store's folder.")
    database: SecretStr = Field(
        default=SecretStr(""), description="SQLAlchemy URL of the index, for a remote store."
    )

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str) -> str:
        if has_password(url):
            raise ValueError(
                "the URL contains a password, and Prefect displays URLs; set the password in the "
                "environment instead, as AWS_SECRET_ACCESS_KEY for s3:// or as "
                "FSSPEC_PROTOCOL_OPTION for any filesystem"
            )
        return url

    def open(self) -> ArtifactStore:
        """Open the store; raises StoreRefused if the store cannot be used."""
        return ArtifactStore(self.address)

    @property
    def address(self) -> StoreAddress:
        """Address of the store, in the form that is sent to workers."""
        return StoreAddress(self.url, self.database.get_secret_value())
