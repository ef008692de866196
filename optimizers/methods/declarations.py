"""Declarations of the small methods, their options, and how their decisions are shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prefect_tune.optimizers.method import Method, check_options
from prefect_tune.optimizers.trials.objective import Bootstraps, FailureCost

RANDOM_SEARCH = Method(
    name="random",
    purpose="draws from the prior; the baseline, and for as many workers as there are",
    implementation="prefect_tune.optimizers.methods.random_search:RandomSearch",
)


@dataclass(frozen=True)
class SmacOptions:
    """Options of `--method smac`.

    Forest and improvement are by default those of SMAC3's facade for hyperparameters; its facade
    for the configuration of algorithms has 3 runs and five sixths of the columns, and no logarithm.

    Attributes:
        n_startup: Random configurations before the forest is asked.
        n_trees: Trees of the forest.
        min_samples_split: Runs that a node of a tree needs to be split.
        max_features: Share of the columns that a split is chosen among.
        random_share: Share of the asks that draw from the prior instead.
        failure_cost: What a failed trial counts as.
        is_log: Fit the forest to the logarithm of the loss, where the metric has a lower bound.
        improvement: Of what improvement is expected where the forest predicts logarithms: of the
            loss itself (Hutter et al. 2009), or of its logarithm.
    """

    n_startup: int = 10
    n_trees: int = 10
    min_samples_split: int = 2
    max_features: float = 1.0
    random_share: float = 0.2
    failure_cost: FailureCost = "worst"
    is_log: bool = True
    improvement: Literal["loss", "logarithm"] = "loss"

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_startup", "n_trees"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")
        if self.min_samples_split < 2:
            raise ValueError(f"min_samples_split must be >= 2; got {self.min_samples_split}")
        if not 0 < self.max_features <= 1:
            raise ValueError(f"max_features must be in (0, 1]; got {self.max_features}")
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"random_share must be in [0, 1]; got {self.random_share}")


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
class TpeOptions:
    """Options of `--method tpe`.

    Attributes:
        n_startup: Random configurations before the densities are fitted.
        n_candidates: Values drawn of each density, of which the best is taken.
        joint: What has one density together: `choices`, the algorithms of all steps (Optuna's
            default since version 5); `groups`, these and hyperparameters that are active together
            (its `group`); or `nothing` (its default before).
        failure_cost: What a failed trial counts as.
        n_known: Of more trials than this, densities are fitted on so many: the best quarter, and
            the last ones told. An ask takes no longer then, however many there are.
    """

    n_startup: int = 10
    n_candidates: int = 24
    joint: Literal["choices", "groups", "nothing"] = "groups"
    failure_cost: FailureCost = "worst"
    n_known: int = 500

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_startup", "n_candidates", "n_known"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")


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
class JoptOptions:
    """Options of `--method jopt`.

    Attributes:
        n_startup: Random configurations before the process is asked.
        kernel: How pipelines are compared.
        failure_cost: What a failed trial counts as.
    """

    n_startup: int = 10
    kernel: Literal["one_hot", "conditional"] = "one_hot"
    failure_cost: FailureCost = "worst"

    def __post_init__(self) -> None:
        check_options(self)
        if self.n_startup < 1:
            raise ValueError(f"n_startup must be >= 1; got {self.n_startup}")


JOPT = Method(
    name="jopt",
    purpose="one Gaussian process over all paths and hyperparameters; what ADMM is compared with",
    implementation="prefect_tune.optimizers.methods.jopt:Jopt",
    options=JoptOptions,
    compared_by_default=False,
)


def ensemble_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Esmbo.decisions` gives."""
    n_members, n_trials = decisions.get("members", 0), decisions.get("candidates", 0)
    if not n_members:
        return []
    effective, n = decisions["effective"], decisions["histories"]
    among = (
        f"in the search, {n_members} of {n_trials} models were the best in some of {n} bootstraps"
    )
    return [f"{among}, worth {effective:.1f} of equal weight"]


@dataclass(frozen=True)
class HistoriesOptions:
    """Options of the bootstraps.

    Attributes:
        n_histories: N, bootstraps of the held-out examples, each with a history of its own; 1 for
            one history of all examples, which is plain search.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
    """

    n_histories: int = 30
    share: float = 0.5

    def __post_init__(self) -> None:
        check_options(self)
        if self.n_histories < 1:
            raise ValueError(f"n_histories must be >= 1; got {self.n_histories}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1]; got {self.share}")
        if not self.share and self.n_histories > 1:
            raise ValueError(
                f"without draws (share 0) all histories are alike: n_histories must be 1; got "
                f"{self.n_histories}"
            )

    @property
    def bootstraps(self) -> Bootstraps:
        """Those that evaluations are to have the risks of; one alone is of all examples."""
        return Bootstraps(self.n_histories, self.share if self.n_histories > 1 else 0.0)


