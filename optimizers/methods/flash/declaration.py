"""Declaration of `--method flash`: options by the paper's names, and the rendering of decisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, MethodOptions, counted
from prefect_tune.optimizers.options import option
from prefect_tune.optimizers.space.wording import pipeline_lines
from prefect_tune.optimizers.trials.objective import FailureCost

Variant = Literal["default", "paper"]
Design = Literal["plain_first", "d_optimal", "random"]
Cost = Literal["steps", "total", "none"]
Start = Literal["defaults", "prior"]


@dataclass(frozen=True)
class FlashOptions(MethodOptions):
    """Options of `--method flash`."""

    variant: Variant = option(
        "`paper` reproduces the paper, with the constants of its authors' code; `default` makes "
        "better use of the first minute.",
        default="default",
    )
    n_init: int | None = option(
        "Runs of Phase 1; null for the rank of the design, N - K + 1, or fewer if the budget is "
        "small.",
        at_least=1,
    )
    n_prune: int | None = option("Runs of Phase 2; null for as many as Phase 1 has.", at_least=0)
    r: int = option(
        "Paths whose algorithms make up the sub-space of Phase 3.", default=10, at_least=1
    )
    keep: float | None = option(
        "Share of each step's algorithms to add to the sub-space, those with the least observed "
        "loss; 0 (paper) for none.",
        at_least=0,
        at_most=1,
    )
    outside: float | None = option(
        "Share of Phase 3's proposals from outside the sub-space, to recover algorithms pruned by "
        "mistake; 0 (paper) for none.",
        at_least=0,
        at_most=1,
    )
    xi: float | None = option(
        "Smallest improvement that counts in Phase 2, in the unit of the loss. null: the range of "
        "the metric (paper: 100 percentage points), or the mean deviation without a range.",
        at_least=0,
    )
    ridge: float = option(
        "Penalty of the linear models on the sum of squares; n lambda in the paper.",
        default=1.0,
        more_than=0,
    )
    design: Design | None = option(
        "Paths of Phase 1: `d_optimal` (paper); `plain_first`, every model alone, followed by a "
        "D-optimal design; or `random` for the ablation."
    )
    pruning: bool = option(
        "Whether to prune at all. Without pruning, Phase 3 follows Phase 1, in the full space.",
        default=True,
    )
    phase3: Literal["smac", "tpe"] = option("Method that tunes the sub-space.", default="smac")
    cost: Cost | None = option(
        "Expected cost of a path: `steps`, the sum over its steps, with cached ones at their load "
        "time, used for EI per second; `total`, a ridge on ln(e + seconds); or `none`. The paper's "
        "ridge on ln(seconds) comes with `variant=paper` alone."
    )
    cost_power: float | None = option(
        "Power of the predicted seconds that divides the expected improvement in Phase 3, with a "
        "step at its load time if it is cached; 0 (paper) for none. Default: 0 in a race that "
        "looks at part of many rows, because looks take about equally long, and models that are "
        "cheap on all rows are seldom the best.",
        at_least=0,
        at_most=1,
    )
    start: Start | None = option(
        "Hyperparameters of Phases 1 and 2: a path's `defaults` at its first run, or always drawn "
        "from the `prior` (paper). With defaults, the values of steps that every path passes are "
        "varied from the first trials on, with a linear model and boosted trees. The first run of "
        "a path then has the values that look best for its kind of model."
    )
    failure_cost: FailureCost | None = option(
        "Loss that a failed trial counts as: the `bound` of the metric (paper), the `worst` "
        "finished loss, or the loss of `chance`."
    )

    @property
    def is_paper(self) -> bool:
        """Whether the variant is the paper's."""
        return self.variant == "paper"

    def resolved(self) -> Self:
        """Return the options with the variant's values for those that were not given."""
        given: dict[str, Any] = _VARIANTS[self.variant]
        return replace(self, **{k: v for k, v in given.items() if getattr(self, k) is None})


_VARIANTS: dict[str, dict[str, str | float]] = {
    "default": {
        "design": "plain_first",
        "keep": 0.5,
        "outside": 0.0,
        "cost_power": 0.5,
        "cost": "steps",
        "start": "defaults",
        "failure_cost": "worst",
    },
    "paper": {
        "design": "d_optimal",
        "keep": 0.0,
        "outside": 0.0,
        "cost_power": 0.0,
        "start": "prior",
        "failure_cost": "bound",
    },
}


def _render(decisions: Mapping[str, Any]) -> list[str]:
    return [*_phases(decisions), *_shared(decisions), *_subspace(decisions)]


def _phases(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "n_prune" in decisions:
        n_known = min(decisions.get("n_known", 0), decisions["n_init"])
        of_design = counted(decisions["n_init"] - n_known, "trial") + " of its design"
        parts = [counted(n_known, "known pipeline")] if n_known else []
        parts += [of_design] if decisions["n_init"] > n_known else []
        parts.append(f"{decisions['n_prune']} by expected improvement per second")
        yield f"flash began with {', '.join(parts[:-1])} and {parts[-1]}"


def _shared(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "shared_values" in decisions:
        yield "best shared values, by kind of model:"
        by_kind = decisions["shared_values"]
        kinds_of: dict[str, list[str]] = {}
        for kind, choices in by_kind.items():
            for choice in choices:
                (line,) = pipeline_lines({choice["step"]: choice})
                kinds_of.setdefault(line, []).append(kind)
        for line, kinds in sorted(kinds_of.items(), key=lambda item: -len(item[1])):
            yield f"  {'all' if len(kinds) == len(by_kind) > 1 else ', '.join(kinds)}: {line}"


def _subspace(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "subspace" in decisions:
        paths = counted(decisions["n_subspace_paths"], "path")
        yield f"flash tunes {paths}, built from:"
        for step, algorithms in decisions["subspace"].items():
            yield f"  {step}: {', '.join(algorithms)}"


FLASH = Method(
    name="flash",
    purpose="a linear model prunes the algorithms of each step, then a forest tunes the rest; for "
    "spaces of many paths, and with the cache",
    implementation="prefect_tune.optimizers.methods.flash.flash:Flash",
    has_portfolio=True,
    is_raced=True,
    ensemble="auto",
    options=FlashOptions,
    draws_on_cost=True,
    render_decisions=_render,
)
