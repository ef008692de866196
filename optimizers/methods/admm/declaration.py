"""Declaration of `--method admm`: its options, and the defaults of its variants."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, MethodOptions
from prefect_tune.optimizers.options import option
from prefect_tune.optimizers.trials.objective import FailureCost

Variant = Literal["default", "paper"]
ThetaSolver = Literal["bo", "random", "trust_region", "smac"]
ZSolver = Literal["bandit", "linear", "bo", "random"]
Pick = Literal["best", "alternate"]
Start = Literal["default", "default_first"]


@dataclass(frozen=True)
class AdmmOptions(MethodOptions):
    """Options of `--method admm`."""

    variant: Variant = option(
        "`paper` uses the paper's value for every option not given, and tries one path "
        "before the first iteration instead of one per model. Both variants penalise integers on "
        "[0, 1], because they never move in their own units.",
        default="default",
    )
    theta_solver: ThetaSolver = option("Search for the hyperparameters of one path.", default="bo")
    z_solver: ZSolver | None = option(
        "Choice of a path at fixed hyperparameters: Thompson sampling with Bernoulli rewards "
        "(`bandit`), or with a linear model of the best value of each path (`linear`); expected "
        "improvement (`bo`); or at random (`random`)."
    )
    start: Start | None = option(
        "Values in z-min of an algorithm that was never tuned: its defaults (`default`); or the "
        "defaults until they were tried with a path, and random ones from then on "
        "(`default_first`)."
    )
    z_pick: Pick | None = option(
        "Path to tune next: the best one so far (`best`); or, every second iteration, the best "
        "one not tuned yet (`alternate`)."
    )
    effort: int | None = option(
        "Evaluations of each sub-problem in the first iteration (I).", at_least=1
    )
    effort_step: int | None = option(
        "Evaluations added in each later iteration (F); 0 for a fixed effort.", at_least=0
    )
    max_effort: int = option("Most evaluations of a sub-problem.", default=128, at_least=1)
    rho: float = option("Weight of the augmented term of integers.", default=1.0, at_least=0)
    rho_g: float = option(
        "Weight of the augmented term of constraints, in units of their bounds.",
        default=10.0,
        more_than=0,
    )
    margin: float | None = option(
        "Safety margin below each bound, as a share of it. On the bound itself, half of the "
        "configurations found would be just above.",
        at_least=0,
        less_than=1,
    )
    f_hat: float = option(
        "Smallest loss at which a pull earns nothing, as a share of the metric's range.",
        default=0.7,
        more_than=0,
    )
    prior: float = option("Both parameters of the bandit's Beta prior.", default=10.0, more_than=0)
    failure_cost: FailureCost | None = option("Loss that a failed trial counts as.")

    def resolved(self) -> Self:
        """Return the options with the variant's values for those that were not given."""
        given: dict[str, Any] = _VARIANTS[self.variant]
        return replace(self, **{k: v for k, v in given.items() if getattr(self, k) is None})

    def efforts(self, n_trials: float | None) -> tuple[int, int]:
        """Return the effort and its step, by default chosen from the trials the budget affords."""
        is_large = n_trials is None or n_trials > 300 or self.variant == "paper"
        is_small = not is_large and n_trials is not None and n_trials <= 100
        effort, step = (16, 16) if is_large else (6, 3) if is_small else (8, 4)
        effort = effort if self.effort is None else self.effort
        return effort, step if self.effort_step is None else self.effort_step


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
