"""What every option of every method promises."""

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import pytest
from worlds import mixed_space

from prefect_tune.optimizers import METHODS, Method, UnknownName, check_options, make_optimizer

_LEARNING = "n_first [1"
_BOUNDS = {
    "random": "",
    "flash": "n_init [1, n_prune [0, r [1, keep [0 1]",
    "admm": "rho [0, rho_g (0",
    **dict.fromkeys(("smac", "tpe", "jopt"), "n_startup [1"),
    **dict.fromkeys(("esmbo", "ers"), "n_histories [1"),
    **dict.fromkeys(("halving", "hyperband", "bohb"), "eta [2"),
    "fabolas": _LEARNING,
    "mtbo": f"{_LEARNING}, share (0 1)",
    "ei": _LEARNING,
    "es": _LEARNING,
    "bapi": "horizon [1, p (0 1], epsilon [0, n_first [1",
}
INTERVALS = {
    name: dict(bounds.split(" ", 1) for bounds in text.split(", ") if bounds)
    for name, text in _BOUNDS.items()
}
"""Of the numbers: brackets are on the bounds that are allowed."""
OPTIONS = [
    (name, field.name) for name, method in METHODS.items() for field in fields(method.options)
]


def kinds(name: str, option: str) -> tuple[Any, ...]:
    """The types of an option, or its words."""
    kind = get_type_hints(METHODS[name].options)[option]
    return (kind,) if isinstance(kind, type) else get_args(kind)


def is_number(name: str, option: str) -> bool:
    return bool({int, float} & set(kinds(name, option)))


def made(name: str, option: str, value: Any) -> Any:
    return METHODS[name].options(**{option: value})


NUMBERS = [which for which in OPTIONS if is_number(*which)]
WORDS = [which for which in OPTIONS if not is_number(*which)]


@pytest.mark.parametrize("name", METHODS)
def test_defaults_are_valid_and_survive_json_and_every_number_has_its_bounds(name: str) -> None:
    defaults = METHODS[name].options()
    assert type(defaults)(**json.loads(json.dumps(asdict(defaults)))) == defaults
    assert {option for of, option in NUMBERS if of == name} == INTERVALS[name].keys()


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_a_number_is_taken_on_its_bounds_and_refused_just_outside(name: str, option: str) -> None:
    interval = INTERVALS[name][option]
    step = 1 if int in kinds(name, option) else 1e-6
    bounds = [(interval[0], float(interval[1:].split()[0].rstrip("])")), -step)]
    if " " in interval:
        bounds.append((interval[-1], float(interval.split()[1][:-1]), step))
    for bracket, bound, outwards in bounds:
        at = int(bound) if step == 1 else bound
        inside, outside = (at, at + outwards) if bracket in "[]" else (at - outwards, at)
        options = made(name, option, inside)
        assert getattr(options, option) == inside
        assert type(options)(**json.loads(json.dumps(asdict(options)))) == options
        with pytest.raises(ValueError, match=option) as refused:
            made(name, option, outside)
        assert str(outside) in str(refused.value)


def refuses(name: str, option: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=option) as refused:
        made(name, option, value)
    assert repr(value) in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("value", ["x", float("nan"), float("inf"), True])
def test_what_is_no_number_is_refused(name: str, option: str, value: Any) -> None:
    refuses(name, option, value)
    if float not in kinds(name, option):
        refuses(name, option, 2.5)


@pytest.mark.parametrize(("name", "option"), WORDS)
def test_each_word_is_taken_and_no_other(name: str, option: str) -> None:
    words = re.findall(r"'(\w+)'", str(get_type_hints(METHODS[name].options)[option]))
    assert words
    for word in words:
        assert getattr(made(name, option, word), option) == word
    refuses(name, option, "another")


@pytest.mark.parametrize("name", METHODS)
def test_methods_check_their_options_before_any_work(name: str) -> None:
    with pytest.raises(UnknownName, match="unheard_of"):
        make_optimizer(name, mixed_space(), 0, None, {"unheard_of": 4})


@dataclass
class Options:
    limit: float | None = None
    perhaps: Literal["one", "other"] | None = None
    rule: Literal["one", "other"] = "one"


def test_none_is_taken_where_it_may_be_given() -> None:
    check_options(Options(limit=None, perhaps=None))
    check_options(Options(limit=3, perhaps="other"))
    with pytest.raises(ValueError, match="rule"):
        check_options(Options(rule=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("decisions", "n_lines"), [({}, 0), ({"race": {}}, 1), ({"path": 3}, 1)])
def test_a_renderer_that_fails_costs_a_line_and_not_the_study(decisions, n_lines) -> None:
    method = Method(
        name="mine", purpose="p", implementation="a:B",
        render_decisions=lambda decisions: [f"at {decisions['path']}"],
    )  # fmt: skip
    lines = method.decision_lines(decisions)
    assert len(lines) == n_lines
    assert ("KeyError" in "".join(lines)) == ("race" in decisions)
