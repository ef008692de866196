"""Declaration of `--method ei`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import ReferenceOptions
from prefect_tune.optimizers.methods.fabolas.rendering import size_lines

__all__ = ["EI"]


EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; what that is "
    "compared with",
    implementation="prefect_tune.optimizers.methods.ei.ei:ExpectedImprovement",
    options=ReferenceOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)
