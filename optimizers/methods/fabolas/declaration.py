"""Declarations of `--method fabolas`, `ei`, `es` and `mtbo`: options, and lines of decisions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import Method, MethodOptions, counted, share_text
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.options import option

Inference = Literal["ensemble", "map"]


@dataclass(frozen=True)
class SurrogateOptions(MethodOptions):
    """Options of a method with this family's Gaussian process."""

    inference: Inference = option(
        "Parameters of the process: the most likely ones (map), or several draws (ensemble), which "
        "take four times as long without a better result.",
        default="map",
    )
    n_samples: int = option("Draws of the parameters.", default=8, at_least=1)
    n_first: int = option(
        "Number of random configurations before the Gaussian process proposes any.",
        default=10,
        at_least=1,
    )


@dataclass(frozen=True)
class ReferenceOptions(SurrogateOptions):
    """Options of the reference methods of Fabolas."""

    inference: Inference = option(
        "Parameters of the process: several draws (ensemble), as in the paper, or the most likely "
        "ones (map), which take a quarter of the time.",
        default="ensemble",
    )
    n_first: int = option(
        "Number of random configurations before the Gaussian process proposes any.",
        default=5,
        at_least=1,
    )


@dataclass(frozen=True)
class FabolasOptions(SurrogateOptions):
    """Options of `--method fabolas`."""

    n_first: int = option(
        "Random configurations that begin on the smallest subset; half of them are promoted.",
        default=10,
        at_least=1,
    )
    variant: Literal["default", "paper"] = option(
        "`default`, or `paper` for the published acquisition, bases, inference, incumbent and "
        "first points, which do worse.",
        default="default",
    )
    subset_draws: int = option(
        "Independent subsets of each size, given to trials in turn.", default=1, at_least=1
    )
    subset_folds: int = option(
        "Folds to evaluate on subsets of at most an eighth of the rows; 0 for all.",
        default=1,
        at_least=0,
    )
    verify_every: int = option(
        "Asks without a full evaluation after which the predicted best may get one, if subsets "
        "have proved helpful and have taken a quarter of its time; 0 for none before the end.",
        default=9,
        at_least=0,
    )
    gate: bool = option(
        "Whether to stop using subsets that do not predict the full data.", default=True
    )
    n_confirmed: int = option(
        "Predicted best configurations to evaluate on all rows at the end.",
        default=3,
        at_least=0,
    )


def size_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return `Fabolas.decisions` as lines of text."""
    lines, gate = list(_sizes(decisions)), decisions.get("gate", {})
    if gate.get("state") == "closed":
        lines.append(f"subsets no longer used: {gate['reason']}")
    ranked = sorted(decisions.get("algorithms", {}).items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        shown = [f"{name} {p:.2f}" for name, p in ranked if p >= RULES.least_shown]
        lines.append(f"probability of the best one's model: {', '.join(shown)}")
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


FABOLAS = Method(
    name="fabolas",
    purpose="Gaussian processes over configurations and subset sizes, searched by information per "
    "second; for many rows, where one evaluation takes long",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:Fabolas",
    options=FabolasOptions,
    fidelities=frozenset({"subset", "folds"}),
    draws_on_cost=True,
    render_decisions=size_lines,
)


EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:ExpectedImprovement",
    options=ReferenceOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)


ES = Method(
    name="es",
    purpose="entropy search on all rows, by the Gaussian process of Fabolas; a reference for "
    "Fabolas",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:EntropySearch",
    options=ReferenceOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)


@dataclass(frozen=True)
class TwoTaskOptions(ReferenceOptions):
    """Options of `--method mtbo`."""

    n_first: int = option(
        "Number of random configurations on the subset before the Gaussian process proposes any.",
        default=5,
        at_least=1,
    )
    share: float = option(
        "Share of the rows that is the auxiliary task.", default=0.25, more_than=0, less_than=1
    )


MTBO = Method(
    name="mtbo",
    purpose="a Gaussian process over all rows and one subset of them as two tasks; a reference for "
    "Fabolas",
    implementation="prefect_tune.optimizers.methods.fabolas.fabolas:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=size_lines,
)
