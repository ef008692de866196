"""Declaration of `--method bapi`: its options, its variants, and the lines of its decisions."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, MethodOptions, counted
from prefect_tune.optimizers.options import option

Variant = Literal["default", "paper"]
Start = Literal["halving", "random"]
Choice = Literal["cool", "per_cost"]
Sites = Literal["falling", "all"]


@dataclass(frozen=True)
class BapiOptions(MethodOptions):
    """Options of `--method bapi`; the variant decides those that are not given."""

    variant: Variant = option("`default`, or `paper` for the published method.", default="default")
    horizon: int | None = option(
        "Most configurations planned ahead (4); 1 considers the next one alone.", at_least=1
    )
    p: float | None = option(
        "Share of a full training between two checks of a training (0.1; paper 0.2).",
        more_than=0,
        at_most=1,
    )
    tau: float | None = option(
        "Largest deviation predicted at the end of a training, as a multiple of the present one, "
        "at which the training may be stopped (2).",
        at_least=0,
    )
    sure: float | None = option(
        "Deviations by which a training's predicted end must trail the best for the training "
        "to be stopped too (3; paper never).",
        at_least=0,
    )
    epsilon: float | None = option(
        "Loss that may be added by ending before the full training (0.003 of the metric's "
        "range; paper 0.01; for a metric without a range, 0.02 of the spread seen).",
        at_least=0,
    )
    n_first: int | None = option(
        "Configurations of the start (3 to 27, depending on the budget; paper 5).", at_least=1
    )
    early_stopping: bool | None = option(
        "Whether a training that is not predicted to beat the best ends early (true)."
    )


@dataclass(frozen=True)
class Settings:
    """All settings of a run: the options of `BapiOptions`, and settings fixed by the variant.

    Attributes:
        looks_early: Whether a new training is also checked after 1/25 of a full one, before `p`.
        epsilon_share: Tolerance as a share of the metric's range, if `epsilon` is not given.
        choice: Picks: by improvement per cost, or by a compromise with improvement alone (cool).
        n_points: Points of each curve to learn from.
        sites: Places where curves are constrained to rise: both ends of open curves (all), places
            where the model would fall (falling), or none (None).
        has_tail: Whether steep beginnings are kept from implying flat ends.
        score: Scale of the loss model: losses, or the likelier of losses and logarithms (auto).
        steady: Whether the answer has the least mean loss over neighbouring epochs.
    """

    horizon: int = 4
    p: float = 0.1
    looks_early: bool = True
    tau: float = 2.0
    sure: float = 3.0
    epsilon: float | None = None
    epsilon_share: float = 0.003
    start: Start = "halving"
    n_first: int | None = None
    choice: Choice = "cool"
    n_points: int = 3
    sites: Sites | None = "falling"
    has_tail: bool = True
    within: Literal["matern", "rbf"] = "matern"
    cost: Literal["log_rate", "linear"] = "log_rate"
    score: Literal["auto", "raw"] = "auto"
    early_stopping: bool = True
    steady: bool = True

    @classmethod
    def of(cls, options: BapiOptions) -> Self:
        """Return the settings of the options' variant, overridden by the options given."""
        given = {k: v for k, v in asdict(options).items() if v is not None and k != "variant"}
        return replace(cls(), **{**_VARIANTS[options.variant], **given})


_VARIANTS: dict[Variant, dict[str, Any]] = {
    "default": {},
    "paper": {
        "p": 0.2,
        "epsilon_share": 0.01,
        "looks_early": False,
        "sure": inf,
        "start": "random",
        "n_first": 5,
        "choice": "per_cost",
        "sites": "all",
        "has_tail": False,
        "within": "rbf",
        "cost": "linear",
        "score": "raw",
        "steady": False,
    },
}


def training_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return `Bapi.decisions` as lines of text."""
    known = decisions.get("configurations", 0) + decisions.get("at_once", 0)
    return list(_lines(decisions)) if known else []


def _lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    n, t_max = decisions["configurations"], decisions["t_max"]
    trained, spared = decisions["epochs"], decisions["spared"]
    yield (
        f"{counted(n, 'configuration')} trained for {trained:,} of {n * t_max:,} epochs in all"
        + (f"; {spared:,} spared by ending early" if spared else "")
    )
    if decisions["at_once"]:
        yield f"  {decisions['at_once']} others fitted at once, as their models have no epochs"
    ends = decisions["ends"]
    outcomes = [f"{ends[end]} {words}" for end, words in _ENDS.items() if ends.get(end)]
    if outcomes:
        yield f"  {', '.join(outcomes)}"
    if "least" in decisions:
        least = decisions["least"]
        yield (
            f"  trial {least['trial']} has the least loss at one epoch, {least['loss']:.4g}; the "
            "answer has the least mean over neighbouring epochs"
        )
    if decisions["thawed"]:
        yield f"  {counted(decisions['thawed'], 'training')} resumed after others were tried"


_ENDS = {
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
    render_decisions=training_lines,
)
