"""Declarations of methods, with their options and the text of their decisions.

`fabolas.rules` declares the methods of the Fabolas family. A setting is an option only if a page of
the documentation says when to change it. All other settings are constants or depend on the variant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from prefect_tune.optimizers.documents import pipeline_lines
from prefect_tune.optimizers.method import Method, MethodOptions, ScoreText, counted, share_text
from prefect_tune.optimizers.options import option
from prefect_tune.optimizers.trials.objective import Bootstraps

Variant = Literal["default", "paper"]


@dataclass(frozen=True)
class FlashOptions(MethodOptions):
    """Options of `--method flash`."""

    variant: Variant = option(
        "`paper` follows the paper, with the constants of the authors' code. `default` has lower "
        "losses in planted worlds.",
        default="default",
    )
    n_init: int | None = option(
        "Number of trials in Phase 1. Null means a third of the rank of the paths, "
        "(N - K + 1) / 3, or fewer if the budget is small; 30 with `variant=paper`.",
        at_least=1,
    )
    n_prune: int | None = option(
        "Number of trials in Phase 2. Null means as many as in Phase 1.", at_least=0
    )
    r: int = option("Number of best paths whose algorithms Phase 3 tunes.", default=10, at_least=1)


def flash_lines(decisions: Mapping[str, Any], _: ScoreText) -> Iterator[str]:
    """Yield `Flash.decisions` as lines of text."""
    if "n_prune" in decisions:
        n_known = min(decisions.get("n_known", 0), decisions["n_init"])
        of_design = counted(decisions["n_init"] - n_known, "trial") + " of its design"
        parts = [counted(n_known, "known pipeline")] if n_known else []
        parts += [of_design] if decisions["n_init"] > n_known else []
        parts.append(f"{decisions['n_prune']} chosen by expected improvement per second")
        yield f"flash began with {', '.join(parts[:-1])} and {parts[-1]}"
    if "shared_values" in decisions:
        yield "best settings so far of the steps in every pipeline, by model family:"
        for family, choices in decisions["shared_values"].items():
            settings = [line for c in choices for line in pipeline_lines({c["step"]: c})]
            yield f"  {family}: {'; '.join(settings)}"
    if "subspace" in decisions:
        yield f"flash tunes {counted(decisions['n_subspace_paths'], 'path')}, built from:"
        for step, algorithms in decisions["subspace"].items():
            yield f"  {step}: {', '.join(algorithms)}"


FLASH = Method(
    name="flash",
    purpose="a linear model prunes the algorithms of each step, then a random forest tunes the "
    "rest; for spaces with many paths, and best with the cache",
    implementation="prefect_tune.optimizers.methods.flash.flash:Flash",
    has_portfolio=True,
    is_raced=True,
    ensemble="auto",
    options=FlashOptions,
    honors_constraints=True,
    draws_on_cost=True,
    render_decisions=flash_lines,
)


@dataclass(frozen=True)
class AdmmOptions(MethodOptions):
    """Options of `--method admm`."""

    variant: Variant = option(
        "`paper` follows the paper. `default` tries every model before the first iteration, "
        "chooses paths by a linear model, tunes a new path in every second iteration, and ignores "
        "losses until a configuration meets the constraints.",
        default="default",
    )
    rho: float = option(
        "Weight of the penalties: on the gap between relaxed and rounded integers, and on "
        "constraint violations.",
        default=1.0,
        more_than=0,
    )

    @property
    def is_paper(self) -> bool:
        """Whether the variant is the paper's."""
        return self.variant == "paper"


ADMM = Method(
    name="admm",
    purpose="alternates between the hyperparameters of a path and the choice of the path; for "
    "constraints on latency, size or fairness",
    implementation="prefect_tune.optimizers.methods.admm.admm:Admm",
    is_raced=True,
    ensemble="auto",
    options=AdmmOptions,
    honors_constraints=True,
)


RANDOM_SEARCH = Method(
    name="random",
    purpose="draws from the prior; a baseline for any other method, with any number of workers",
    implementation="prefect_tune.optimizers.methods.references:RandomSearch",
)


@dataclass(frozen=True)
class StartOptions(MethodOptions):
    """Options of `--method smac`, `tpe`, `jopt` and `stepwise`."""

    n_startup: int = option(
        "Number of random configurations before the model's first proposal; fewer if the budget is "
        "smaller than about 30 trials.",
        default=10,
        at_least=1,
    )


