import pytest

from prefect_tune.flows.preparation.settings import parse_assignment, write_assignments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n=3", 3),
        ("n=0.5", 0.5),
        ("n=true", True),
        ("n=null", None),
        ("n=paper", "paper"),
        ("n=", ""),
        ("n=a=b", "a=b"),
        ('n={"a": [1]}', {"a": [1]}),
    ],
)
def test_a_value_is_json_where_it_reads_as_such(text, value) -> None:
    assert parse_assignment(text) == ("n", value)


@pytest.mark.parametrize("text", ["", "n", "=3", "1n=3", "n m=3"])
def test_another_form_is_refused(text) -> None:
    with pytest.raises(ValueError, match="write NAME=VALUE"):
        parse_assignment(text)


def test_what_is_written_is_parsed_back() -> None:
    values = {"a": 1, "b": "paper", "c": None, "d": 0.5, "e": False}
    assert dict(map(parse_assignment, write_assignments(values))) == values
