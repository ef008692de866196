"""Declaration of `--method flash`: options by the paper's names, and how decisions are shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, check_options
from prefect_tune.optimizers.space.wording import pipeline_lines
from prefect_tune.optimizers.trials.objective import FailureCost

Variant = Literal["default", "paper"]
Design = Literal["plain_first", "d_optimal", "random"]
Cost = Literal["steps", "total", "none"]
Start = Literal["defaults", "prior"]


@dataclass(frozen=True)
class FlashOptions:
    """Options of `--method flash`.

    Attributes:
        variant: `paper` gives what the paper does, with the constants of its authors' code;
            `default` spends the first minute better.
        n_init: Runs of Phase 1; None for the rank of the design, N - K + 1, or less where the
            budget is small.
        n_prune: Runs of Phase 2; None for as many.
        r: Paths whose algorithms make the sub-space of Phase 3.
        keep: Share of each step's algorithms that is in the sub-space besides, by the least loss
            observed with them; 0 (paper) for none.
        outside: Share of Phase 3's proposals that may lie outside of the sub-space, so that what
            was pruned by mistake is found again; 0 (paper) for none.
        xi: Improvement in Phase 2 that does not count, in the unit of the loss; None for the
            variant's: the range of the metric (paper: 100 percent points), else the mean deviation.
        ridge: Penalty of the linear models, on the sum of squares: n lambda of the paper's.
        design: Paths of Phase 1: `d_optimal` (paper); `plain_first`, every model with nothing
            before it and then D-optimal around those; or `random` for the ablation.
        pruning: Whether to prune at all; without it Phase 3 follows Phase 1, in the full space.
        phase3: What tunes the sub-space.
        cost: What a path is expected to take: `steps`, the sum over its steps with what is cached
            at its load time, taken as EI per second; `total`, a ridge on ln(e + seconds); or
            `none`. The paper's ridge on ln(seconds) comes with `variant=paper` alone.
        cost_power: Power of the predicted seconds that the expected improvement is divided by in
            Phase 3, where a step is counted at its load time if it was made with the same values;
            0 (paper) for none. In a race that looks at a part of many rows the default is 0: looks
            take about equally long, and models that are cheap on all rows are seldom the best.
        start: Hyperparameters of Phases 1 and 2: a path's `defaults` at its first run, or always
            drawn from the `prior` (paper). With defaults, the values of steps that every path
            passes are varied from the first trials on, with a linear model and boosted trees, and
            the first run of a path has those that look best for its kind of model.
        failure_cost: What a failed trial counts as: `bound` of the metric (paper), the `worst`
            finished loss, or the loss of `chance`.
    """

    variant: Variant = "default"
    n_init: int | None = None
    n_prune: int | None = None
    r: int = 10
    keep: float | None = None
    outside: float | None = None
    xi: float | None = None
    ridge: float = 1.0
    design: Design | None = None
    pruning: bool = True
    phase3: Literal["smac", "tpe"] = "smac"
    cost: Cost | None = None
    cost_power: float | None = None
    start: Start | None = None
    failure_cost: FailureCost | None = None

    def __post_init__(self) -> None:
        check_options(self)
        for name, least in (("n_init", 1), ("n_prune", 0), ("r", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be >= {least}; got {value}")
        if self.xi is not None and self.xi < 0:
            raise ValueError(f"xi must be >= 0, in the unit of the loss; got {self.xi}")
        for name in ("keep", "outside"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1]; got {value}")
        if self.cost_power is not None and not 0 <= self.cost_power <= 1:
            raise ValueError(f"cost_power must be in [0, 1]; got {self.cost_power}")
        if self.ridge <= 0:
            raise ValueError(f"ridge must be > 0; got {self.ridge}")

    @property
    def is_paper(self) -> bool:
        """Whether the paper's variant was asked for."""
        return self.variant == "paper"

    def resolved(self) -> Self:
        """Return the options with the variant's values where none was given."""
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
    """Return what people are shown of `Flash.decisions`."""
    return [*_phases(decisions), *_shared(decisions), *_subspace(decisions)]


def _phases(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "n_prune" in decisions:
        n_known = min(decisions.get("n_known", 0), decisions["n_init"])
        of_design = _counted(decisions["n_init"] - n_known, "trial") + " of its design"
        parts = [_counted(n_known, "known pipeline")] if n_known else []
        parts += [of_design] if decisions["n_init"] > n_known else []
        parts.append(f"{decisions['n_prune']} by expected improvement per second")
        yield f"flash began with {', '.join(parts[:-1])} and {parts[-1]}"


def _shared(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "shared_values" in decisions:
        yield "values that most paths have in common, the best by kind of model:"
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
        paths = _counted(decisions["n_subspace_paths"], "path")
        yield f"flash kept {paths} to tune, all that combine these:"
        for step, algorithms in decisions["subspace"].items():
            yield f"  {step}: {', '.join(algorithms)}"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


FLASH = Method(
    name="flash",
    purpose="a linear model prunes the algorithms of each step, then a forest tunes what is left; "
    "for spaces of many paths, and with the cache",
    implementation="prefect_tune.optimizers.methods.flash.flash:Flash",
    has_portfolio=True,
    is_raced=True,
    ensemble="auto",
    options=FlashOptions,
    draws_on_cost=True,
    render_decisions=_render,
)
