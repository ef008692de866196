"""Declaration of `--method bapi`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.bapi.options import BapiOptions
from prefect_tune.optimizers.methods.bapi.rendering import training_lines

__all__ = ["BAPI"]

BAPI = Method(
    name="bapi",
    purpose="the budget planned over learning curves: trainings that will not win are stopped, and "
    "may be gone on with; for models whose training takes seconds or more",
    implementation="prefect_tune.optimizers.methods.bapi.bapi:Bapi",
    options=BapiOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=training_lines,
)
