"""Errors that name options on the command line, and parameters in calls from Python."""

import numpy as np
import pandas as pd
import pytest

from prefect_tune import PipelineSearch, tune
from prefect_tune.tasks.bad_input import BadInput, command_line, errors_for_caller, for_caller


@pytest.mark.parametrize(
    ("written", "python"),
    [
        ("fewer --folds or another --test-size", "fewer folds or another test_size"),
        ("name it, for instance --epochs 50, or", "name it, for instance epochs=50, or"),
        ("drop it with --drop 'heart rate'", "drop it with drop='heart rate'"),
        ("(override with --positive)", "(override with positive)"),
        ("was started with --race, not --no-race", "was started with race, not race=False"),
        ("see `prefect-tune show S --trial 4`", "see `prefect-tune show S --trial 4`"),
    ],
)
def test_options_become_parameters_except_for_a_command(written, python) -> None:
    assert for_caller(written) == python
    with command_line():
        assert for_caller(written) == written


def test_an_error_names_its_option_with_its_whole_value() -> None:
    with pytest.raises(BadInput) as raised, errors_for_caller():
        raise BadInput("too much", option="constraint", value="a (b) <= 1", remedy="take --folds 2")
    assert str(raised.value) == "constraint='a (b) <= 1': too much; take folds=2"


@pytest.mark.parametrize(
    ("given", "named"),
    [({"positive": "maybe"}, "positive='maybe'"), ({"budget": "soon"}, "budget='soon'")],
)
def test_calls_from_python_raise_errors_that_name_parameters(
    given, named, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    X = pd.DataFrame({"a": np.arange(60.0)})
    search = PipelineSearch(trials=1, verbose=0, **given)
    target = X["a"] > 30  # named like a column
    for call in (lambda: search.fit(X, target), lambda: tune(X, target=target, trials=1, **given)):
        with pytest.raises(BadInput, match=named) as raised:
            call()
        assert "--" not in str(raised.value)