SMAC = Method(
    name="smac",
    purpose="a random forest over the whole conditional space; for spaces where hyperparameters "
    "matter as much as algorithms",
    implementation="prefect_tune.optimizers.methods.smac:Smac",
    is_raced=True,
    ensemble="auto",
    options=StartOptions,
    honors_constraints=True,
)
TPE = Method(
    name="tpe",
    purpose="densities of good and bad choices and values (Optuna's sampler); for many short "
    "trials, because proposals are cheap",
    implementation="prefect_tune.optimizers.methods.tpe:Tpe",
    synonyms=("optuna", "hyperopt"),
    is_raced=True,
    ensemble="auto",
    options=StartOptions,
    honors_constraints=True,
)
JOPT = Method(
    name="jopt",
    purpose="one Gaussian process over all paths and hyperparameters; the baseline for ADMM",
    implementation="prefect_tune.optimizers.methods.references:Jopt",
    options=StartOptions,
    honors_constraints=True,
    compared_by_default=False,
)
STEPWISE = Method(
    name="stepwise",
    purpose="chooses the algorithm of one step after the other, the model first; the baseline for "
    "FLASH",
    implementation="prefect_tune.optimizers.methods.references:Stepwise",
    options=StartOptions,
    compared_by_default=False,
)


@dataclass(frozen=True)
class HistoriesOptions(MethodOptions):
    """Options of `--method esmbo` and `ers`."""

    n_histories: int = option(
        "Number of bootstrap samples of the held-out rows, each with its own history. 1 is a "
        "single history on all held-out rows, which is an ordinary search for the best model.",
        default=30,
        at_least=1,
    )
    variant: Variant = option(
        "With `paper`, bootstrap samples have as many rows as are held out, not half as many, and "
        "each history has its own Gaussian process.",
        default="default",
    )
    n_startup: ClassVar[int] = 5
    """Number of random configurations before the Gaussian process's first proposal."""

    @property
    def bootstraps(self) -> Bootstraps:
        """Bootstraps for which evaluations report risks.

        If there is only one bootstrap, it contains all examples.
        """
        share = 1.0 if self.variant == "paper" else 0.5
        return Bootstraps(self.n_histories, share if self.n_histories > 1 else 0.0)


def ensemble_lines(decisions: Mapping[str, Any], _: ScoreText) -> list[str]:
    """Return `Esmbo.decisions` as lines of text."""
    n_members, n_trials = decisions.get("members", 0), decisions.get("candidates", 0)
    if not n_members:
        return []
    effective, n = decisions["effective"], decisions["histories"]
    among = f"{n_members} of {n_trials} models were best in at least one of {n} bootstraps"
    return [f"{among} (effective number of models: {effective:.1f})"]


_OF_ENSEMBLE: dict[str, Any] = {
    "options": HistoriesOptions,
    "compared_by_default": False,
    "ensemble": "agnostic",
    "render_decisions": ensemble_lines,
}
ESMBO = Method(
    name="esmbo",
    purpose="searches for the members of an ensemble: each trial should improve on the best model "
    "in one of many bootstraps of the held-out examples (Lacoste et al. 2014)",
    implementation="prefect_tune.optimizers.methods.esmbo:Esmbo",
    honors_constraints=True,
    **_OF_ENSEMBLE,
)
ERS = Method(
    name="ers",
    purpose="ensembles of random configurations; a reference for ESMBO",
    implementation="prefect_tune.optimizers.methods.esmbo:EnsembledRandomSearch",
    **_OF_ENSEMBLE,
)


@dataclass(frozen=True)
class BracketOptions(MethodOptions):
    """Options of `--method halving`, `hyperband` and `bohb`."""

    fidelity: Literal["epochs", "subset", "folds"] | None = option(
        "Fidelity that grows from rung to rung; by default epochs if models train in epochs, "
        "otherwise subset for many rows and folds for few rows."
    )
    eta: int = option(
        "Factor between rungs: 1/eta of a rung's configurations are promoted to the next rung, "
        "which has eta times the fidelity.",
        default=3,
        at_least=2,
    )


def bracket_lines(decisions: Mapping[str, Any], _: ScoreText) -> Iterator[str]:
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
    yield f"promotes 1 of {decisions['eta']} per rung, from {rungs} ({decisions['reason']})"
    for rung in decisions["rungs"]:
        level, n_runs, n_failed = rung["level"], rung["runs"], rung["failed"]
        fidelity = rung.get("fidelity", fidelity)
        of_level = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{share_text(level)} of the rows" if fidelity == "subset" else of_level
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


