"""Loss over time and over trials: finished trials, and the incumbents."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.deployments.report.plots import (
    MOST_POINTS,
    Trace,
    axis,
    downsampled,
    figure,
    numbers,
    points,
    scatter,
    visible_losses,
)
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, bracketed, counted, format_seconds
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.ledger import Ledger

_MOST_LEADS = 300
_PARTIAL = "Partial losses (first folds, fewer rows or epochs) are not comparable with full ones."
_CLOUDS = (
    (TrialState.STOPPED, "partial", "var(--c4)", "circle-open"),
    (TrialState.COMPLETE, "full", "var(--c0)", "circle"),
)


@dataclass(frozen=True, slots=True)
class Lead:
    """A trial that took the lead; `seconds` is the study time at which its loss was reported.

    `told` is the number of trials finished by then; a rerun trial counts at its last end.
    `fidelity` is empty if full; losses of different fidelities are not comparable.
    """

    seconds: float
    told: int
    trial: int
    loss: float | None
    fidelity: str = ""

    @property
    def suffix(self) -> str:
        """The fidelity in brackets; empty if full."""
        return bracketed(self.fidelity)


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Finished trials in order, one column per attribute, and the incumbents (`leads`).

    `seconds` is the study time at the end. `fidelity` is empty if full, and `phase` if unknown.
    """

    number: Sequence[int] = ()
    seconds: Sequence[float] = ()
    loss: Sequence[float | None] = ()
    cost_seconds: Sequence[float] = ()
    state: Sequence[str] = ()
    fidelity: Sequence[str] = ()
    phase: Sequence[str] = ()
    leads: Sequence[Lead] = ()


class ProgressPass:
    """Collector that takes trials by number and returns them in the order of their ends."""

    def __init__(self, plan: StudyPlan) -> None:
        self._plan = plan
        self._ended: dict[int, tuple[float | None, float, str, str]] = {}

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if trial.state.is_told:
            loss = None if trial.state == TrialState.FAILED else trial.loss
            fidelity = trial.fidelity(self._plan)
            self._ended[trial.number] = loss, trial.cost_seconds, str(trial.state), fidelity

    def found(self, ledger: Ledger, study: str) -> SearchProgress:
        """Return the trials in the order in which they were reported."""
        told = ledger.event_values(
            study, Told.kind, ("number",), ("elapsed_seconds",), ("incumbent",)
        )
        # A killed session loses some seconds; times must not decrease.
        times = list(accumulate((seconds for _, seconds, _ in told), max))
        last = {number: position for position, (number, _, _) in enumerate(told)}
        numbers = sorted(last.keys() & self._ended, key=last.__getitem__)
        ends = [last[number] for number in numbers]
        leads: list[Lead] = []
        for position, (_, _, lead) in enumerate(told):
            if lead is not None and (not leads or lead != leads[-1].trial):
                loss, *_, fidelity = self._ended.get(lead, (None, 0.0, "", ""))
                n = max(bisect_right(ends, position), 1)
                leads.append(Lead(times[position], n, lead, loss, fidelity))
        asked = ledger.event_values(study, Asked.kind, ("number",), ("reason", "phase"))
        phases = {number: phase for number, phase in asked if phase}
        ended = [self._ended[number] for number in numbers]
        losses, costs, states, fidelities = zip(*ended, strict=True) if ended else ((),) * 4
        seconds = [times[end] for end in ends]
        of = [phases.get(number, "") for number in numbers]
        return SearchProgress(numbers, seconds, losses, costs, states, fidelities, of, leads)


def progress_section(progress: SearchProgress, summary: StudyView) -> Iterator[Section]:
    """Yield the section, if any trial has a loss."""
    if any(loss is not None for loss in progress.loss):
        words, leads = LossWords(summary.metric), progress.leads
        figures = [_figure(progress, summary, words, is_time=is_time) for is_time in (True, False)]
        parts: list[Part] = [*figures, _table(leads, words)]
        yield Section("progress", "Loss over time", _finding(leads, words), parts)


def _finding(leads: Sequence[Lead], words: LossWords) -> str:
    if not leads:
        return "No incumbent yet: no full trial meets all constraints."
    last = leads[-1]
    text = f"Trial {last.trial} has led since {format_seconds(last.seconds)}"
    text = f"{text} with {words.of(last.loss)}{last.suffix}"
    if len(leads) == 1:
        return f"{text}."
    text = f"{text}; {counted(len(leads) - 1, 'improvement')}"
    alike = [lead for lead in leads if lead.fidelity == last.fidelity]
    if len(alike) == len(leads):
        return f"{text}, starting at {words.of(leads[0].loss)}."
    if len(alike) == 1:
        return f"{text}, the earlier ones at other fidelities."
    of = last.fidelity or "full evaluations"
    return f"{text}; among {of}, starting at {words.of(alike[0].loss)}."


