import subprocess
import sys

import pytest

from prefect_tune.optimizers import METHODS, UnknownName, make_optimizer
from prefect_tune.optimizers.optimizer import Optimizer


@pytest.mark.parametrize("name", METHODS)
def test_each_method_bears_its_name_and_says_in_one_line_what_it_is_for(name: str) -> None:
    method = METHODS[name]
    loaded = method.load()
    assert issubclass(loaded, Optimizer)
    assert loaded.name == name
    assert method.purpose
    assert "\n" not in method.purpose


def test_an_unknown_method_is_answered_with_the_nearest() -> None:
    from worlds import mixed_space

    with pytest.raises(UnknownName, match=r"'flahs'\. Did you mean 'flash'\?"):
        make_optimizer("flahs", mixed_space(), 0)


def test_methods_are_imported_when_they_are_first_made() -> None:
    program = (
        "import sys, prefect_tune.optimizers as o; o.METHODS;"
        "print([m for m in ('optuna', 'sklearn') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
