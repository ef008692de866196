"""Declarations of the methods outside `fabolas`, with options and rendered decisions.

An option is here if a page says when to change it. All other settings are constants of the methods,
or follow from the variant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from prefect_tune.optimizers.documents import pipeline_lines
from prefect_tune.optimizers.method import Method, MethodOptions, counted, share_text
from prefect_tune.optimizers.options import option
from prefect_tune.optimizers.trials.objective import Bootstraps

Variant = Literal["default", "paper"]


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
        "loss; 0 for none. Null is 0.5, and 0 in the paper's variant.",
        at_least=0,
        at_most=1,
    )


def flash_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Flash.decisions` as lines of text."""
    if "n_prune" in decisions:
        n_known = min(decisions.get("n_known", 0), decisions["n_init"])
        of_design = counted(decisions["n_init"] - n_known, "trial") + " of its design"
        parts = [counted(n_known, "known pipeline")] if n_known else []
        parts += [of_design] if decisions["n_init"] > n_known else []
        parts.append(f"{decisions['n_prune']} by expected improvement per second")
        yield f"flash began with {', '.join(parts[:-1])} and {parts[-1]}"
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
    if "subspace" in decisions:
        yield f"flash tunes {counted(decisions['n_subspace_paths'], 'path')}, built from:"
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
    render_decisions=flash_lines,
)


@dataclass(frozen=True)
class AdmmOptions(MethodOptions):
    """Options of `--method admm`."""

    variant: Variant = option(
        "`paper` tries one path before the first iteration instead of one per model, chooses paths "
        "by a bandit with Bernoulli rewards, always tunes the best path, and keeps no margin below "
        "bounds. Both variants penalise integers on [0, 1], because they never move in their own "
        "units.",
        default="default",
    )
    theta_solver: Literal["bo", "trust_region"] = option(
        "Search for the hyperparameters of one path: by a Gaussian process in the whole path "
        "(`bo`), or near its best point (`trust_region`).",
        default="bo",
    )
    rho: float = option("Weight of the augmented term of integers.", default=1.0, at_least=0)
    rho_g: float = option(
        "Weight of the augmented term of constraints, in units of their bounds.",
        default=10.0,
        more_than=0,
    )

    @property
    def is_paper(self) -> bool:
        """Whether the variant is the paper's."""
        return self.variant == "paper"


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


RANDOM_SEARCH = Method(
    name="random",
    purpose="draws from the prior; the baseline, and good for any number of workers",
    implementation="prefect_tune.optimizers.methods.references:RandomSearch",
)


@dataclass(frozen=True)
class StartOptions(MethodOptions):
    """Options of `--method smac`, `tpe` and `jopt`."""

    n_startup: int = option(
        "Random configurations before the model proposes any; fewer if the budget holds fewer "
        "than about 30.",
        default=10,
        at_least=1,
    )


SMAC = Method(
    name="smac",
    purpose="a random forest over the whole conditional space; when hyperparameters matter as much "
    "as algorithms",
    implementation="prefect_tune.optimizers.methods.smac:Smac",
    is_raced=True,
    ensemble="auto",
    options=StartOptions,
)
TPE = Method(
    name="tpe",
    purpose="densities of good and bad choices and values (Optuna's sampler); cheap to ask, for "
    "many short trials",
    implementation="prefect_tune.optimizers.methods.tpe:Tpe",
    is_raced=True,
    ensemble="auto",
    options=StartOptions,
)
JOPT = Method(
    name="jopt",
    purpose="one Gaussian process over all paths and hyperparameters; the reference for ADMM",
    implementation="prefect_tune.optimizers.methods.references:Jopt",
    options=StartOptions,
    compared_by_default=False,
)


@dataclass(frozen=True)
class HistoriesOptions(MethodOptions):
    """Options of `--method esmbo` and `ers`."""

    n_histories: int = option(
        "Number of bootstraps of the held-out examples, each with its own history; fewer if the "
        "budget holds fewer trials. With 1, there is a single history on all examples: a plain "
        "search for the best model.",
        default=30,
        at_least=1,
    )
    n_startup: ClassVar[int] = 5
    """Random configurations before the Gaussian process proposes any."""

    @property
    def bootstraps(self) -> Bootstraps:
        """Bootstraps in which evaluations report risks; a single one has all examples."""
        return Bootstraps(self.n_histories, 0.5 if self.n_histories > 1 else 0.0)


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


