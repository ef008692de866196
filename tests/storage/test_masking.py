"""Passwords in texts and in printed bytes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.storage import masking
from prefect_tune.storage.artifacts import StoreAddress, StoreRefused
from prefect_tune.storage.database import Database, DatabaseLost
from prefect_tune.storage.masking import (
    has_password,
    masked,
    masked_output,
    masked_values,
    passwords_in,
    with_signature,
    without_signature,
)
from prefect_tune.storage.notices import Notice, noticed_by, warn
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput

URL = "postgresql+psycopg://ann:se:cret@db.example:5432/tune"
LETTERS = st.characters(categories=("Lu", "Ll", "Nd"), include_characters="-_.!$:@/+=")


# `80/x@` may be a port with a path: such a password is taken for one.
@given(st.text(LETTERS, min_size=1).filter(lambda word: not re.match(r"\d{1,5}/", word)))
def test_password_in_a_url_is_masked(word: str) -> None:
    shown = masked(f"at x://ann:{word}@db.example/tune now")
    assert shown == "at x://ann:***@db.example/tune now"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["a.", "a://", "a://u:", "x:1@", "?a", "&a.", "@"])
def test_masking_takes_linear_time_in_the_length_of_words(part: str) -> None:
    """With quadratic time, 400 KB would take an hour."""
    text = part * (400_000 // len(part))
    assert len(masked(text)) <= len(text) + 3
    assert has_password(text) in (True, False)


@pytest.mark.parametrize(
    "text",
    ["the store s3://bucket/store cannot be read", "postgresql+psycopg://ann@db.example:5432/tune",
     "http://127.0.0.1:4200/api and a@b.example", "sqlite:////data/store/index.sqlite",
     "http://127.0.0.1:4200/runs/a@b", "s3://bucket/store?endpoint=here&part=2",
     "ridge (alpha=1.0, secretion=2, token=none)"],
)  # fmt: skip
def test_text_without_a_password_is_unchanged(text: str) -> None:
    assert masked(text) == text
    assert not has_password(text)


@pytest.mark.parametrize(
    "url",
    ["s3://AKIA:wJal/rXU+tnF=EMI@bucket/store", "postgresql+psycopg://ann:hid/den@db/tune",
     "postgresql+psycopg:///tune?user=ann&password=hidden",
     "postgresql+psycopg://ann@db/tune?sslmode=require&sslpassword=hidden",
     "https://acc.blob.core.windows.net/c/d.parquet?sv=2024&sig=hidden%3D",
     "https://b.s3.amazonaws.com/d.csv?X-Amz-Credential=hidden&X-Amz-Signature=hidden",
     "abfs://c@acc/d?account_key=hidden", "s3://bucket/d?aws_secret_access_key=hidden"],
)  # fmt: skip
def test_keys_in_url_parameters_are_masked_like_passwords(url: str) -> None:
    assert has_password(url)
    for shown in (masked(url), masked(f"{{'url': '{url}', 'mail': 'a@b'}} failed")):
        assert not any(part in shown for part in ("hid", "wJal", "EMI"))
    assert masked(json.dumps({"url": url, "mail": "a@b"})).endswith('"mail": "a@b"}')


def test_addresses_errors_warnings_and_documents_never_show_a_password(caplog) -> None:
    errors = [error(f"no {URL}") for error in (StoreRefused, StoreLost, BadInput)]
    errors.append(BadInput("cannot be used", option="database", value=URL))
    database = Database("postgresql+psycopg://ann:se:cret@127.0.0.1:1/tune")
    with pytest.raises(DatabaseLost) as refused, database.read():
        pytest.fail("nobody answers")
    heard: list[Notice] = []
    with noticed_by(heard.append):
        warn("trouble", f"records of {URL} stay", URL)
    address = StoreAddress("ftp://ann:se:cret@files.example/store", URL)
    document = masked_values({"a": [URL, 1, None, {"b": (URL,)}]})
    assert document["a"][1:3] == [1, None]
    for text in (*map(str, [*errors, refused.value, heard, document]), repr(address), caplog.text):
        assert "cret" not in text
        assert "ann:***@" in text


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("a\npostgresql://me:gehéim@h/db\r100 %", "a\npostgresql://me:***@h/db\r100 %"),
        ("and ?password=geheim", "and ?password=***"),
        ("to postgresql://me:geh", "to postgresql://me:***"),  # cut while it was printed
        ("at http://host:4200", "at http://host:4200"),
    ],
)
def test_passwords_in_printed_bytes_are_masked(printed, shown) -> None:
    assert masked_output(printed.encode()) == shown.encode()


def test_known_password_is_masked_outside_urls() -> None:
    secrets = list(passwords_in("postgresql://me:p%40ss%2Fword@host/db?password=other"))
    data = b"I know p@ss/word, p%40ss%2Fword and other"
    assert masked_output(data, secrets) == b"I know ***, *** and ***"
    assert not list(passwords_in("postgresql://me:abc@host/db"))  # too many words would go


def test_signature_is_restored_only_in_the_process_that_masked_the_signature(monkeypatch) -> None:
    url, shown = "https://b.example/t.csv?v=1&sig=hidden", "https://b.example/t.csv?v=1&sig=***"
    assert without_signature(url) == shown
    assert with_signature(shown) == url
    monkeypatch.setattr(masking, "_SIGNED", {})  # as in another process
    assert with_signature(shown) == shown
    for other in ("https://ann:hidden@b.example/t.csv?sig=hidden", "s3://b/t.csv", "t.csv"):
        assert without_signature(other) == other
