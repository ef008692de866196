"""Location and name of a store, and passwords that are shown nowhere."""

import json
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from command_line import CommandLine
from finished.searched import searched
from inputs import QUICK_OPTIONS, write_table
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect_api import flow_runs
from processes import environment, run_json, run_python
from pydantic import SecretStr, ValidationError
from services import Postgres

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.options.store_location import (
    DATABASE_VARIABLE,
    store_address,
    store_options,
)
from prefect_tune.flows.starting.prepare import prepare_retry
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.blocks import ArtifactStoreBlock
from prefect_tune.storage.codec import KEY_BLOCK_VARIABLE, signing_key
from prefect_tune.tasks.bad_input import BadInput

DATABASE = "postgresql+psycopg://ann:hidden@db/tune"


@pytest.fixture(autouse=True)
def of_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path))
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)


@pytest.mark.parametrize(
    "password", ["hidden", "p'hidden", "12345/hidden", 'a"hidden', "hid?den", "hid#den"]
)
def test_database_with_a_password_is_refused_with_a_remedy(password) -> None:
    with pytest.raises(BadInput, match=r"ann:\*\*\*@") as refused:
        store_address("s3://bucket/store", f"postgresql+psycopg://ann:{password}@db/tune")
    assert refused.value.option == "database"
    assert "hid" not in str(refused.value)
    assert DATABASE_VARIABLE in refused.value.remedy


@pytest.mark.parametrize("option", ["store", "data", "labels", "test", "dask"])
def test_any_url_with_a_password_is_refused(tmp_path, option) -> None:
    urls = ["s3://KEY:hid/den@bucket/x", "ftp://ann:hidden@host/x", "https://hid@host/x"]
    for url in (*urls, *(["https://host/x?sig=hidden"] if option in {"store", "dask"} else [])):
        given = dict.fromkeys(OPTIONS) | {"data": "cohort:demo", option: url}
        with pytest.raises(BadInput, check=lambda e: e.option == option) as refused:
            StudyOptions.parse(given)
        assert "hid" not in str(refused.value)
    with pytest.raises(BadInput, check=lambda e: e.option == "dask"):
        prepare_retry("s", None, {"store": str(tmp_path), "dask": "tls://ann:hidden@host:1"})


def test_environment_variable_sets_the_database_without_a_parameter(monkeypatch) -> None:
    monkeypatch.setenv(DATABASE_VARIABLE, DATABASE)
    assert store_address("s3://bucket/store", None) == StoreAddress("s3://bucket/store", DATABASE)
    other = "postgresql+psycopg://ann@db/other"
    assert store_address("s3://bucket/store", other).database == other
    assert store_options(store_address("s3://b/s", None)) == ["--store", "s3://b/s"]


def test_block_hides_the_database_and_refuses_a_url_with_a_password() -> None:
    block = ArtifactStoreBlock(url="s3://bucket/store", database=DATABASE)
    assert block.address == StoreAddress("s3://bucket/store", DATABASE)
    assert "hidden" not in repr(block) + json.dumps(block.model_dump(mode="json"))
    with pytest.raises(ValidationError, match="in the environment"):
        ArtifactStoreBlock(url="s3://KEY:hidden@bucket/store")


@pytest.mark.usefixtures("server")
def test_commands_refuse_passwords_before_a_flow_run_begins(tmp_path) -> None:
    before, data = len(flow_runs()), (write_table(tmp_path), "--target", "target")
    for words in (("run", *data), ("compare", *data), ("retry", "s"), ("show", "s")):
        done = CommandLine(tmp_path / "home")(*words, "--database", DATABASE)
        assert done.exit_code == 2, done.output
        assert DATABASE_VARIABLE in done.stderr
        assert "hidden" not in done.output
    assert len(flow_runs()) == before


