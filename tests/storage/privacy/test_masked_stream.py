"""Passwords in printed bytes, however these are cut into pieces."""

import pytest

from prefect_tune.storage.privacy.masking import MaskedStream, masked, passwords_in

URL = "postgresql://me:gehéim@host/db"
TEXT = f"step 1\n{URL} and ?password=geheim\r100 %"


def through(stream: MaskedStream, *pieces: bytes) -> bytes:
    return b"".join(map(stream.feed, pieces)) + stream.finish()


def test_a_password_is_masked_wherever_the_stream_is_cut() -> None:
    data, expected = TEXT.encode(), masked(TEXT).encode()
    assert b"geh" not in expected
    for cut in range(len(data)):
        assert through(MaskedStream(), data[:cut], data[cut:]) == expected
    assert through(MaskedStream(), *(bytes([byte]) for byte in data)) == expected


def test_nothing_of_a_password_is_shown_before_its_end_is_known() -> None:
    stream = MaskedStream()
    assert stream.feed(b"to postgresql://me:geh") == b"to "
    assert stream.finish() == b"postgresql://me:***"  # its writer was killed


def test_a_port_at_the_end_is_no_password() -> None:
    assert through(MaskedStream(), b"at http://localhost:4200") == b"at http://localhost:4200"


def test_a_known_password_is_masked_outside_urls() -> None:
    secrets = list(passwords_in("postgresql://me:p%40ss%2Fword@host/db?password=other"))
    data = b"I know p@ss/word, p%40ss%2Fword and other"
    assert through(MaskedStream(secrets), data[:10], data[10:]) == b"I know ***, *** and ***"
    assert not list(passwords_in("postgresql://me:abc@host/db"))  # too many words would go


@pytest.mark.parametrize("data", [bytes(range(128, 256)), b"\xff\xfe\n\x00", "é".encode() * 3])
def test_bytes_that_are_no_text_pass_unchanged(data) -> None:
    assert through(MaskedStream(), data[:1], data[1:]) == data


def test_a_word_without_end_is_not_withheld_for_ever() -> None:
    stream, data = MaskedStream(), b"x" * 1000
    shown = sum(len(stream.feed(data)) for _ in range(1000))
    assert shown > 900_000
    assert shown + len(stream.finish()) == 1_000_000
