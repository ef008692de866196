"""Keys of artifacts, digests of code, and ids of records."""

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.storage.code_digest import code_digest
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
KEY = "5519cb86951c14e87b4139d5b3d7cda18d3aa4bc70aec6b1f6a20518f6890115"


def test_keys_and_ids_equal_the_recorded_values() -> None:
    assert prefix_key(LINEAGE) == KEY
    assert digest(b"prefect-tune").startswith("d4fc21d82527f94dee32b4136c4ba8cf")
    key, other = "ab" * 32, "0123456789abcdef" * 4
    assert dataset_record(other) == f"data/{other}"
    assert split_record(other) == f"splits/{other}"
    assert predictions_record(key) == f"predictions/ab/{key}"
    assert quantity_record(key, other) == f"quantities/ab/{key}/0123456789abcdef"
    assert model_record("one") == "models/one"


@pytest.mark.parametrize(
    "change",
    [{"dataset": "e"}, {"split": "t"}, {"fold": 1}, {"subset": 0.5}, {"subset_draw": 1},
     {"steps": []},
     {"steps": [{"step": "rescale", "algorithm": "minmax", "arguments": {"clip": False}}]}],
)  # fmt: skip
def test_every_input_of_a_result_changes_the_key(change) -> None:
    assert prefix_key({**LINEAGE, **change}) != KEY


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_equal_values_give_equal_text_in_any_order(value) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({**value, "a": math.nan})


def test_content_digest_depends_on_the_boundaries_of_parts() -> None:
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
    ("text", "edited", "is_same"),
    [("LIMIT = 255", 'LIMIT = 0xFF  # of histograms\n"""What histograms have room for."""', True),
     ("most=LIMIT):", 'most=LIMIT):\n    """Bound a value."""', True),
     ("from functools", '"""A module."""\n\n\nfrom functools', True),
     ("    return value", "\n    return (\n        value\n    )", True),
     ("    return value", "    pass\n    return value", True),
     ("LIMIT = 255", "LIMIT = 256", False), ("LIMIT = 255", "LIMIT = 255.0", False),
     ("LIMIT = 255", "LIMIT = '255'", False), ("most=LIMIT", "most=12", False),
     ("most=LIMIT", "most=None", False), ("most=LIMIT", "most", False), ("@cache\n", "", False),
     ("value > most", "value >= most", False), ("    return value", "return value", False),
     ("    return value", "    return 'value'", False), ("        return most", "pass", False),
     ("LIMIT = 255", "LIMIT = {**A, 1: 2}", False), ("most=LIMIT):", "most=LIMIT", False)],
)  # fmt: skip
def test_digest_of_code_depends_only_on_what_python_runs(text, edited, is_same) -> None:
    """Code that Python cannot parse is hashed unchanged."""
    assert text in CODE
    edited = CODE.replace(text, edited)
    assert (code_digest("t", [edited]) == code_digest("t", [CODE])) is is_same


@pytest.mark.parametrize("reads", ["bounded.__doc__", "inspect.getsource(bounded)"])
def test_docstrings_count_in_code_that_reads_docstrings(reads) -> None:
    one, two = (f'def bounded():\n    """{doc}"""\nTEXT = {reads}\n' for doc in ("One.", "Two."))
    assert code_digest("t", [one]) != code_digest("t", [two])


def test_digest_of_a_long_chain_does_not_depend_on_the_stack_depth_of_the_caller() -> None:
    branches = "".join(f"elif x == {i}:\n    y = {i}\n" for i in range(400))
    chain, commented = (f"if x:\n    y = 1\n{branches}{more}" for more in ("", "# a chain\n"))

    def digest_at(depth: int, text: str) -> str:
        return digest_at(depth - 1, text) if depth else code_digest("t", [text])

    assert digest_at(300, chain) == digest_at(0, commented)


def test_parser_error_caused_by_another_thread_is_retried(monkeypatch) -> None:
    parse, stumbles = ast.parse, iter([True, True])

    def stumbling(text: str) -> ast.Module:
        if next(stumbles, False):
            raise SystemError("AST constructor recursion depth mismatch")
        return parse(text)

    expected = code_digest("t", [CODE])
    monkeypatch.setattr(ast, "parse", stumbling)
    assert code_digest("t", [CODE]) == expected
