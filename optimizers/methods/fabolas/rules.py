"""Options of Fabolas and its reference methods, and the constants that the paper leaves open."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import Method, MethodOptions, counted, share_text
from prefect_tune.optimizers.options import option


@dataclass(frozen=True, slots=True)
class Rules:
    """Constants of the method: published if a section or an author is named, otherwise ours."""

    # Sizes of subsets.
    rows_per_class: int = 10
    """Rows of the smallest subset for each class, on average (Klein et al. 2017, section 4)."""
    least_rows: int = 50
    """Rows of the smallest subset: losses on fewer are steps of several percent."""
    most_range: int = 256
    """Most rows of all data per row of the smallest subset: a smaller subset ranks too poorly."""
    first_shares: tuple[float, float] = (1 / 64, 1 / 8)
    """Least and largest share of the rows in the first design (Klein et al. 2017, section 3.3)."""

    # Belief.
    most_learned: int = 300
    """Most results to learn from, as fits take cubic time."""
    cap_ranges: float = 3.0
    """Interquartile ranges above the median at which losses are cut: plateaus distort the scale."""
    draws: int = 8
    """Draws of the parameters for `variant=paper`."""

    # Search.
    n_representers: int = 50
    """Candidates that stand for the space (Hennig and Schuler 2012)."""
    n_thompson: int = 32
    """Draws of the function whose minimisers become representers."""
    n_normals: int = 512
    """Draws of the function at the representers: gains are then exact to 0.001 nats."""
    near: int = 8
    """Best configurations near which candidates are drawn in each round, and candidates near each.
    The first round has as many candidates for each representer."""
    widths: tuple[float, ...] = (0.08, 0.025)
    """Deviations of the candidates' moves on the unit scale, one for each further round."""
    dispatch_seconds: float = 0.07
    """Seconds of handing an evaluation to a worker, part of c_overhead (equation 7)."""

    # Full evaluations and the gate.
    confirmed: int = 3
    """Predicted best configurations to evaluate on all rows at the end. With fewer losses, there is
    nothing to predict: two determine any trend."""
    reserved: float = 1.3
    """Time reserved for confirmations, in units of their predicted seconds, which are uncertain."""
    paid_first: float = 0.75
    """Subset seconds before the first full evaluation, as a multiple of its own."""
    paid: float = 0.3
    """The same multiple before each further one."""
    vague: float = 0.7
    """Deviation, relative to all losses, from which a prediction is not informative."""
    told: float = 0.1
    """Predicted variance, as a share of the noise, below which a loss at s = 1 counts as known."""
    judged: int = 4
    """Number of newest full evaluations to judge: earlier predictions knew less. As many are made
    without a wait while predictions are vague: subsets showed nothing."""
    most_skill: float = 2.0
    """Most nats of skill from one outcome: no outcome decides alone."""
    least_skill: float = 0.5
    """Nats of skill below which subsets are dropped."""


RULES = Rules()


@dataclass(frozen=True)
class FabolasOptions(MethodOptions):
    """Options of `--method fabolas`."""

    n_first: int = option(
        "Number of random configurations on small subsets before the Gaussian process proposes "
        "any; at least two for each model.",
        default=10,
        at_least=1,
    )
    variant: Literal["default", "paper"] = option(
        "`default`, or `paper` for the published acquisition, bases, inference and incumbent, "
        "which do worse.",
        default="default",
    )


@dataclass(frozen=True)
class ReferenceOptions(MethodOptions):
    """Options of the reference methods of Fabolas."""

    n_first: int = option(
        "Number of random configurations before the Gaussian process proposes any.",
        default=5,
        at_least=1,
    )


@dataclass(frozen=True)
class TwoTaskOptions(ReferenceOptions):
    """Options of `--method mtbo`."""

    share: float = option(
        "Share of the rows that is the auxiliary task.", default=0.25, more_than=0, less_than=1
    )


def size_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Fabolas.decisions` as lines of text."""
    sizes, n_sizes = decisions.get("sizes", ()), decisions.get("n_sizes", 0)
    if sizes:
        yield f"evaluated on {len(sizes)} of {n_sizes} sizes:" if n_sizes > 1 else "evaluated on:"
    for size in sizes:
        failed = f", {size['failed']} of them failed" if size["failed"] else ""
        runs = counted(size["runs"], "trial")
        yield f"  {share_text(size['share'])} of the rows: {runs}{failed}"
    gate = decisions.get("gate", {})
    if gate.get("state") == "closed":
        yield f"subsets no longer used: {gate['reason']}"
    ranked = sorted(decisions.get("algorithms", {}).items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        likely = [f"{name} {p:.2f}" for name, p in ranked if p >= 0.05]
        yield f"probability of the best one's model: {', '.join(likely)}"
    confirmations = decisions.get("confirmations", ())
    for made in confirmations:
        predicted = f"predicted {made['predicted']:.4g} (deviation {made['deviation']:.2g})"
        is_failed = made.get("state") == "failed"
        nothing = "failed on all rows" if is_failed else "not evaluated on all rows in time"
        came = nothing if made["loss"] is None else f"came out as {made['loss']:.4g} on all rows"
        unlike = ", which disagrees" if made["disagrees"] else ""
        yield f"trial {made['trial']}: {predicted}, {came}{unlike}"
    if any(made["disagrees"] for made in confirmations):
        yield "more than two deviations apart: do not rely on subsets here"


_MODULE = "prefect_tune.optimizers.methods.fabolas.fabolas"

FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, searched by information per "
    "second; for many rows, where one evaluation takes long",
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
    purpose="a Gaussian process over all rows and one subset of them as two tasks; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    **_OF_REFERENCES,
)
