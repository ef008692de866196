"""Declarations of the small methods, with their options and the rendering of their decisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import Method, MethodOptions, share_text
from prefect_tune.optimizers.options import option
from prefect_tune.optimizers.trials.objective import Bootstraps, FailureCost

_FAILURE_COST = "Loss that a failed trial counts as."
_KERNEL = (
    "How two pipelines are compared: by all columns (`one_hot`), or only by the "
    "algorithms and hyperparameters that both have (`conditional`)."
)

RANDOM_SEARCH = Method(
    name="random",
    purpose="draws from the prior; the baseline, and good for any number of workers",
    implementation="prefect_tune.optimizers.methods.references:RandomSearch",
)


@dataclass(frozen=True)
class SmacOptions(MethodOptions):
    """Options of `--method smac`.

    The defaults follow SMAC3's hyperparameter facade. SMAC3's
    algorithm-configuration facade differs: it splits nodes of 3 runs, considers five sixths of the
    columns, and takes no logarithm.
    """

    n_startup: int = option(
        "Random configurations before the first proposal of the forest.", default=10, at_least=1
    )
    n_trees: int = option("Trees of the forest.", default=10, at_least=1)
    min_samples_split: int = option(
        "Fewest runs in a node of a tree that can be split.", default=2, at_least=2
    )
    max_features: float = option(
        "Share of the columns considered at each split.", default=1.0, more_than=0, at_most=1
    )
    random_share: float = option(
        "Share of the proposals drawn from the prior.", default=0.2, at_least=0, at_most=1
    )
    failure_cost: FailureCost = option(_FAILURE_COST, default="worst")
    is_log: bool = option(
        "Whether the forest is fitted to the logarithm of the loss, if the metric has a lower "
        "bound.",
        default=True,
    )
    improvement: Literal["loss", "logarithm"] = option(
        "Scale of the expected improvement if the forest predicts logarithms: the loss itself "
        "(Hutter et al. 2009), or its logarithm.",
        default="loss",
    )


SMAC = Method(
    name="smac",
    purpose="a random forest over the whole conditional space; when hyperparameters matter as much "
    "as algorithms",
    implementation="prefect_tune.optimizers.methods.smac:Smac",
    is_raced=True,
    ensemble="auto",
    options=SmacOptions,
)


@dataclass(frozen=True)
class TpeOptions(MethodOptions):
    """Options of `--method tpe`."""

    n_startup: int = option(
        "Random configurations before the densities are fitted.", default=10, at_least=1
    )
    n_candidates: int = option(
        "Values drawn from each density; the best one is taken.", default=24, at_least=1
    )
    joint: Literal["choices", "groups", "nothing"] = option(
        "Parameters with one joint density: `choices`, the algorithms of all steps (Optuna's "
        "default since version 5); `groups`, these and hyperparameters that are active together "
        "(Optuna's `group`); or `nothing` (Optuna's default before version 5).",
        default="groups",
    )
    failure_cost: FailureCost = option(_FAILURE_COST, default="worst")
    n_known: int = option(
        "Most trials to fit the densities to, a quarter of them the best and the others "
        "the latest. However many trials there are, an ask then takes no longer.",
        default=500,
        at_least=1,
    )


TPE = Method(
    name="tpe",
    purpose="densities of good and bad choices and values (Optuna's sampler); cheap to ask, for "
    "many short trials",
    implementation="prefect_tune.optimizers.methods.tpe:Tpe",
    is_raced=True,
    ensemble="auto",
    options=TpeOptions,
)


@dataclass(frozen=True)
class JoptOptions(MethodOptions):
    """Options of `--method jopt`."""

    n_startup: int = option(
        "Number of random configurations before the Gaussian process proposes any.",
        default=10,
        at_least=1,
    )
    kernel: Literal["one_hot", "conditional"] = option(_KERNEL, default="one_hot")
    failure_cost: FailureCost = option(_FAILURE_COST, default="worst")


JOPT = Method(
    name="jopt",
    purpose="one Gaussian process over all paths and hyperparameters; the reference for ADMM",
    implementation="prefect_tune.optimizers.methods.references:Jopt",
    options=JoptOptions,
    compared_by_default=False,
)


def ensemble_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return `Esmbo.decisions` as lines of text."""
    n_members, n_trials = decisions.get("members", 0), decisions.get("candidates", 0)
    if not n_members:
        return []
    effective, n = decisions["effective"], decisions["histories"]
    among = (
        f"in the search, {n_members} of {n_trials} models were the best in some of {n} bootstraps"
    )
    return [f"{among}, equivalent to {effective:.1f} of equal weight"]


