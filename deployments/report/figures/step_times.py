"""Time by step: steps made, served by the cache, and evicted since."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import axis, bar, figure
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.text import counted, format_bytes, format_seconds
from prefect_tune.storage.cache.index import ArtifactIndex


@dataclass(slots=True)
class StepTime:
    """The cost of one step over all trials and folds: how often it was `made` or `served`.

    `kept`, `evicted` and `refused` (never cached) count artifacts last made by this study.
    """

    step: str
    made: int = 0
    made_seconds: float = 0.0
    served: int = 0
    load_seconds: float = 0.0
    saved_seconds: float = 0.0
    kept: int = 0
    kept_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    refused: int = 0


class StepTimesPass:
    """Collector that sums the steps of trials, including finished steps of failed trials."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._steps: dict[str, StepTime] = {}

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        self._order = self._order or list(trial.configuration)
        before = 0
        for cost in trial.all_steps:
            name = str(cost["step"])
            if name not in self._order:
                # A fixed step is in no configuration; insert it after the previous step.
                self._order.insert(before, name)
            before = self._order.index(name) + 1
            step = self._steps.setdefault(name, StepTime(name))
            step.load_seconds += cost["load_seconds"]
            if cost["hit"]:
                step.served += 1
                step.saved_seconds += cost["seconds"] - cost["load_seconds"]
            else:
                step.made += 1
                step.made_seconds += cost["seconds"]

    def found(self, index: ArtifactIndex, study: str) -> list[StepTime]:
        """Return the steps in their order, with their artifacts in the index."""
        for name, whereabouts, n, size_bytes in index.made_by(study):
            if (step := self._steps.get(name)) is None:
                continue
            if whereabouts == "present":
                step.kept, step.kept_bytes = n, size_bytes
            elif whereabouts == "evicted":
                step.evicted, step.evicted_bytes = n, size_bytes
            else:
                step.refused = n
        return [self._steps[name] for name in self._order if name in self._steps]


def step_times_section(steps: Sequence[StepTime], summary: StudyView) -> Iterator[Section]:
    """Yield the section, if any step ran."""
    if steps:
        finding = _finding(steps, summary.seconds.asking)
        yield Section("time", "Time by step", finding, [_figure(steps), _table(steps)])


def _finding(steps: Sequence[StepTime], asking_seconds: float) -> str:
    made = sum(step.made_seconds for step in steps)
    longest = max(steps, key=lambda step: step.made_seconds)
    share = 100 * longest.made_seconds / made if made else 0.0
    saved = sum(step.saved_seconds for step in steps)
    text = (
        f"{longest.step} took {share:.0f} % of the {format_seconds(made)} spent on steps; the "
        f"cache saved {format_seconds(max(saved, 0))}, and choosing configurations took "
        f"{format_seconds(asking_seconds)}"
    )
    if n_evicted := sum(step.evicted for step in steps):
        gone = sum(step.evicted_bytes for step in steps)
        text += f"; {counted(n_evicted, 'artifact')} ({format_bytes(gone)}) evicted since"
    if n_refused := sum(step.refused for step in steps):
        text += f"; no room for {counted(n_refused, 'artifact')}"
    return f"{text[0].upper()}{text[1:]}."


def _saved(step: StepTime) -> str:
    return format_seconds(max(step.saved_seconds, 0))


def _figure(steps: Sequence[StepTime]) -> Figure:
    labels = [step.step for step in steps]
    made = [f"{s.step}: made {s.made:,} times in {format_seconds(s.made_seconds)}" for s in steps]
    served = [f"{s.step}: served {s.served:,} times, {_saved(s)} saved" for s in steps]
    saved = [max(s.saved_seconds, 0) for s in steps]
    traces = [
        bar("made", labels, [s.made_seconds for s in steps], "var(--c0)", hover=made),
        bar("saved by the cache", labels, saved, "var(--c2)", hover=served),
    ]
    x, height = axis("seconds, all trials together"), 120 + 32 * len(steps)
    return figure("time-steps", "Seconds by step", traces, x, height=height, barmode="stack")


def _table(steps: Sequence[StepTime]) -> Table:
    return Table.of(
        "Steps of all folds of all trials",
        steps,
        {
            "step": lambda s: s.step,
            "#made": lambda s: f"{s.made:,}",
            "#in": lambda s: format_seconds(s.made_seconds),
            "#served": lambda s: f"{s.served:,}",
            "#saved": _saved,
            "#reading": lambda s: format_seconds(s.load_seconds),
            "#in the cache": lambda s: f"{s.kept:,} ({format_bytes(s.kept_bytes)})",
            "#evicted": lambda s: f"{s.evicted:,} ({format_bytes(s.evicted_bytes)})",
            "#refused": lambda s: f"{s.refused:,}",
        },
    )