@dataclass(frozen=True)
class EsmboOptions(HistoriesOptions):
    """Options of `--method esmbo`.

    Attributes:
        n_histories: N, bootstraps of the held-out examples, each with a history of its own; 1 for
            one history of all examples, which is plain search.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
        n_startup: Random configurations before the process is asked.
        kernel: How pipelines are compared.
        failure_cost: What a failed trial counts as.
    """

    n_startup: int = 5
    kernel: Literal["one_hot", "conditional"] = "one_hot"
    failure_cost: FailureCost = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_startup < 1:
            raise ValueError(f"n_startup must be >= 1; got {self.n_startup}")


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


@dataclass(frozen=True)
class ErsOptions(HistoriesOptions):
    """Options of `--method ers`.

    Attributes:
        n_histories: Bootstraps of the held-out examples; 1 for the best model alone.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
    """


ERS = Method(
    name="ers",
    purpose="ensembles of random configurations; what ESMBO is compared with",
    implementation="prefect_tune.optimizers.methods.esmbo:EnsembledRandomSearch",
    options=ErsOptions,
    compared_by_default=False,
    ensemble="agnostic",
    render_decisions=ensemble_lines,
)


@dataclass(frozen=True)
class BracketOptions:
    """Options of a method of brackets.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
    """

    fidelity: Literal["epochs", "subset", "folds"] | None = None
    eta: int = 3
    n_rungs: int | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.eta < 2:
            raise ValueError(f"eta must be >= 2; got {self.eta}")
        if self.n_rungs is not None and self.n_rungs < 2:
            raise ValueError(f"n_rungs must be >= 2; got {self.n_rungs}")


def bracket_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Halving.decisions` gives."""
    return list(_lines(decisions)) if "fidelity" in decisions else []


def _lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    fidelity, levels = decisions["fidelity"], decisions["levels"]
    *partial, full = levels
    if fidelity == "subset":
        *partial, whole = [*map(_share, partial), "all of the rows"]
    else:
        whole = f"all {full} {fidelity}"
    rungs = " to ".join([*map(str, partial), whole])
    yield f"one in {decisions['eta']} goes on, from {rungs} ({decisions['reason']})"
    for rung in decisions["rungs"]:
        level, n_runs, n_failed = rung["level"], rung["runs"], rung["failed"]
        counted = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{_share(level)} of the rows" if fidelity == "subset" else counted
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


def _share(share: float) -> str:
    return "all" if share == 1 else f"1/{round(1 / share)}"


@dataclass(frozen=True)
class HalvingOptions(BracketOptions):
    """Options of `--method halving`.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
        n: Configurations of a bracket; by default so many that one is left on the last rung.
    """

    n: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n is not None and self.n < 1:
            raise ValueError(f"n must be >= 1; got {self.n}")


HALVING = Method(
    name="halving",
    purpose="random configurations at a fraction of the cost, of which the best go on; for many "
    "workers, and where little tells much",
    implementation="prefect_tune.optimizers.methods.halving:Halving",
    options=HalvingOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)


HYPERBAND = Method(
    name="hyperband",
    purpose="halving that begins at several levels in turn, as nobody knows how much little tells",
    implementation="prefect_tune.optimizers.methods.halving:Hyperband",
    options=BracketOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)


@dataclass(frozen=True)
class BohbOptions(BracketOptions):
    """Options of `--method bohb`.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
        random_share: Share of the new configurations that are drawn from the prior (rho).
        good_share: Share of a rung's results that counts as good, but at least one more of them
            than a configuration has numbers and choices.
        n_samples: Draws around the good ones, of which the best is taken (N_s; the paper: 64,
            no better on recorded curves and worse where many paths differ).
        bandwidth_factor: How much wider than the density of the good ones is drawn (b_w).
    """

    random_share: float = 1 / 3
    good_share: float = 0.15
    n_samples: int = 24
    bandwidth_factor: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"random_share must be in [0, 1]; got {self.random_share}")
        if not 0 < self.good_share < 1:
            raise ValueError(f"good_share must be in (0, 1); got {self.good_share}")
        if self.n_samples < 1:
            raise ValueError(f"n_samples must be >= 1; got {self.n_samples}")
        if self.bandwidth_factor <= 0:
            raise ValueError(f"bandwidth_factor must be > 0; got {self.bandwidth_factor}")


BOHB = Method(
    name="bohb",
    purpose="Hyperband that begins with what resembles the best so far; for iterative models, "
    "large data and many workers",
    implementation="prefect_tune.optimizers.methods.bohb:Bohb",
    options=BohbOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)
