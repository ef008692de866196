"""What every option of every method promises."""

import json
import re
from dataclasses import asdict, fields
from typing import Any, get_args, get_type_hints

import pytest
from worlds import mixed_space

from prefect_tune.optimizers import METHODS, Method, UnknownName, make_optimizer

_LEARNING = "n_first [1"
_BOUNDS = {
    "random": "",
    "flash": "n_init [1, n_prune [0, r [1, keep [0 1]",
    "admm": "rho [0, rho_g (0",
    **dict.fromkeys(("smac", "tpe", "jopt"), "n_startup [1"),
    **dict.fromkeys(("esmbo", "ers"), "n_histories [1"),
    **dict.fromkeys(("halving", "hyperband", "bohb"), "eta [2"),
    **dict.fromkeys(("fabolas", "ei", "es"), _LEARNING),
    "mtbo": f"{_LEARNING}, share (0 1)",
    "bapi": "horizon [1, p (0 1], epsilon [0, n_first [1",
}
INTERVALS = {
    (name, option): interval
    for name, text in _BOUNDS.items()
    for option, interval in (bounds.split(" ", 1) for bounds in text.split(", ") if bounds)
}
"""Of the numbers: brackets are on the bounds that are allowed."""


def kinds(name: str, option: str) -> tuple[Any, ...]:
    """The types of an option, or its words."""
    kind = get_type_hints(METHODS[name].options)[option]
    return (kind,) if isinstance(kind, type) else get_args(kind)


OPTIONS = [(name, field.name) for name in METHODS for field in fields(METHODS[name].options)]
NUMBERS = [which for which in OPTIONS if {int, float} & set(kinds(*which))]


def refuses(name: str, option: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=option) as refused:
        METHODS[name].options(**{option: value})
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_a_number_is_taken_on_its_bounds_and_refused_just_outside(name: str, option: str) -> None:
    interval = INTERVALS[name, option]  # which every number has
    step = 1 if int in kinds(name, option) else 1e-6
    bounds = [(interval[0], float(interval[1:].split()[0].rstrip("])")), -step)]
    if " " in interval:
        bounds.append((interval[-1], float(interval.split()[1][:-1]), step))
    for bracket, bound, outwards in bounds:
        at = int(bound) if step == 1 else bound
        inside, outside = (at, at + outwards) if bracket in "[]" else (at - outwards, at)
        options = METHODS[name].options(**{option: inside})
        assert type(options)(**json.loads(json.dumps(asdict(options)))) == options
        refuses(name, option, outside)
    for value in ("x", float("nan"), float("inf"), True):
        refuses(name, option, value)


@pytest.mark.parametrize(("name", "option"), [which for which in OPTIONS if which not in NUMBERS])
def test_each_word_is_taken_and_no_other(name: str, option: str) -> None:
    for word in re.findall(r"'(\w+)'", str(get_type_hints(METHODS[name].options)[option])):
        assert getattr(METHODS[name].options(**{option: word}), option) == word
    refuses(name, option, "another")


def test_an_unknown_option_is_refused_before_any_work() -> None:
    with pytest.raises(UnknownName, match="unheard_of"):
        make_optimizer("random", mixed_space(), 0, None, {"unheard_of": 4})


@pytest.mark.parametrize(("decisions", "n_lines"), [({}, 0), ({"race": {}}, 1), ({"path": 3}, 1)])
def test_a_renderer_that_fails_costs_a_line_and_not_the_study(decisions, n_lines) -> None:
    method = Method(
        name="mine",
        purpose="p",
        implementation="a:B",
        render_decisions=lambda decisions: [f"at {decisions['path']}"],
    )
    lines = method.decision_lines(decisions)
    assert len(lines) == n_lines
    assert ("KeyError" in "".join(lines)) == ("race" in decisions)
