"""Declaration of `--method hyperband`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.halving.options import BracketOptions
from prefect_tune.optimizers.methods.halving.rendering import bracket_lines

__all__ = ["HYPERBAND"]

HYPERBAND = Method(
    name="hyperband",
    purpose="halving that begins at several levels in turn, as nobody knows how much little tells",
    implementation="prefect_tune.optimizers.methods.hyperband.hyperband:Hyperband",
    options=BracketOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)
