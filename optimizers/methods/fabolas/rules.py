"""Options of Fabolas and its reference methods, and the constants that the paper leaves open."""

from collections.abc import Iterator, Mapping, Sequence
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
    least_range: int = 8
    """Fewest rows of all data per row of the smallest subset: fewer leave no room to learn."""
    unknown_range: int = 64
    """The ratio if the number of rows is unknown: the smallest share of the paper's SVMs."""
    first_shares: tuple[float, float] = (1 / 64, 1 / 8)
    """Least and largest share of the rows in the first design (Klein et al. 2017, section 3.3)."""
    small: float = 1 / 8
    """Largest share of the rows evaluated on one fold: subset noise exceeds fold noise."""

    # Belief.
    least_losses: int = 3
    """Number of losses needed to fit a process: two determine any trend."""
    most_learned: int = 300
    """Most results to learn from, as fits take cubic time."""
    unknown_held_out: int = 200
    """Held-out rows to assume if their number is unknown: an error of 0 counts as half a row."""
    cap_ranges: float = 3.0
    """Interquartile ranges above the median at which losses are cut: plateaus distort the scale."""
    fit_iterations: int = 20
    """Iterations of a fit: it starts from the last fit."""
    fitted_always: int = 64
    """Results up to which each ask refits: later fits take longer and change parameters less."""
    fitted_after: int = 3
    """New results after which larger processes are refitted: fewer change parameters little."""
    draws: int = 8
    """Draws of the parameters for `variant=paper`."""
    sweeps: int = 20
    """Sweeps of the walkers before each draw: walkers start near a fit, not in the prior."""

    # Search.
    n_representers: int = 50
    """Candidates that stand for the space (Hennig and Schuler 2012)."""
    n_normals: int = 512
    """Draws of the function at the representers: gains are then exact to 0.001 nats."""
    n_thompson: int = 32
    """Draws of the function whose minimisers become representers."""
    pool: int = 400
    """Candidates of the first round of the search, half of them near the best."""
    near: int = 8
    """Best configurations near which candidates are drawn in each round."""
    moves: int = 8
    """Candidates near each of them in each further round."""
    widths: tuple[float, ...] = (0.08, 0.025)
    """Deviations of the candidates' moves on the unit scale, one for each further round."""

    # Seconds.
    dispatch_seconds: float = 0.07
    """Seconds of handing an evaluation to a worker, part of c_overhead (equation 7)."""
    reserved: float = 1.3
    """Time reserved for confirmations, in units of their predicted seconds, which are uncertain."""

    # Full evaluations and the gate.
    confirmed: int = 3
    """Predicted best configurations to evaluate on all rows at the end."""
    paid_first: float = 0.75
    """Subset seconds before the first full evaluation, as a multiple of its own."""
    paid: float = 0.3
    """The same multiple before each further one."""
    vague: float = 0.7
    """Deviation, relative to all losses, from which a prediction is not informative."""
    few_full: int = 5
    """Full evaluations without a wait while predictions are vague: subsets showed nothing."""
    told: float = 0.1
    """Predicted variance, as a share of the noise, below which a loss at s = 1 counts as known."""
    judged: int = 4
    """Number of newest full evaluations to judge: earlier predictions knew less."""
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


def size_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return `Fabolas.decisions` as lines of text."""
    lines, gate = list(_sizes(decisions)), decisions.get("gate", {})
    if gate.get("state") == "closed":
        lines.append(f"subsets no longer used: {gate['reason']}")
    ranked = sorted(decisions.get("algorithms", {}).items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        likely = [f"{name} {p:.2f}" for name, p in ranked if p >= 0.05]
        lines.append(f"probability of the best one's model: {', '.join(likely)}")
    return [*lines, *_confirmed(decisions.get("confirmations", ()))]


def _sizes(decisions: Mapping[str, Any]) -> Iterator[str]:
    sizes, n_sizes = decisions.get("sizes", ()), decisions.get("n_sizes", 0)
    if sizes:
        yield f"evaluated on {len(sizes)} of {n_sizes} sizes:" if n_sizes > 1 else "evaluated on:"
    for size in sizes:
        failed = f", {size['failed']} of them failed" if size["failed"] else ""
        yield (
            f"  {share_text(size['share'])} of the rows: {counted(size['runs'], 'trial')}{failed}"
        )


def _confirmed(confirmations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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


EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:ExpectedImprovement",
    options=ReferenceOptions,
    compared_by_default=False,
    render_decisions=size_lines,
)


ES = Method(
    name="es",
    purpose="entropy search on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:EntropySearch",
    options=ReferenceOptions,
    compared_by_default=False,
    render_decisions=size_lines,
)


MTBO = Method(
    name="mtbo",
    purpose="a Gaussian process over all rows and one subset of them as two tasks; a reference for "
    "Fabolas",
    implementation=f"{_MODULE}:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=size_lines,
)
