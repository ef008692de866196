import subprocess
import sys
from dataclasses import replace

import pytest

from prefect_tune.optimizers import METHODS, UnknownName, make_optimizer
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.registry import DEFAULT_METHOD, load_method, register


@pytest.mark.parametrize("name", METHODS)
def test_each_implementation_refers_to_the_declaration_it_is_found_by(name: str) -> None:
    loaded = load_method(name)
    assert issubclass(loaded, Optimizer)
    assert loaded.method is METHODS[name]


def test_an_unknown_method_is_answered_with_the_nearest() -> None:
    from worlds import mixed_space

    with pytest.raises(UnknownName, match=r"'flahs'\. Did you mean 'flash'\?"):
        make_optimizer("flahs", mixed_space(), 0)


def test_a_name_is_given_once() -> None:
    register(METHODS[DEFAULT_METHOD])

    with pytest.raises(ValueError, match="'flash' already"):
        register(replace(METHODS["flash"], purpose="another"))


def test_knowing_the_methods_imports_nothing_heavy() -> None:
    program = (
        "import sys; from prefect_tune.optimizers import METHODS\n"
        "for m in METHODS.values(): m.options(), m.render_decisions({})\n"
        "heavy = {'numpy', 'scipy', 'ConfigSpace', 'sklearn', 'optuna', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
