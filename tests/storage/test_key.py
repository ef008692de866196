"""Keys of artifacts, digests of code, and ids of records."""

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.storage.code_digest import _tokens, code_digest
from prefect_tune.storage.keys import (
    canonical_json,
    content_digest,
    dataset_record,
    digest,
    model_record,
    predictions_record,
    prefix_key,
    quantity_record,
    split_record,
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
    [{"dataset": "e"}, {"split": "t"}, {"fold": 1}, {"subset": 0.5}, {"subset_draw": 1},
     {"steps": []},
     {"steps": [{"step": "rescale", "algorithm": "minmax", "arguments": {"clip": False}}]}],
)  # fmt: skip
def test_whatever_may_change_a_result_changes_the_key(change) -> None:
    assert prefix_key({**LINEAGE, **change}) != prefix_key(LINEAGE)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_equal_values_give_equal_text_in_any_order(value) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_does_not_know_are_refused(number) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
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
    [("LIMIT = 255", 'LIMIT = 0xFF  # of histograms\n"""What histograms have room for."""'),
     ("most=LIMIT):", 'most=LIMIT):\n    """Bound a value."""'),
     ("from functools", '"""A module."""\n\n\nfrom functools'),
     ("    return value", "\n    return (\n        value\n    )"),
     ("    return value", "    pass\n    return value")],
)  # fmt: skip
def test_comments_docstrings_and_layout_keep_the_digest_of_code(text, edited) -> None:
    assert text in CODE
    assert code_digest("t", [CODE.replace(text, edited)]) == code_digest("t", [CODE])


@pytest.mark.parametrize(
    ("text", "edited"),
    [("LIMIT = 255", "LIMIT = 256"), ("LIMIT = 255", "LIMIT = 255.0"),
     ("LIMIT = 255", "LIMIT = '255'"), ("most=LIMIT", "most=12"), ("most=LIMIT", "most=None"),
     ("most=LIMIT", "most"), ("@cache\n", ""), ("value > most", "value >= most"),
     ("    return value", "return value"), ("    return value", "    return 'value'"),
     ("        return most", "        pass"), ("LIMIT = 255", "LIMIT = {**A, 1: 2}")],
)  # fmt: skip
def test_whatever_python_runs_decides_the_digest_of_code(text, edited) -> None:
    assert text in CODE
    assert code_digest("t", [CODE.replace(text, edited)]) != code_digest("t", [CODE])


def test_a_body_of_pass_is_one_of_a_docstring() -> None:
    lone, told = "class Odd(Exception):\n    pass\n", 'class Odd(Exception):\n    """Odd."""\n'
    assert code_digest("t", [lone]) == code_digest("t", [told])


@pytest.mark.parametrize("reads", ["bounded.__doc__", "inspect.getsource(bounded)"])
def test_the_docstrings_of_code_that_reads_them_decide_its_digest(reads) -> None:
    one, two = (f'def bounded():\n    """{doc}"""\nTEXT = {reads}\n' for doc in ("One.", "Two."))
    assert code_digest("t", [one]) != code_digest("t", [two])


def test_the_digest_of_a_long_chain_does_not_depend_on_the_depth_of_its_caller() -> None:
    branches = "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(400))
    chain, commented = (f"if x:\n    y = 1\n{branches}{more}" for more in ("", "# a chain\n"))

    def digest_at(depth: int, text: str) -> str:
        return digest_at(depth - 1, text) if depth else code_digest("t", [text])

    assert digest_at(300, chain) == digest_at(0, commented)


def test_letters_that_only_newer_versions_of_python_can_print_are_escaped() -> None:
    assert "".join(_tokens(ast.parse("NAME = '\u00e9\U0001fae8'"))).isascii()


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


def test_ids_match_stores_on_disk():
    key, digest = "ab" * 32, "0123456789abcdef" * 4
    assert dataset_record(digest) == f"data/{digest}"
    assert split_record(digest) == f"splits/{digest}"
    assert predictions_record(key) == f"predictions/ab/{key}"
    assert quantity_record(key, digest) == f"quantities/ab/{key}/0123456789abcdef"
    assert model_record("one") == "models/one"
