import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.storage.key import (
    canonical_json,
    code_digest,
    content_digest,
    digest,
    prefix_key,
)

LINEAGE = {
    "dataset": "d",
    "split": "s",
    "fold": 0,
    "subset": 1.0,
    "subset_draw": 0,
    "steps": [{"step": "rescale", "algorithm": "minmax", "arguments": {"clip": True}}],
}


def test_a_key_is_pinned_so_that_a_change_of_format_is_noticed() -> None:
    assert prefix_key(LINEAGE) == "5519cb86951c14e87b4139d5b3d7cda18d3aa4bc70aec6b1f6a20518f6890115"
    assert (
        digest(b"prefect-tune")
        == "d4fc21d82527f94dee32b4136c4ba8cf293fa656ce4f981603a4c604087105a5"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "e"},
        {"split": "t"},
        {"fold": 1},
        {"subset": 0.5},
        {"subset_draw": 1},
        {"steps": []},
        {"steps": [{"step": "rescale", "algorithm": "minmax", "arguments": {"clip": False}}]},
    ],
)
def test_whatever_may_change_a_result_changes_the_key(change) -> None:
    assert prefix_key({**LINEAGE, **change}) != prefix_key(LINEAGE)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_equal_values_give_equal_text_in_any_order(value) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


def test_true_and_one_are_not_the_same() -> None:
    assert canonical_json({"a": True}) != canonical_json({"a": 1})


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_does_not_know_are_refused(number) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": number})


def test_where_one_part_ends_and_the_next_begins_counts() -> None:
    assert content_digest("t", [b"ab", b"c"]) != content_digest("t", [b"a", b"bc"])
    assert content_digest("t", [b"a"]) != content_digest("u", [b"a"])


CODE = """
from functools import cache
LIMIT = 255

@cache
def bounded(value, most=LIMIT):
    if value > most:
        return most
    return value
"""


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("LIMIT = 255", 'LIMIT = 0xFF  # of histograms\n"""What histograms have room for."""'),
        ("most=LIMIT):", 'most=LIMIT):\n    """Bound a value."""'),
        ("from functools", '"""A module."""\n\n\nfrom functools'),
        ("    return value", "\n    return (\n        value\n    )"),
    ],
)
def test_comments_docstrings_and_layout_keep_the_digest_of_code(text, edited) -> None:
    assert text in CODE
    assert code_digest("t", [CODE.replace(text, edited)]) == code_digest("t", [CODE])


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("LIMIT = 255", "LIMIT = 256"),
        ("LIMIT = 255", "LIMIT = 255.0"),
        ("LIMIT = 255", "LIMIT = '255'"),
        ("most=LIMIT", "most=12"),
        ("most=LIMIT", "most=None"),
        ("most=LIMIT", "most"),
        ("@cache\n", ""),
        ("value > most", "value >= most"),
        ("    return value", "return value"),
        ("    return value", "    return 'value'"),
        ("        return most", "        pass"),
    ],
)
def test_whatever_python_runs_decides_the_digest_of_code(text, edited) -> None:
    assert text in CODE
    assert code_digest("t", [CODE.replace(text, edited)]) != code_digest("t", [CODE])


def test_a_parser_that_stumbles_over_another_thread_is_tried_again(monkeypatch) -> None:
    parse, stumbles = ast.parse, iter([True, True])

    def stumbling(text: str) -> ast.Module:
        if next(stumbles, False):
            raise SystemError("AST constructor recursion depth mismatch")
        return parse(text)

    digest = code_digest("t", [CODE])
    monkeypatch.setattr(ast, "parse", stumbling)
    assert code_digest("t", [CODE]) == digest


def test_code_that_python_cannot_parse_counts_as_it_is_written() -> None:
    assert code_digest("t", ["def ("]) == code_digest("t", ["def ("])
    assert code_digest("t", ["def ("]) != code_digest("t", ["def (  # comment"])