@dataclass(frozen=True)
class HistoriesOptions(MethodOptions):
    """Options of the bootstraps."""

    n_histories: int = option(
        "Number of bootstraps of the held-out examples, each with its own history. With 1, there "
        "is a single history on all examples: a plain search for the best model.",
        default=30,
        at_least=1,
    )
    share: float = option(
        "Size of each bootstrap, as a share of the examples. 0 is possible only with a single "
        "history, which always has all examples.",
        default=0.5,
        at_least=0,
        at_most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.share and self.n_histories > 1:
            raise ValueError(
                f"without draws (share 0) all histories are alike: n_histories must be 1; got "
                f"{self.n_histories}"
            )

    @property
    def bootstraps(self) -> Bootstraps:
        """Bootstraps in which evaluations report risks; a single one has all examples."""
        return Bootstraps(self.n_histories, self.share if self.n_histories > 1 else 0.0)


@dataclass(frozen=True)
class EsmboOptions(JoptOptions, HistoriesOptions):
    """Options of `--method esmbo`."""

    n_startup: int = option(
        "Number of random configurations before the Gaussian process proposes any.",
        default=5,
        at_least=1,
    )


ESMBO = Method(
    name="esmbo",
    purpose="searches for the members of an ensemble: each trial is the best guess of one of many "
    "bootstraps of the held-out examples (Lacoste et al. 2014)",
    implementation="prefect_tune.optimizers.methods.esmbo:Esmbo",
    options=EsmboOptions,
    compared_by_default=False,
    ensemble="agnostic",
    render_decisions=ensemble_lines,
)


ERS = Method(
    name="ers",
    purpose="ensembles of random configurations; what ESMBO is compared with",
    implementation="prefect_tune.optimizers.methods.esmbo:EnsembledRandomSearch",
    options=HistoriesOptions,
    compared_by_default=False,
    ensemble="agnostic",
    render_decisions=ensemble_lines,
)


@dataclass(frozen=True)
class BracketOptions(MethodOptions):
    """Options of a method of brackets."""

    fidelity: Literal["epochs", "subset", "folds"] | None = option(
        "Fidelity that grows from rung to rung; by default epochs, or a subset of many rows, or "
        "folds, whichever the study can have."
    )
    eta: int = option(
        "Factor between rungs: 1/eta of a rung is promoted to the next, which has eta times the "
        "fidelity.",
        default=3,
        at_least=2,
    )
    n_rungs: int | None = option(
        "Most rungs; by default as many as the epochs or folds allow, and up to 4 of subsets.",
        at_least=2,
    )


def bracket_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return `Halving.decisions` as lines of text."""
    return list(_lines(decisions)) if "fidelity" in decisions else []


def _lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    fidelity, levels = decisions["fidelity"], decisions["levels"]
    *partial, full = levels
    if fidelity == "subset":
        *partial, whole = [*map(share_text, partial), "all of the rows"]
    else:
        whole = f"all {full} {fidelity}"
    rungs = " to ".join([*map(str, partial), whole])
    yield f"one in {decisions['eta']} is promoted, from {rungs} ({decisions['reason']})"
    for rung in decisions["rungs"]:
        level, n_runs, n_failed = rung["level"], rung["runs"], rung["failed"]
        counted = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{share_text(level)} of the rows" if fidelity == "subset" else counted
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


_BRACKETS: dict[str, Any] = {
    "honours_constraints": True,
    "fidelities": frozenset({"epochs", "subset", "folds"}),
    "compared_by_default": False,
    "render_decisions": bracket_lines,
}
"""Attributes shared by the declarations of halving, Hyperband and BOHB."""


@dataclass(frozen=True)
class HalvingOptions(BracketOptions):
    """Options of `--method halving`."""

    n: int | None = option(
        "Configurations of a bracket; by default as many as leave one on the last rung.", at_least=1
    )


HALVING = Method(
    name="halving",
    purpose="random configurations at a fraction of the cost, the best of them promoted; for "
    "many workers, and if partial evaluations predict full ones",
    implementation="prefect_tune.optimizers.methods.halving:Halving",
    options=HalvingOptions,
    **_BRACKETS,
)


HYPERBAND = Method(
    name="hyperband",
    purpose="halving that starts at several fidelities in turn, since the best one is unknown",
    implementation="prefect_tune.optimizers.methods.halving:Hyperband",
    options=BracketOptions,
    **_BRACKETS,
)


@dataclass(frozen=True)
class BohbOptions(BracketOptions):
    """Options of `--method bohb`."""

    random_share: float = option(
        "Share of the new configurations drawn from the prior (rho).",
        default=1 / 3,
        at_least=0,
        at_most=1,
    )
    good_share: float = option(
        "Share of a rung's results that counts as good, but at least one more result than a "
        "configuration has numbers and choices.",
        default=0.15,
        more_than=0,
        less_than=1,
    )
    n_samples: int = option(
        "Draws around the good results; the best one is taken (N_s; the paper: 64, no better "
        "on recorded curves and worse where many paths differ).",
        default=24,
        at_least=1,
    )
    bandwidth_factor: float = option(
        "Width of the draws, as a multiple of the width of the good results' density (b_w).",
        default=3.0,
        more_than=0,
    )


BOHB = Method(
    name="bohb",
    purpose="Hyperband that starts with configurations like the best so far; for iterative models, "
    "large data and many workers",
    implementation="prefect_tune.optimizers.methods.bohb:Bohb",
    options=BohbOptions,
    **_BRACKETS,
)
