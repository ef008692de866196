"""Declaration of `--method random`."""

from prefect_tune.optimizers.method import Method

__all__ = ["RANDOM_SEARCH"]

RANDOM_SEARCH = Method(
    name="random",
    purpose="draws from the prior; the baseline, and for as many workers as there are",
    implementation="prefect_tune.optimizers.methods.random_search.random_search:RandomSearch",
)