_OF_BRACKETS: dict[str, Any] = {
    "options": BracketOptions,
    "honors_constraints": True,
    "fidelities": frozenset({"epochs", "subset", "folds"}),
    "compared_by_default": False,
    "render_decisions": bracket_lines,
}
HALVING = Method(
    name="halving",
    purpose="random configurations at a fraction of the cost, with promotion of the best; for "
    "many workers, and for partial evaluations that predict full ones",
    implementation="prefect_tune.optimizers.methods.halving:Halving",
    **_OF_BRACKETS,
)
HYPERBAND = Method(
    name="hyperband",
    purpose="halving from several fidelities in turn; for studies whose best fidelity is unknown",
    implementation="prefect_tune.optimizers.methods.halving:Hyperband",
    **_OF_BRACKETS,
)
BOHB = Method(
    name="bohb",
    purpose="Hyperband with configurations similar to the best so far; for iterative models, large "
    "data and many workers",
    implementation="prefect_tune.optimizers.methods.bohb:Bohb",
    **_OF_BRACKETS,
)


@dataclass(frozen=True)
class BapiOptions(MethodOptions):
    """Options of `--method bapi`. `resolved` adds the defaults of the variant."""

    variant: Literal["default", "paper"] = option(
        "`paper` is the published method; `default` has lower validation losses.", default="default"
    )
    horizon: int | None = option("Number of configurations to plan ahead (1; paper 4).", at_least=1)
    p: float | None = option(
        "Share of a full training run between two decisions to continue or stop (0.1; paper 0.2).",
        more_than=0,
        at_most=1,
    )
    epsilon: float | None = option(
        "Increase in loss that is acceptable if training is stopped early (0.003 of the "
        "metric's range or, without a range, of the spread of losses; paper 0.01).",
        at_least=0,
    )
    n_first: int | None = option(
        "Number of initial configurations (3 to 27, depending on the budget; paper 5).", at_least=1
    )

    @property
    def is_paper(self) -> bool:
        """Whether the variant is the paper's."""
        return self.variant == "paper"

    def resolved(self) -> Self:
        """Return the options, with the variant's defaults for `horizon`, `p` and `n_first`."""
        horizon, p, n_first = (4, 0.2, 5) if self.is_paper else (1, 0.1, None)
        horizon, p, n_first = self.horizon or horizon, self.p or p, self.n_first or n_first
        return replace(self, horizon=horizon, p=p, n_first=n_first)


def bapi_lines(decisions: Mapping[str, Any], score: ScoreText) -> Iterator[str]:
    """Yield `Bapi.decisions` as lines of text."""
    if not decisions.get("configurations", 0) + decisions.get("at_once", 0):
        return
    n, t_max = decisions["configurations"], decisions["t_max"]
    trained, spared = decisions["epochs"], decisions["spared"]
    yield (
        f"{counted(n, 'configuration')} trained for {trained:,} of {n * t_max:,} epochs in all"
        + (f"; {spared:,} epochs saved by ending early" if spared else "")
    )
    if decisions["at_once"]:
        yield f"  {decisions['at_once']} more fitted in one go (models without epochs)"
    ends = decisions["ends"]
    if outcomes := [f"{ends[end]} {words}" for end, words in ENDS.items() if ends.get(end)]:
        yield f"  {', '.join(outcomes)}"
    if least := decisions.get("least"):
        yield (
            f"  trial {least['trial']} has the best single epoch, {score(least['loss'])}, but "
            "the best trial is chosen by the mean over neighboring epochs"
        )
    if decisions["thawed"]:
        yield f"  {counted(decisions['thawed'], 'training')} resumed after trials of others"


ENDS = {
    "full": "trained to the end",
    "finished": "ended when no further improvement was expected",
    "stopped": "stopped as unlikely to become the best",
    "diverged": "diverged",
    "left": "left unfinished",
    "failed": "failed",
}


BAPI = Method(
    name="bapi",
    purpose="plans the budget over learning curves, and stops training runs that are unlikely to "
    "become the best; for models whose epochs take a second or more",
    implementation="prefect_tune.optimizers.methods.bapi.bapi:Bapi",
    options=BapiOptions,
    honors_constraints=True,
    fidelities=frozenset({"epochs"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=bapi_lines,
)
