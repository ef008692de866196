"""How a study went: its trials in the order in which they ended, and what led meanwhile."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Lead:
    """The moment at which a trial took the lead.

    Attributes:
        seconds: Of the study, when it was told.
        told: How many trials had ended then, itself included; one that ran again counts where it
            ended last.
        trial: Its number.
        loss: Its loss.
        fidelity: Of what that is, where not of all; empty otherwise. Only losses of the same can be
            compared.
    """

    seconds: float
    told: int
    trial: int
    loss: float | None
    fidelity: str = ""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Trials that have ended, a column each, in the order in which they ended.

    Attributes:
        number: Their numbers.
        seconds: Of the study, when each ended.
        loss: Their losses; None for those that failed.
        cost_seconds: How long each took.
        state: Where each stands.
        fidelity: Of what each is, where not of all; empty otherwise.
        phase: The phase of the method in which each was asked for; empty where not known.
        leads: Who led from when on.
    """

    number: Sequence[int] = ()
    seconds: Sequence[float] = ()
    loss: Sequence[float | None] = ()
    cost_seconds: Sequence[float] = ()
    state: Sequence[str] = ()
    fidelity: Sequence[str] = ()
    phase: Sequence[str] = ()
    leads: Sequence[Lead] = ()


@dataclass(frozen=True, slots=True)
class _Ended:
    """A trial that has ended, as far as it is shown."""

    loss: float | None
    cost_seconds: float
    state: str
    fidelity: str


class ProgressPass:
    """Takes trials by number, and puts them in the order in which they were told.

    Args:
        plan: Of the study.
    """

    def __init__(self, plan: StudyPlan) -> None:
        self._plan = plan
        self._trials: dict[int, _Ended] = {}

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if not trial.state.is_told:
            return
        self._trials[trial.number] = _Ended(
            None if trial.state == TrialState.FAILED else trial.loss,
            trial.cost_seconds,
            str(trial.state),
            fidelity_text(
                trial.document["query"], self._plan.options.folds, self._plan.options.epochs
            ),
        )

    def found(self, ledger: Ledger, study: str) -> SearchProgress:
        """Return the trials in the order of the events that told them."""
        told = ledger.event_values(
            study, Told.kind, ("number",), ("elapsed_seconds",), ("incumbent",)
        )
        times = _rising(seconds for _, seconds, _ in told)
        numbers = [number for number, _, _ in told]
        last = {number: position for position, number in enumerate(numbers)}
        in_order = sorted(last.keys() & self._trials, key=last.__getitem__)
        led = [lead for _, _, lead in told]
        ends = [last[number] for number in in_order]
        n_ended = [bisect_right(ends, position) for position in range(len(told))]
        leads = self._leads(times, n_ended, led)
        seconds = [times[last[number]] for number in in_order]
        asked = ledger.event_values(study, Asked.kind, ("number",), ("reason", "phase"))
        phases = {number: phase for number, phase in asked if phase}
        return self._columns(in_order, seconds, leads, phases)

    def _columns(
        self,
        numbers: Sequence[int],
        seconds: Sequence[float],
        leads: Sequence[Lead],
        phases: Mapping[int, str],
    ) -> SearchProgress:
        ended = [self._trials[number] for number in numbers]
        return SearchProgress(
            numbers,
            seconds,
            [trial.loss for trial in ended],
            [trial.cost_seconds for trial in ended],
            [trial.state for trial in ended],
            [trial.fidelity for trial in ended],
            [phases.get(number, "") for number in numbers],
            leads,
        )

    def _leads(
        self, times: Sequence[float], n_ended: Sequence[int], incumbents: Sequence[int | None]
    ) -> list[Lead]:
        leads: list[Lead] = []
        for seconds, n, number in zip(times, n_ended, incumbents, strict=True):
            known = None if number is None else self._trials.get(number)
            if number is not None and (not leads or number != leads[-1].trial):
                loss, fidelity = (known.loss, known.fidelity) if known else (None, "")
                leads.append(Lead(seconds, max(n, 1), number, loss, fidelity))
        return leads


def _rising(times: Iterable[float]) -> list[float]:
    """Return times of which none is before the one ahead: a killed session forgets some seconds."""
    rising: list[float] = []
    for time in times:
        rising.append(max(time, rising[-1]) if rising else time)
    return rising
