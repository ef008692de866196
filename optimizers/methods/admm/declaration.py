"""Declaration of `--method admm`."""

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.admm.options import AdmmOptions

__all__ = ["ADMM"]

ADMM = Method(
    name="admm",
    purpose="hyperparameters of one path and the choice of the path in turns; within "
    "constraints on latency, size or fairness",
    implementation="prefect_tune.optimizers.methods.admm.admm:Admm",
    is_raced=True,
    ensemble="auto",
    options=AdmmOptions,
    honours_constraints=True,
)
