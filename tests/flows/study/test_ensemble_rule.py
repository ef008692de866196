"""How a study is told to end, and what is refused."""

import pytest

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.registry import _METHODS
from prefect_tune.tasks.bad_input import BadInput


def settings_of(**given: object) -> TuneSettings:
    return TuneSettings.parse({**dict.fromkeys(OPTIONS), "data": "table.csv", **given})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (8, EnsembleRule("greedy", 8)),
        ("8", EnsembleRule("greedy", 8)),  # as the command line gives it
        ("greedy", EnsembleRule("greedy")),
        ("agnostic", EnsembleRule("agnostic")),
        ("auto", EnsembleRule("auto")),
        ("single", EnsembleRule("single")),
        (1, EnsembleRule("single")),
    ],
)
def test_a_number_is_of_picks_and_a_word_is_a_kind(given, expected) -> None:
    assert settings_of(ensemble=given).ensemble == expected


@pytest.mark.parametrize("given", [0, -3, "0", "many", "Auto", "2.5", ""])
def test_anything_else_is_refused_with_what_would_be_right(given) -> None:
    with pytest.raises(BadInput, match=rf"--ensemble {given}: ") as refused:
        settings_of(ensemble=given)
    remedy = "name a whole number from 1, or single, greedy, agnostic or auto"
    assert refused.value.remedy == remedy


def test_picks_are_with_replacement_and_may_be_more_than_there_are_trials() -> None:
    assert settings_of(ensemble=5, trials=4).ensemble == EnsembleRule("greedy", 5)


def test_the_help_says_which_methods_end_in_an_ensemble_of_their_own(monkeypatch) -> None:
    default = OPTIONS["ensemble"].help.split("[default: ")[1]
    assert default.startswith("auto for flash, admm, smac, tpe without constraints; agnostic for")
    assert default.endswith("single otherwise]")
    method = Method(name="many", purpose="Many.", implementation="a:B", ensemble="agnostic")
    monkeypatch.setitem(_METHODS, "many", method)
    assert "agnostic for esmbo, ers, many; " in OPTIONS["ensemble"].help