_OF_ENSEMBLE: dict[str, Any] = {
    "options": HistoriesOptions,
    "compared_by_default": False,
    "ensemble": "agnostic",
    "render_decisions": ensemble_lines,
}
ESMBO = Method(
    name="esmbo",
    purpose="searches for the members of an ensemble: each trial is the best guess of one of many "
    "bootstraps of the held-out examples (Lacoste et al. 2014)",
    implementation="prefect_tune.optimizers.methods.esmbo:Esmbo",
    **_OF_ENSEMBLE,
)
ERS = Method(
    name="ers",
    purpose="ensembles of random configurations; what ESMBO is compared with",
    implementation="prefect_tune.optimizers.methods.esmbo:EnsembledRandomSearch",
    **_OF_ENSEMBLE,
)


@dataclass(frozen=True)
class BracketOptions(MethodOptions):
    """Options of `--method halving`, `hyperband` and `bohb`."""

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


def bracket_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Halving.decisions` as lines of text."""
    if "fidelity" not in decisions:
        return
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
        of_level = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{share_text(level)} of the rows" if fidelity == "subset" else of_level
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


_OF_BRACKETS: dict[str, Any] = {
    "options": BracketOptions,
    "honours_constraints": True,
    "fidelities": frozenset({"epochs", "subset", "folds"}),
    "compared_by_default": False,
    "render_decisions": bracket_lines,
}
HALVING = Method(
    name="halving",
    purpose="random configurations at a fraction of the cost, the best of them promoted; for "
    "many workers, and if partial evaluations predict full ones",
    implementation="prefect_tune.optimizers.methods.halving:Halving",
    **_OF_BRACKETS,
)
HYPERBAND = Method(
    name="hyperband",
    purpose="halving that starts at several fidelities in turn, since the best one is unknown",
    implementation="prefect_tune.optimizers.methods.halving:Hyperband",
    **_OF_BRACKETS,
)
BOHB = Method(
    name="bohb",
    purpose="Hyperband that starts with configurations like the best so far; for iterative models, "
    "large data and many workers",
    implementation="prefect_tune.optimizers.methods.bohb:Bohb",
    **_OF_BRACKETS,
)


@dataclass(frozen=True)
class BapiOptions(MethodOptions):
    """Options of `--method bapi`; `resolved` adds what the variant decides."""

    variant: Literal["default", "paper"] = option(
        "`default`, or `paper` for the published method.", default="default"
    )
    horizon: int = option(
        "Most configurations planned ahead; 1 considers the next one alone.", default=4, at_least=1
    )
    p: float | None = option(
        "Share of a full training between two checks of a training (0.1; paper 0.2).",
        more_than=0,
        at_most=1,
    )
    epsilon: float | None = option(
        "Loss that may be added by ending before the full training (0.003 of the metric's "
        "range; paper 0.01; for a metric without a range, of the spread seen).",
        at_least=0,
    )
    n_first: int | None = option(
        "Configurations of the start (3 to 27, depending on the budget; paper 5).", at_least=1
    )

    @property
    def is_paper(self) -> bool:
        """Whether the variant is the paper's."""
        return self.variant == "paper"

    def resolved(self) -> Self:
        """Return the options with the variant's p and n_first, unless they were given."""
        p, n_first = (0.2, 5) if self.is_paper else (0.1, None)
        return replace(self, p=self.p or p, n_first=self.n_first or n_first)


def bapi_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Bapi.decisions` as lines of text."""
    if not decisions.get("configurations", 0) + decisions.get("at_once", 0):
        return
    n, t_max = decisions["configurations"], decisions["t_max"]
    trained, spared = decisions["epochs"], decisions["spared"]
    yield (
        f"{counted(n, 'configuration')} trained for {trained:,} of {n * t_max:,} epochs in all"
        + (f"; {spared:,} spared by ending early" if spared else "")
    )
    if decisions["at_once"]:
        yield f"  {decisions['at_once']} others fitted at once, as their models have no epochs"
    ends = decisions["ends"]
    if outcomes := [f"{ends[end]} {words}" for end, words in ENDS.items() if ends.get(end)]:
        yield f"  {', '.join(outcomes)}"
    if least := decisions.get("least"):
        yield (
            f"  trial {least['trial']} has the least loss at one epoch, {least['loss']:.4g}; the "
            "answer has the least mean over neighbouring epochs"
        )
    if decisions["thawed"]:
        yield f"  {counted(decisions['thawed'], 'training')} resumed after others were tried"


ENDS = {
    "full": "to the end",
    "finished": "to where nothing more was expected",
    "stopped": "stopped as they would not win",
    "diverged": "diverged",
    "left": "left where they were",
    "failed": "failed",
}


BAPI = Method(
    name="bapi",
    purpose="the budget planned over learning curves: trainings that will not win are stopped, and "
    "may be resumed; for models whose training takes seconds or more",
    implementation="prefect_tune.optimizers.methods.bapi.bapi:Bapi",
    options=BapiOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=lambda decisions: list(bapi_lines(decisions)),
)
