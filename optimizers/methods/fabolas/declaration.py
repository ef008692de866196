"""Declaration of `--method fabolas`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import FabolasOptions
from prefect_tune.optimizers.methods.fabolas.rendering import size_lines

__all__ = ["FABOLAS"]

FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, asked for information per "
    "second; for many rows, where one evaluation takes long",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:Fabolas",
    options=FabolasOptions,
    fidelities=frozenset({"subset", "folds"}),
    draws_on_cost=True,
    render_decisions=size_lines,
)
