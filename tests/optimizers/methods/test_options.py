"""Options of every method: bounds, words and unknown names."""

import json
import re
from dataclasses import asdict, fields
from typing import Any, get_args, get_type_hints

import pytest
from worlds import mixed_space

from prefect_tune.optimizers import METHODS, Method, UnknownName, make_optimizer

BOUNDS = {"eta": "[2", "rho": "(0", "share": "(0 1)", "p": "(0 1]"}
BOUNDS |= dict.fromkeys(("n_first", "n_startup", "n_histories", "n_init", "r", "horizon"), "[1")
BOUNDS |= dict.fromkeys(("n_prune", "epsilon"), "[0")
"""Of options that are numbers: brackets are on the bounds that are allowed."""
OPTIONS = [(name, field.name) for name in METHODS for field in fields(METHODS[name].options)]
NUMBERS = [(name, option) for name, option in OPTIONS if option in BOUNDS]
WORDS = [(name, option) for name, option in OPTIONS if option not in BOUNDS]


def kind_of(name: str, option: str) -> Any:
    return get_type_hints(METHODS[name].options)[option]


def refuses(name: str, option: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=option) as refused:
        METHODS[name].options(**{option: value})
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_numeric_option_is_accepted_at_the_bounds_and_refused_just_outside(
    name: str, option: str
) -> None:
    kind, interval = kind_of(name, option), BOUNDS[option]
    step = 1 if int in (kind, *get_args(kind)) else 1e-6
    bounds = [(interval[0], float(interval[1:].split()[0]), -step)]
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


@pytest.mark.parametrize(("name", "option"), WORDS)
def test_only_declared_words_are_accepted_as_option_values(name: str, option: str) -> None:
    for word in re.findall(r"'(\w+)'", str(kind_of(name, option))):
        assert getattr(METHODS[name].options(**{option: word}), option) == word
    refuses(name, option, "another")


def test_unknown_option_is_refused_before_any_work() -> None:
    with pytest.raises(UnknownName, match="unheard_of"):
        make_optimizer("random", mixed_space(), 0, None, {"unheard_of": 4})


@pytest.mark.parametrize(("decisions", "n_lines"), [({}, 0), ({"race": {}}, 1), ({"path": 3}, 1)])
def test_error_of_a_method_renderer_replaces_only_a_single_line(decisions, n_lines) -> None:
    given = {"name": "mine", "purpose": "p", "implementation": "a:B"}
    method = Method(**given, render_decisions=lambda decisions, _: [f"at {decisions['path']}"])
    lines = method.decision_lines(decisions, str)
    assert len(lines) == n_lines
    assert ("KeyError" in "".join(lines)) == ("race" in decisions)
