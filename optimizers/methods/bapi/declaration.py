"""Declaration of `--method bapi`: its options, its variants, and the lines of its decisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from prefect_tune.optimizers.method import Method, MethodOptions, counted
from prefect_tune.optimizers.options import option


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


def decision_lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    """Yield `Bapi.decisions` as lines of text."""
    n, t_max = decisions["configurations"], decisions["t_max"]
    if not n + decisions["at_once"]:
        return
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
    render_decisions=lambda decisions: list(decision_lines(decisions)),
)
