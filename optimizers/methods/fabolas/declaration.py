"""Declarations of `--method fabolas`, `ei`, `es` and `mtbo`: options, and lines of decisions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import Method, check_options
from prefect_tune.optimizers.methods.fabolas.rules import RULES


@dataclass(frozen=True)
class SurrogateOptions:
    """Options of a method with this family's Gaussian process.

    Attributes:
        inference: Whether the most likely parameters of the process are taken (map), or some are
            drawn (ensemble), which takes four times as long and finds nothing better sooner.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "map"
    n_samples: int = 8
    n_first: int = 10

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_samples", "n_first"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")


@dataclass(frozen=True)
class ReferenceOptions(SurrogateOptions):
    """Options of the methods that Fabolas is compared with.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "ensemble"
    n_first: int = 5


@dataclass(frozen=True)
class FabolasOptions(SurrogateOptions):
    """Options of `--method fabolas`.

    Attributes:
        inference: Whether the most likely parameters of the process are taken (map), or some are
            drawn (ensemble), which takes four times as long and finds nothing better sooner.
        n_samples: Draws of them.
        n_first: Random configurations that begin on the smallest subset; half of them go on.
        variant: default, or paper for the published acquisition, bases, inference, incumbent and
            first points, which do worse.
        subset_draws: Independent subsets of each size that trials are given in turn.
        subset_folds: Folds that subsets of an eighth of the rows and less are evaluated on; 0 for
            all.
        verify_every: Asks without a full evaluation after which the predicted best may get one,
            once subsets have proved their worth and took a quarter of its time; 0 for none before
            the end.
        gate: Whether subsets are given up when they tell nothing of the full data.
        n_confirmed: Predicted best configurations that are evaluated on all rows at the end.
    """

    variant: Literal["default", "paper"] = "default"
    subset_draws: int = 1
    subset_folds: int = 1
    verify_every: int = 9
    gate: bool = True
    n_confirmed: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset_draws < 1:
            raise ValueError(f"subset_draws must be >= 1; got {self.subset_draws}")
        for name in ("subset_folds", "verify_every", "n_confirmed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0; got {getattr(self, name)}")


def size_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Fabolas.decisions` gives."""
    lines, gate = list(_sizes(decisions)), decisions.get("gate", {})
    if gate.get("state") == "closed":
        lines.append(f"subsets were given up: {gate['reason']}")
    ranked = sorted(decisions.get("algorithms", {}).items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        shown = [f"{name} {p:.2f}" for name, p in ranked if p >= RULES.least_shown]
        lines.append(f"the best one's model, by probability: {', '.join(shown)}")
    return [*lines, *_confirmed(decisions.get("confirmations", ()))]


def _sizes(decisions: Mapping[str, Any]) -> Iterator[str]:
    sizes, n_sizes = decisions.get("sizes", ()), decisions.get("n_sizes", 0)
    if sizes:
        yield f"evaluated on {len(sizes)} of {n_sizes} sizes:" if n_sizes > 1 else "evaluated on:"
    for size in sizes:
        share = "all" if size["share"] == 1 else f"1/{round(1 / size['share'])}"
        trials = f"{size['runs']:,} trial{'' if size['runs'] == 1 else 's'}"
        failed = f", {size['failed']} of them failed" if size["failed"] else ""
        yield f"  {share} of the rows: {trials}{failed}"


def _confirmed(confirmations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for made in confirmations:
        predicted = f"predicted {made['predicted']:.4g} (deviation {made['deviation']:.2g})"
        is_failed = made.get("state") == "failed"
        nothing = "failed on all rows" if is_failed else "not evaluated on all rows in time"
        came = nothing if made["loss"] is None else f"came out as {made['loss']:.4g} on all rows"
        unlike = ", which disagrees" if made["disagrees"] else ""
        yield f"trial {made['trial']}: {predicted}, {came}{unlike}"
    if any(made["disagrees"] for made in confirmations):
        yield "more than two deviations apart: subsets are not to be relied on here"


FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, asked for information per "
    "second; for many rows, where one evaluation takes long",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:Fabolas",
    options=FabolasOptions,
    fidelities=frozenset({"subset", "folds"}),
    draws_on_cost=True,
    render_decisions=size_lines,
)


EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; what that is "
    "compared with",
    implementation="prefect_tune.optimizers.methods.fabolas.references:ExpectedImprovement",
    options=ReferenceOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)


ES = Method(
    name="es",
    purpose="entropy search on all rows, by the Gaussian process of Fabolas; what that is "
    "compared with",
    implementation="prefect_tune.optimizers.methods.fabolas.references:EntropySearch",
    options=ReferenceOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)


@dataclass(frozen=True)
class TwoTaskOptions(ReferenceOptions):
    """Options of `--method mtbo`.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations on the subset before the process is asked.
        share: Share of the rows that is the auxiliary task.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1; got {self.share}")


MTBO = Method(
    name="mtbo",
    purpose="a Gaussian process over all rows and one subset of them as two tasks; what Fabolas "
    "is compared with",
    implementation="prefect_tune.optimizers.methods.fabolas.references:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=size_lines,
)
