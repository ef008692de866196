"""Messages in the words of their caller."""

import numpy as np
import pandas as pd
import pytest

from prefect_tune import PipelineSearch, tune
from prefect_tune.flows.options.caller import command_line, errors_for_caller, for_caller
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.tasks.bad_input import BadInput


@pytest.mark.parametrize(
    ("written", "python"),
    [
        ("drop it with --drop k", 'drop it with drop=["k"]'),
        ("--drop 'heart rate' and --categorical a.", 'drop=["heart rate"] and categorical=["a"].'),
        ("or --drop the column", "or drop the column"),
        ("fewer --folds or another --test-size", "fewer folds or another test_size"),
        ("name it, for instance --epochs 50, or", "name it, for instance epochs=50, or"),
        ("--metric error treats them", 'metric="error" treats them'),
        ("(override with --positive)", "(override with positive)"),
        (
            "leave them out with --drop-missing-target",
            "leave them out with drop_missing_target=True",
        ),
        ("the same with --no-race", "the same with race=False"),
        ("--option n_histories=3 would", 'option={"n_histories": 3} would'),
        ("take --space FILE.py:NAME", 'take space="FILE.py:NAME"'),
    ],
)
def test_options_become_parameters_except_for_a_command(written, python) -> None:
    assert for_caller(written) == python
    assert for_caller(python) == python
    with command_line():
        assert for_caller(written) == written


@pytest.mark.parametrize(
    "text", ["see prefect-tune show S --trial 4", "`run --folds 3`", "start it with --nthreads 1"]
)
def test_commands_and_options_of_other_programs_stay(text) -> None:
    assert for_caller(text) == text


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_has_a_parameter(name) -> None:
    assert for_caller(f"name another {OPTIONS[name].flag}.") in (
        f"name another {name}.",
        f"name another {name}=True.",
    )


def test_an_error_names_its_option_with_its_whole_value() -> None:
    with pytest.raises(BadInput) as raised, errors_for_caller():
        raise BadInput("too much", option="constraint", value="a (b) <= 1", remedy="take --folds 2")
    assert str(raised.value) == 'constraint=["a (b) <= 1"]: too much; take folds=2'
    assert raised.value.option == "constraint"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"folds": 3, "holdout": 0.2}, "folds=3"),
        ({"positive": "maybe"}, 'positive="maybe"'),
    ],
)
def test_calls_from_python_raise_errors_that_name_parameters(given, named) -> None:
    X = pd.DataFrame({"a": np.arange(60.0)})
    search = PipelineSearch(trials=1, verbose=0, **given)
    target = X["a"] > 30  # named like a column
    for call in (lambda: search.fit(X, target), lambda: tune(X, target=target, trials=1, **given)):
        with pytest.raises(BadInput) as raised:
            call()
        assert named in str(raised.value)
        assert "--" not in str(raised.value)


@pytest.mark.parametrize("verb", ["says", "names", "keeps", "shows"])
def test_a_verb_after_an_option_is_not_its_value(verb) -> None:
    assert for_caller(f"--na-values {verb} other texts") == f"na_values {verb} other texts"
