"""Declaration of `--method fabolas`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import FabolasOptions

__all__ = ["FABOLAS"]

FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, asked for information per "
    "second; for many rows, where one evaluation takes long",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:Fabolas",
    options=FabolasOptions,
    fidelities=frozenset({"subset", "folds"}),
    draws_on_cost=True,
)
