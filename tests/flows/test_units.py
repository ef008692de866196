"""Durations and sizes as people write them, and as they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.flows.text import format_bytes, format_seconds, parse_bytes, parse_seconds
from prefect_tune.tasks.bad_input import BadInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("1h 5s", 3605)],
)
def test_durations_are_read_with_their_units(text, seconds) -> None:
    assert parse_seconds(text, "budget") == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes", "-5m", "0s", "1h30", "5x"])
def test_what_is_no_duration_is_refused_with_an_example(text) -> None:
    with pytest.raises(BadInput, match=r"--budget .*: a duration (is|must be)"):
        parse_seconds(text, "budget")


@pytest.mark.parametrize(
    ("text", "size"), [("10GB", 10**10), ("500MB", 5 * 10**8), ("1.5kb", 1500), ("12B", 12)]
)
def test_sizes_are_read_with_their_units(text, size) -> None:
    assert parse_bytes(text, "cache-budget") == size


@pytest.mark.parametrize("text", ["", "10", "GB", "10 gigabytes", "-1GB"])
def test_what_is_no_size_is_refused_with_an_example(text) -> None:
    with pytest.raises(BadInput, match=r"--cache-budget .*: a size is"):
        parse_bytes(text, "cache-budget")


@given(st.floats(0, 1e6))
def test_durations_are_shown_in_at_most_two_units(seconds) -> None:
    assert len(format_seconds(seconds)) <= 7


@given(st.integers(0, 10**15))
def test_shown_sizes_are_near_what_they_are(size) -> None:
    assert parse_bytes(format_bytes(size), "x") == pytest.approx(size, rel=0.06, abs=1)
