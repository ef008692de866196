"""A store that a deployment opens through a Prefect block, and the key that it may hold."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from inputs import write_table
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from processes import environment
from pydantic import SecretStr

from prefect_tune.flows.tuning import tune
from prefect_tune.storage.blocks import ArtifactStoreBlock
from prefect_tune.storage.privacy import signing
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.usefixtures("server")


def test_a_server_knows_the_block_as_soon_as_we_are_installed() -> None:
    collections = entry_points(group="prefect.collections")
    assert collections["prefect_tune"].load().ArtifactStoreBlock is ArtifactStoreBlock
    with get_client(sync_client=True) as client:
        block = client.read_block_type_by_slug("prefect-tune-artifact-store")
    assert block.name == "ArtifactStore"
    assert "what the steps of pipelines made" in block.description
    assert str(block.logo_url).endswith(".png")
    assert block.documentation_url
    assert "prefect_tune.storage.blocks" in block.code_example


def test_the_block_is_registered_by_hand_as_well(server, tmp_path) -> None:
    command = ("block", "register", "-m", "prefect_tune.storage.blocks")
    done = subprocess.run(
        [Path(sys.executable).with_name("prefect"), *command],
        env=environment(tmp_path, server) | {"PREFECT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ArtifactStore" in done.stdout
    assert "Successfully registered 1 block" in " ".join(done.stdout.split())


def test_a_study_uses_the_store_that_a_block_names(tmp_path) -> None:
    url = str(tmp_path / "store")
    ArtifactStoreBlock(url=url, database=SecretStr("")).save("main", overwrite=True)
    summary = tune(
        data=str(write_table(tmp_path)),
        target="target",
        trials=1,
        workers=1,
        race=False,
        store="block:main",
    )
    assert summary["n_trials"] == 1
    opened = ArtifactStoreBlock.load("main").open()
    assert opened.address.url == url
    assert opened.index.totals().count > 0
    opened.close()


def test_a_block_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(BadInput, match=r"--store block:nowhere: .*nowhere"):
        tune(data=str(write_table(tmp_path)), target="target", store="block:nowhere")


def test_the_signing_key_may_come_from_a_secret_block(monkeypatch) -> None:
    Secret(value="of the block").save("signing", overwrite=True)
    monkeypatch.setenv(signing.KEY_BLOCK_VARIABLE, "signing")
    signing.signing_key.cache_clear()
    assert signing.signing_key() == b"of the block"
    monkeypatch.undo()
    signing.signing_key.cache_clear()
    assert signing.signing_key() is None
