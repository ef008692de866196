"""Declaration of `--method ers`."""

from dataclasses import dataclass

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.esmbo.declaration import HistoriesOptions
from prefect_tune.optimizers.methods.esmbo.rendering import ensemble_lines

__all__ = ["ERS", "ErsOptions"]


@dataclass(frozen=True)
class ErsOptions(HistoriesOptions):
    """Options of `--method ers`.

    Attributes:
        n_histories: Bootstraps of the held-out examples; 1 for the best model alone.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
    """


ERS = Method(
    name="ers",
    purpose="ensembles of random configurations; what ESMBO is compared with",
    implementation="prefect_tune.optimizers.methods.ers.ers:EnsembledRandomSearch",
    options=ErsOptions,
    compared_by_default=False,
    ensemble="agnostic",
    render_decisions=ensemble_lines,
)
