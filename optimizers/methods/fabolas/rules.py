"""Options and constants of Fabolas and its reference methods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import (
    Method,
    MethodOptions,
    ScoreText,
    counted,
    share_text,
)
from prefect_tune.optimizers.options import option


@dataclass(frozen=True, slots=True)
class Rules:
    """Constants of the method. The source of each published constant is given."""

    # Sizes of subsets.
    rows_per_class: int = 10
    """Average rows per class in the smallest subset (Klein et al. 2017, section 4)."""
    least_rows: int = 50
    """Minimum number of rows in the smallest subset. With fewer rows, losses are too coarse."""
    most_range: int = 256
    """Largest ratio of all rows to the rows of a subset. Smaller subsets rank configurations
    poorly."""
    first_shares: tuple[float, float] = (1 / 64, 1 / 8)
    """Smallest and largest fraction of rows in the initial design (Klein et al. 2017, section
    3.3)."""

    # Belief.
    most_learned: int = 300
    """Largest number of results to fit to, because a fit takes cubic time."""
    cap_ranges: float = 3.0
    """Interquartile ranges above the median at which losses are capped, so that no plateau of bad
    losses distorts the scale."""
    draws: int = 8
    """Number of draws of the parameters for `variant=paper`."""

    # Search.
    n_representers: int = 50
    """Number of representers: candidates that represent the space (Hennig and Schuler 2012)."""
    n_thompson: int = 32
    """Number of draws of the function whose minimizers become representers."""
    n_normals: int = 512
    """Number of draws of the function at the representers, which makes gains exact to 0.001
    nats."""
    near: int = 8
    """Number of best configurations near which a round draws candidates, number of candidates drawn
    near each, and number of candidates per representer in the first round."""
    widths: tuple[float, ...] = (0.08, 0.025)
    """Standard deviations of moves on the unit scale, one for each round after the first."""
    dispatch_seconds: float = 0.07
    """Seconds to send an evaluation to a worker, part of c_overhead (equation 7)."""

    # Full evaluations and the gate.
    confirmed: int = 3
    """Number of configurations to confirm on all rows at the end, and minimum number of losses from
    which the models predict."""
    reserved: float = 1.3
    """Time reserved for confirmations, as a multiple of the predicted run time."""
    paid_first: float = 0.75
    """Time spent on subsets before the first full evaluation, as a multiple of its run time."""
    paid: float = 0.3
    """Time spent on subsets before each later full evaluation, as a multiple of its run time."""
    vague: float = 0.7
    """Standard deviation above which a prediction is uncertain, relative to the deviation of all
    losses."""
    told: float = 0.1
    """Predicted variance below which a loss at s = 1 counts as known, as a fraction of the
    noise."""
    judged: int = 4
    """Number of newest full evaluations by which subsets are judged. While predictions are
    uncertain, the same number of full evaluations runs without a wait."""
    most_skill: float = 2.0
    """Largest skill from one outcome, in nats, so that no single outcome decides."""
    least_skill: float = 0.5
    """Skill below which subsets are dropped, in nats."""


RULES = Rules()


@dataclass(frozen=True)
class FabolasOptions(MethodOptions):
    """Options of `--method fabolas`."""

    n_first: int = option(
        "Number of random configurations on small subsets before the first proposal of the "
        "Gaussian process; at least two for each model.",
        default=10,
        at_least=1,
    )
    variant: Literal["default", "paper"] = option(
        "`paper` is the published method: subsets of any number of rows, all folds, raw losses and "
        "only predictions.",
        default="default",
    )


@dataclass(frozen=True)
class ReferenceOptions(MethodOptions):
    """Options of the reference methods of Fabolas."""

    n_first: int = option(
        "Number of random configurations before the first proposal of the Gaussian process.",
        default=5,
        at_least=1,
    )


@dataclass(frozen=True)
class TwoTaskOptions(ReferenceOptions):
    """Options of `--method mtbo`."""

    share: float = option(
        "Share of the rows in the auxiliary task.", default=0.25, more_than=0, less_than=1
    )


def size_lines(decisions: Mapping[str, Any], score: ScoreText) -> Iterator[str]:
    """Yield `Fabolas.decisions` as lines of text."""
    sizes, n_sizes = decisions.get("sizes", ()), decisions.get("n_sizes", 0)
    if sizes:
        yield f"evaluated on {len(sizes)} of {n_sizes} sizes:" if n_sizes > 1 else "evaluated on:"
    for size in sizes:
        failed = f", {size['failed']} failed" if size["failed"] else ""
        runs = counted(size["runs"], "trial")
        yield f"  {share_text(size['share'])} of the rows: {runs}{failed}"
    gate = decisions.get("gate", {})
    if gate.get("state") == "closed":
        yield f"subsets no longer used: {gate['reason']}"
    ranked = sorted(decisions.get("algorithms", {}).items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        likely = [f"{name} {p:.2f}" for name, p in ranked if p >= 0.05]
        yield f"probability of being the best pipeline's model: {', '.join(likely)}"
    confirmations = decisions.get("confirmations", ())
    for made in confirmations:
        predicted = f"predicted {score(made['predicted'])} (deviation {made['deviation']:.2g})"
        is_failed = made.get("state") == "failed"
        nothing = "failed on all rows" if is_failed else "not evaluated on all rows in time"
        came = nothing if made["loss"] is None else f"measured {score(made['loss'])} on all rows"
        unlike = " (unlike the prediction)" if made["disagrees"] else ""
        yield f"trial {made['trial']}: {predicted}, {came}{unlike}"
    if any(made["disagrees"] for made in confirmations):
        yield "a prediction was off by over two deviations: do not rely on subsets"


_MODULE = "prefect_tune.optimizers.methods.fabolas.fabolas"

FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, which choose the trial with "
    "the most information per second; for many rows, if one evaluation takes a long time",
    implementation=f"{_MODULE}:Fabolas",
    options=FabolasOptions,
    fidelities=frozenset({"subset", "folds"}),
    draws_on_cost=True,
    render_decisions=size_lines,
)

_OF_REFERENCES: dict[str, Any] = {"compared_by_default": False, "render_decisions": size_lines}
EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:ExpectedImprovement",
    options=ReferenceOptions,
    **_OF_REFERENCES,
)
ES = Method(
    name="es",
    purpose="entropy search on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:EntropySearch",
    options=ReferenceOptions,
    **_OF_REFERENCES,
)
MTBO = Method(
    name="mtbo",
    purpose="a Gaussian process over two tasks (all rows, and one subset); a reference for Fabolas",
    implementation=f"{_MODULE}:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    **_OF_REFERENCES,
)
