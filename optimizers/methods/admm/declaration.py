"""Declaration of `--method admm`: its options, and what its variants say where none was given."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, check_options
from prefect_tune.optimizers.trials.objective import FailureCost

Variant = Literal["default", "paper"]
ThetaSolver = Literal["bo", "random", "trust_region", "smac"]
ZSolver = Literal["bandit", "linear", "bo", "random"]
Pick = Literal["best", "alternate"]
Start = Literal["default", "default_first"]


@dataclass(frozen=True)
class AdmmOptions:
    """Options of `--method admm`.

    Attributes:
        variant: `paper` sets what was not given to the paper's values, and tries one path before
            the first iteration instead of one per model. Integers are penalised on [0, 1] in both:
            in their own units they never move.
        theta_solver: How hyperparameters of one path are searched.
        z_solver: How a path is chosen at fixed hyperparameters: Thompson sampling with Bernoulli
            rewards, or with a linear model of the best value of each path; expected improvement;
            or at random.
        start: Values of an algorithm that was never tuned, in z-min: its defaults; or the defaults
            until they were tried with a path, and random ones from then on.
        z_pick: The best path seen goes on; or, every second iteration, the best not yet tuned.
        effort: Evaluations of each sub-problem in the first iteration (I).
        effort_step: How many more in each later one (F); 0 for a fixed effort.
        max_effort: No sub-problem gets more.
        rho: Weight of the augmented term of integers.
        rho_g: Weight of that of constraints, in units of their bounds.
        margin: Share of each bound that the search stays below it; on the bound itself, half of
            what it finds would be just above.
        f_hat: Loss, as a share of the metric's range, from which on a pull earns nothing.
        prior: Both parameters of the bandit's Beta prior.
        failure_cost: What a failed trial counts as.
    """

    variant: Variant = "default"
    theta_solver: ThetaSolver = "bo"
    z_solver: ZSolver | None = None
    start: Start | None = None
    z_pick: Pick | None = None
    effort: int | None = None
    effort_step: int | None = None
    max_effort: int = 128
    rho: float = 1.0
    rho_g: float = 10.0
    margin: float | None = None
    f_hat: float = 0.7
    prior: float = 10.0
    failure_cost: FailureCost | None = None

    def __post_init__(self) -> None:
        check_options(self)
        for name, least in (("effort", 1), ("effort_step", 0), ("max_effort", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be >= {least}; got {value}")
        if self.margin is not None and not 0 <= self.margin < 1:
            raise ValueError(f"margin must be >= 0 and < 1; got {self.margin}")
        if self.rho < 0:
            raise ValueError(f"rho must be >= 0; got {self.rho}")
        for name in ("rho_g", "f_hat", "prior"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0; got {getattr(self, name)}")

    def resolved(self) -> Self:
        """Return the options with the variant's values where none was given."""
        given: dict[str, Any] = _VARIANTS[self.variant]
        return replace(self, **{k: v for k, v in given.items() if getattr(self, k) is None})

    def efforts(self, n_trials: float | None) -> tuple[int, int]:
        """Return the effort and its step; where not given, by the trials that the budget holds."""
        if n_trials is None or n_trials > 300:
            effort, step = 16, 16
        else:
            effort, step = (8, 4) if n_trials > 100 else (6, 3)
        if self.variant == "paper":
            effort, step = 16, 16
        return (
            effort if self.effort is None else self.effort,
            step if self.effort_step is None else self.effort_step,
        )


_VARIANTS: dict[str, dict[str, str | float]] = {
    "default": {
        "z_solver": "linear",
        "start": "default_first",
        "z_pick": "alternate",
        "failure_cost": "worst",
        "margin": 0.01,
    },
    "paper": {
        "z_solver": "bandit",
        "start": "default",
        "z_pick": "best",
        "failure_cost": "bound",
        "margin": 0.0,
    },
}


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