@pytest.mark.full
def test_password_in_the_environment_variable_is_stored_nowhere(
    server, tmp_path, monkeypatch
) -> None:
    postgres = Postgres(tmp_path / "postgres")
    url = postgres.new_database()
    joint = "&" if "?" in url else "?"
    monkeypatch.setenv(DATABASE_VARIABLE, f"{url}{joint}password=hiddenword")
    home, data = tmp_path / "home", write_table(tmp_path)
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 1, "--workers", 1)
    try:
        summary = run_json("run", data, *options, home=home, server=server)
        assert summary["state"] == "complete"
        assert run_json("show", "s", home=home)["n_trials"] == 1
    finally:
        postgres.stop()
    assert "hiddenword" not in json.dumps([r.model_dump(mode="json") for r in flow_runs()])
    files = [p for p in home.rglob("*") if p.is_file()]
    assert [p for p in files if b"hiddenword" in p.read_bytes()] == []


def test_store_folder_is_made_absolute_for_workers(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_address(None, None) == StoreAddress(str(tmp_path / "store"))
    assert store_address("mine", None).url == str(Path.cwd() / "mine")
    assert store_address("~/mine", None).url == str(tmp_path / "mine")
    assert store_address("~no-such-user/x", None).url == str(Path.cwd() / "~no-such-user/x")


@pytest.mark.parametrize(
    ("store", "database"),
    [
        (None, None),
        ("my store", None),
        ("s3://bucket/store", "postgresql+psycopg://ann@db/tune"),
        (None, "sqlite:////data/index.sqlite"),
    ],
)
def test_printed_options_name_the_given_store(store, database) -> None:
    address = store_address(store, database)
    words = store_options(address)
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert store_address(given.get("--store"), given.get("--database")) == address
    assert ("--store" in given) == (store is not None)
    secret = StoreAddress("https://ann:hidden@host/store", DATABASE)
    assert "hidden" not in shlex.join(store_options(secret))


@pytest.mark.usefixtures("server")
def test_study_uses_the_store_named_by_a_block(tmp_path) -> None:
    assert entry_points(group="prefect.collections")["prefect_tune"].load().ArtifactStoreBlock
    with get_client(sync_client=True) as client:
        assert client.read_block_type_by_slug("prefect-tune-artifact-store").description
    url = str(tmp_path / "store")
    ArtifactStoreBlock(url=url, database=SecretStr("")).save("main", overwrite=True)
    searched(tmp_path, data=str(write_table(tmp_path)), target="target", trials=1, fit=False,
             race=False, store="block:main")  # fmt: skip
    opened = ArtifactStoreBlock.load("main").open()
    assert opened.address.url == url
    assert opened.index.totals().count > 0
    opened.close()
    with pytest.raises(BadInput, check=lambda e: (e.option, e.value) == ("store", "block:nowhere")):
        store_address("block:nowhere", None)


@pytest.mark.usefixtures("server")
def test_signing_key_may_come_from_a_secret_block(monkeypatch) -> None:
    Secret(value="of the block").save("signing", overwrite=True)
    monkeypatch.setenv(KEY_BLOCK_VARIABLE, "signing")
    signing_key.cache_clear()
    assert signing_key() == b"of the block"
    monkeypatch.undo()
    signing_key.cache_clear()
    assert signing_key() is None


NO_ACCOUNT = """
import os, pwd

def unknown(_):
    raise KeyError("uid not found")

pwd.getpwuid = unknown
from pathlib import Path
from prefect_tune.flows.options.store_location import home
print(Path.home())
del os.environ["PREFECT_TUNE_HOME"], os.environ["HOME"]
try:
    home()
except ValueError as error:
    print(error.remedy)
"""


@pytest.mark.full
def test_user_without_an_account_is_told_to_set_a_home(tmp_path) -> None:
    told = {**environment(tmp_path), "PREFECT_TUNE_HOME": str(tmp_path)}
    told.pop("HOME")
    said = run_python(NO_ACCOUNT, env=told).splitlines()
    assert said == [str(tmp_path), "set PREFECT_TUNE_HOME to a folder for studies"]
