"""Options of BAPI, and what each variant of it sets them to."""

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal, Self

from prefect_tune.optimizers.options import check_options

__all__ = ["BapiOptions", "Settings"]

Variant = Literal["default", "paper", "ei", "binoculars", "ms_ei"]
Start = Literal["halving", "random"]
Choice = Literal["cool", "per_cost", "ei", "first"]


@dataclass(frozen=True)
class BapiOptions:
    """Options of `--method bapi`; those that are not given are as the variant has them.

    Attributes:
        variant: default; paper for the published method; or, with trainings to the end alone, a
            neighbour that it is compared with: ei (expected improvement), binoculars (the best of a
            batch of fixed size) or ms_ei (two steps looked ahead).
        horizon: Most configurations planned ahead (4); 1 looks at the next one alone.
        p: Share of a full training after which a training is looked at (0.1; paper 0.2).
        looks_early: Whether a new training is looked at after a 25th of a full one, before p (yes;
            paper no).
        tau: Training is stopped only where the deviation at its end is at most so many times that
            of now (2).
        sure: It is stopped too where its end is predicted to be so many deviations behind the best
            (3; paper never).
        epsilon: Loss that may be lost by ending before the full training (0.003 of the metric's
            range; paper 0.01; of a metric without one, 0.02 of the spread seen).
        start: Whether the first configurations begin by successive halving, or are random ones
            of which the best is trained to the end (halving; paper random).
        n_first: Configurations of the start (3 to 27 by the budget; paper 5).
        choice: By which of the planned ones the next is taken: improvement per cost (per_cost),
            regardless of cost (ei), in between by the budget spent (cool), or the first (cool;
            paper per_cost).
        n_points: Epochs of a curve that are learned from (3); 1 for the last alone (BAPI-L).
        monotone: Whether the model knows that curves rise (yes); without it, BAPI-NM.
        sites: Where it knows that: at both ends of each curve under way (all), or only where the
            model would fall otherwise (falling), so that flat curves stay flat (falling; paper
            all).
        of_time: Covariance of the time trained: decay, or rbf (decay).
        has_tail: Whether what decays is kept from ending early, as steep beginnings suggest (yes;
            paper no).
        within: Covariance of configurations: matern, or rbf (matern; paper rbf).
        cost: Whether seconds are learned as logarithms (log_rate), or with the paper's linear
            kernel (log_rate; paper linear).
        score: Whether losses are learned as logarithms (log), as they are (raw), or as the one of
            these under which they are likelier (auto; paper raw).
        early_stopping: Whether a training ends early that is not predicted to beat the best (yes).
        steady: Whether the answer is the configuration of the least mean loss over neighbouring
            epochs; else that of the least loss at any (yes; paper no).
    """

    variant: Variant = "default"
    horizon: int | None = None
    p: float | None = None
    looks_early: bool | None = None
    tau: float | None = None
    sure: float | None = None
    epsilon: float | None = None
    start: Start | None = None
    n_first: int | None = None
    choice: Choice | None = None
    n_points: int | None = None
    monotone: bool | None = None
    sites: Literal["falling", "all"] | None = None
    of_time: Literal["decay", "rbf"] | None = None
    has_tail: bool | None = None
    within: Literal["matern", "rbf"] | None = None
    cost: Literal["log_rate", "linear"] | None = None
    score: Literal["auto", "log", "raw"] | None = None
    early_stopping: bool | None = None
    steady: bool | None = None

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("horizon", "n_first", "n_points"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1; got {value}")
        if self.p is not None and not 0 < self.p <= 1:
            raise ValueError(f"p must be in (0, 1], a share of a full training; got {self.p}")
        for name in ("tau", "sure", "epsilon"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be >= 0; got {value}")
        for name in _WITHOUT_EFFECT.get(self.variant, ()):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} has no effect in variant {self.variant}, which trains every model to "
                    f"the end; got {getattr(self, name)}"
                )


_OF_STRETCHES = ("p", "looks_early", "tau", "sure", "early_stopping", "start")
_WITHOUT_EFFECT: dict[Variant, tuple[str, ...]] = {
    "ei": (*_OF_STRETCHES, "horizon", "choice"),
    "binoculars": _OF_STRETCHES,
    "ms_ei": (*_OF_STRETCHES, "horizon", "choice"),
}


@dataclass(frozen=True)
class Settings:
    """All settings of a run, none of them open but those that the study decides.

    Attributes are those of `BapiOptions`, and these:

    Attributes:
        epsilon_share: Of the range of a metric that has one, epsilon where none is given.
        trains_in_full: Whether trainings run to the end, and nothing is stopped.
        looks_ahead: Whether the next configuration is valued by what it lets the one after gain.
        is_bounded: Whether the horizon ends where the budget does.
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
    monotone: bool = True
    sites: Literal["falling", "all"] = "falling"
    of_time: Literal["decay", "rbf"] = "decay"
    has_tail: bool = True
    within: Literal["matern", "rbf"] = "matern"
    cost: Literal["log_rate", "linear"] = "log_rate"
    score: Literal["auto", "log", "raw"] = "auto"
    early_stopping: bool = True
    steady: bool = True
    trains_in_full: bool = False
    looks_ahead: bool = False
    is_bounded: bool = True

    @classmethod
    def of(cls, options: BapiOptions) -> Self:
        """Return the settings of a variant with the options that were given."""
        given = {k: v for k, v in asdict(options).items() if v is not None and k != "variant"}
        settings: Self = replace(cls(), **{**_VARIANTS[options.variant], **given})
        return settings


_IN_FULL: dict[str, Any] = {
    "trains_in_full": True,
    "start": "random",
    "n_first": 6,
    "n_points": 1,
    "monotone": False,
    "early_stopping": False,
    "steady": False,
}
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
    "ei": {**_IN_FULL, "horizon": 1, "choice": "first"},
    "binoculars": {**_IN_FULL, "horizon": 4, "choice": "ei", "is_bounded": False},
    "ms_ei": {**_IN_FULL, "horizon": 1, "choice": "first", "looks_ahead": True},
}
