import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.storage import StoreAddress, StoreLost, StoreRefused
from prefect_tune.storage.database import Database, DatabaseLost, DatabaseRefused
from prefect_tune.storage.migrations.upgrade import bring_up_to_date
from prefect_tune.storage.privacy.masking import has_password, masked
from prefect_tune.tasks.bad_input import BadInput

URL = "postgresql+psycopg://ann:se:cret@db.example:5432/tune"
LETTERS = st.characters(categories=("Lu", "Ll", "Nd"), include_characters="-_.!$:@")


@given(st.text(LETTERS, min_size=1))
def test_a_password_is_never_shown(word: str) -> None:
    shown = masked(f"at x://ann:{word}@db.example/tune now")
    assert shown == "at x://ann:***@db.example/tune now"


@pytest.mark.parametrize(
    "text",
    [
        "the store s3://bucket/store cannot be read",
        "postgresql+psycopg://ann@db.example:5432/tune",
        "http://127.0.0.1:4200/api and a@b.example",
        "sqlite:////data/store/index.sqlite",
    ],
)
def test_what_has_no_password_is_shown_as_it_is(text: str) -> None:
    assert masked(text) == text
    assert not has_password(text)


def test_the_rest_of_a_url_is_shown() -> None:
    assert masked(f"at {URL}, twice: {URL}") == (
        "at postgresql+psycopg://ann:***@db.example:5432/tune, twice: "
        "postgresql+psycopg://ann:***@db.example:5432/tune"
    )
    assert has_password(URL)
    assert masked("redis://:secret@cache") == "redis://:***@cache"


def test_addresses_and_errors_do_not_show_it() -> None:
    shown = [
        repr(StoreAddress("ftp://ann:se:cret@files.example/store", URL)),
        *(
            str(error(f"no {URL}"))
            for error in (StoreRefused, StoreLost, DatabaseRefused, BadInput)
        ),
        str(BadInput("cannot be used", option="database", value=URL)),
    ]
    for text in shown:
        assert "cret" not in text
        assert "ann:***@" in text


def test_a_database_that_does_not_answer_is_named_without_it() -> None:
    database = Database("postgresql+psycopg://ann:se:cret@127.0.0.1:1/tune")
    with pytest.raises(DatabaseLost) as refused:
        bring_up_to_date(database)
    assert "cret" not in str(refused.value)
    assert "ann:***@127.0.0.1" in str(refused.value)