def _figure(
    progress: SearchProgress, summary: StudyView, words: LossWords, *, is_time: bool
) -> Figure:
    chance = summary.chance_loss
    tests = summary.test_loss, summary.single_best_test_loss
    x = progress.seconds if is_time else list(range(1, len(progress.number) + 1))
    leads = progress.leads
    if leads:  # all or an even sample of them, and the last
        leads = [*leads[: -1 : -(-len(leads) // _MOST_LEADS)], leads[-1]]
    clouds = list(_clouds(progress, x, {lead.trial for lead in leads}, words))
    traces = [*clouds, *_led(leads, x[-1], words, is_time=is_time), *_tested(*tests, x[-1], words)]
    low, high = visible_losses(progress.loss)
    known = [loss for loss in tests if loss is not None]
    margin = 0.04 * (high - low)
    low = min([low, *(loss - margin for loss in known)])
    high = max([high, *(loss + margin for loss in known)])
    name, title = ("time", "Over time") if is_time else ("trials", "Over evaluations")
    n_shown = sum(len(cloud["x"]) for cloud in clouds)
    n_all = sum(state != TrialState.FAILED for state in progress.state)
    notes = [f"{n_shown:,} of {n_all:,} evaluations are shown."] if n_shown < n_all else []
    notes += [_PARTIAL] if TrialState.STOPPED in progress.state else []
    shapes = [_guessing(chance)] if chance is not None and chance <= high else []
    across = axis("seconds" if is_time else "evaluations", rangemode="tozero")
    up, note = axis(words.axis, range=numbers([low, high])), " ".join(notes)
    return figure(
        f"progress-{name}", title, traces, across, up, note=note, is_half=True, shapes=shapes
    )


def _clouds(
    progress: SearchProgress, x: Sequence[float], leads: set[int], words: LossWords
) -> Iterator[Trace]:
    clouds = [of for of in _CLOUDS if of[0] in progress.state]
    for which, name, paint, symbol in clouds:
        cloud = [i for i, state in enumerate(progress.state) if state == which]
        keep = {k for k, i in enumerate(cloud) if progress.number[i] in leads}
        losses = [progress.loss[i] for i in cloud]
        shown = [cloud[k] for k in downsampled(losses, keep, MOST_POINTS // len(clouds))]
        if shown:
            xs, ys = [x[i] for i in shown], [progress.loss[i] for i in shown]
            labels = [_label(progress, i, words) for i in shown]
            yield points(name, xs, ys, paint, symbol=symbol, labels=labels)


def _led(leads: Sequence[Lead], end: float, words: LossWords, *, is_time: bool) -> Iterator[Trace]:
    """Yield the line of the incumbents, with gaps where losses are not comparable."""
    if not leads:
        return
    steps: list[tuple[float, float | None, str]] = []
    for former, lead in zip((None, *leads), leads, strict=False):
        x = lead.seconds if is_time else lead.told
        if former is not None and former.fidelity != lead.fidelity:
            steps += [(x, former.loss, f"trial {former.trial} until here"), (x, None, "")]
        text = f"trial {lead.trial}{lead.suffix}: {words.of(lead.loss)}, leads from here"
        steps.append((x, lead.loss, text))
    steps.append((end, leads[-1].loss, f"trial {leads[-1].trial} at the end"))
    xs, ys, labels = zip(*steps, strict=True)
    line = {"color": "var(--c3)", "width": 2.5, "shape": "hv"}
    yield scatter("best so far", xs, ys, {"line": line}, labels, mode="lines")


def _tested(
    loss: float | None, alone: float | None, end: float, words: LossWords
) -> Iterator[Trace]:
    if loss is None:
        return
    if alone not in {None, loss}:
        label = f"the best trial on the test rows: {words.of(alone)}"
        star = {"color": "var(--c5)", "symbol": "star-open", "size": 14}
        yield scatter("test, best trial", [end], [alone], {"marker": star}, [label])
    label = f"final model on the test rows: {words.of(loss)}"
    star = {"color": "var(--c5)", "symbol": "star", "size": 15, "opacity": 1}
    yield scatter("test, final model", [end], [loss], {"marker": star}, [label])


def _guessing(chance: float) -> Trace:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": chance, "y1": chance,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1.5},
        "label": {"text": "guessing", "textposition": "end", "yanchor": "bottom",
                  "font": {"color": "var(--muted)", "size": 12}},
    }  # fmt: skip


def _label(progress: SearchProgress, i: int, words: LossWords) -> str:
    phase = f"; {progress.phase[i]}" if progress.phase[i] else ""
    cost = format_seconds(progress.cost_seconds[i])
    whose = f"trial {progress.number[i]}{bracketed(progress.fidelity[i])}"
    return f"{whose}: {words.of(progress.loss[i])} in {cost}{phase}"


def _table(leads: Sequence[Lead], words: LossWords) -> Table:
    is_partial = any(lead.fidelity for lead in leads)
    rows = [
        [
            str(lead.trial),
            format_seconds(lead.seconds),
            f"{lead.told:,}",
            *([lead.fidelity or "full"] if is_partial else []),
            words.of(lead.loss),
            _gain(former, lead),
        ]
        for former, lead in zip((None, *leads), leads, strict=False)
    ]
    of = ["fidelity"] if is_partial else []
    columns = ["#trial", "#since", "#evaluations", *of, f"#{words.name}", "#change"]
    return Table("Incumbents", columns, rows)


def _gain(former: Lead | None, lead: Lead) -> str:
    """Return the change of the loss; empty if the losses are not comparable."""
    if former is None or former.fidelity != lead.fidelity or former.loss is None:
        return ""
    return "" if lead.loss is None else f"{lead.loss - former.loss:+.3g}"
