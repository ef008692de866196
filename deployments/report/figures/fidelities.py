"""Partial evaluations: their number by fidelity, and the learning curves of trainings in epochs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prefect_tune.deployments.report.figures.progress import SearchProgress
from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import (
    axis,
    bar,
    colour,
    downsampled,
    figure,
    numbers,
    plain,
    scatter,
    texts,
    visible_losses,
)
from prefect_tune.deployments.report.wording import listed_trials
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted, format_seconds
from prefect_tune.optimizers.trials.outcome import TrialState

_MOST_CURVES = 120
_MOST_EPOCHS = 100
"""Points per curve in the figure, in addition to its stops."""


@dataclass(slots=True)
class Level:
    """Evaluations of one fidelity: `ended` have a loss, `failed` have none; `seconds` is their sum.

    `text` is empty for full ones; `share` is the product of the shares of rows, folds and epochs.
    """

    text: str
    share: float
    ended: int = 0
    failed: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The fidelity as text."""
        return self.text or "full"

    @property
    def n(self) -> int:
        """Number of evaluations."""
        return self.ended + self.failed


@dataclass(slots=True)
class TrainingCurve:
    """The loss of one configuration after each epoch, with its partial trainings joined.

    `trial` is the last of its `trials`, `stops` are the epochs at which training stopped (even if
    resumed), `losses` begin with epoch 1, and `model` is the algorithm of the last step.
    """

    trial: int
    trials: list[int]
    stops: list[int]
    losses: Sequence[float]
    is_complete: bool
    model: str

    @property
    def least(self) -> float:
        """The lowest loss."""
        return min(self.losses)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the lowest loss."""
        return list(self.losses).index(self.least) + 1


@dataclass(frozen=True, slots=True)
class Fidelities:
    """Levels by share (full last), and the best and some other learning curves."""

    levels: Sequence[Level] = ()
    n_curves: int = 0
    curves: Sequence[TrainingCurve] = ()


@dataclass(slots=True)
class FidelitiesPass:
    """Collector that joins the curves of each configuration."""

    plan: StudyPlan
    _levels: dict[str, Level] = field(default_factory=dict)
    _curves: dict[bytes, TrainingCurve] = field(default_factory=dict)

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if not trial.state.is_told:
            return
        text = trial.fidelity(self.plan)
        level = self._levels.setdefault(text, Level(text, self._share(trial)))
        level.seconds += trial.cost_seconds
        if trial.state == TrialState.FAILED:
            level.failed += 1
            return
        level.ended += 1
        if trial.curve:
            self._join(trial, trial.curve)

    def found(self) -> Fidelities:
        """Return the levels, and as many curves as a reader can distinguish."""
        ordered = sorted(self._curves.values(), key=lambda curve: curve.least)
        best, others = ordered[: _MOST_CURVES // 2], ordered[_MOST_CURVES // 2 :]
        stride = max(1, -(-len(others) // (_MOST_CURVES // 2)))
        shown = sorted([*best, *others[::stride]], key=lambda curve: curve.trials[0])
        for curve in shown:
            curve.stops = sorted(set(curve.stops))
            curve.losses = [float(f"{loss:.6g}") for loss in curve.losses]
        levels = sorted(self._levels.values(), key=lambda level: level.share)
        return Fidelities(levels, len(ordered), shown)

    def _share(self, trial: TrialView) -> float:
        share, options = trial.subset, self.plan.options
        for n, whole in ((trial.folds, options.folds), (trial.epochs, options.epochs)):
            if n is not None:
                share *= n / max(whole or n, 1)
        return share

    def _join(self, trial: TrialView, losses: Sequence[float]) -> None:
        new = TrainingCurve(trial.number, [], [], losses, False, trial.path[-1])
        curve = self._curves.setdefault(trial.configuration_text, new)
        curve.trial = trial.number
        curve.trials.append(trial.number)
        if len(losses) >= len(curve.losses):
            curve.losses = losses
        if trial.state == TrialState.COMPLETE:
            curve.is_complete = True
        else:
            curve.stops.append(len(losses))


def fidelities_section(
    found: Fidelities, progress: SearchProgress, summary: StudyView
) -> Iterator[Section]:
    """Yield the section, if trials were partial or trained in epochs."""
    words, parts = LossWords(summary.metric), list[Figure | Table]()
    if any(level.text for level in found.levels):
        levels = found.levels
        parts += [_levels(levels), _levels_table(levels, progress), _over_time(levels, progress)]
    if found.curves:
        parts += [_curves(found, words), _curves_table(found, words)]
    if parts:
        yield Section("fidelities", "Partial evaluations", _finding(found), parts)


def _finding(found: Fidelities) -> str:
    partial = [level for level in found.levels if level.text]
    of = counted(sum(level.n for level in found.levels), "evaluation")
    seconds = sum(level.seconds for level in found.levels)
    share = 100 * sum(level.seconds for level in partial) / seconds if seconds else 0
    n_partial = sum(level.n for level in partial)
    text = f"{n_partial:,} of {of} were partial and took {share:.0f} % of the evaluation time"
    if found.n_curves:
        text += f"; {counted(found.n_curves, 'configuration')} trained in epochs"
        if resumed := sum(len(curve.trials) > 1 for curve in found.curves):
            among = "" if found.n_curves == len(found.curves) else " of those shown"
            text += f", {resumed:,}{among} resumed after a stop"
    return f"{text}."


def _levels(levels: Sequence[Level]) -> Figure:
    labels = [level.name for level in levels]
    hover = [
        f"{level.name}: {counted(level.ended, 'evaluation')}, {level.failed} failed, "
        f"{format_seconds(level.seconds)}"
        for level in levels
    ]
    traces = [
        bar("with a loss", labels, [level.ended for level in levels], "var(--c0)", hover=hover),
        bar("failed", labels, [level.failed for level in levels], "var(--c3)", hover=hover),
    ]
    most = max(levels, key=lambda level: level.n)
    seen = f"The most frequent fidelity: {most.name}, {counted(most.n, 'evaluation')}."
    title, x, height = "Evaluations by fidelity", axis("evaluations"), 120 + 28 * len(levels)
    return figure("levels", title, traces, x, height=height, caption=seen, barmode="stack")


def _levels_table(levels: Sequence[Level], progress: SearchProgress) -> Table:
    def end(level: Level, position: int) -> str:
        ends = zip(progress.fidelity, progress.seconds, strict=True)
        return format_seconds([s for fidelity, s in ends if fidelity == level.text][position])

    return Table.of(
        "Fidelities",
        levels,
        {
            "fidelity": lambda level: level.name,
            "#with a loss": lambda level: f"{level.ended:,}",
            "#failed": lambda level: f"{level.failed:,}",
            "#took": lambda level: format_seconds(level.seconds),
            "#first after": lambda level: end(level, 0),
            "#last after": lambda level: end(level, -1),
        },
    )


def _over_time(levels: Sequence[Level], progress: SearchProgress) -> Figure:
    place = {level.text: k for k, level in enumerate(levels)}
    shown = downsampled([float(place[text]) for text in progress.fidelity])
    labels = [f"trial {progress.number[i]}" for i in shown]
    marker = {"color": "var(--c0)", "size": 7, "symbol": "line-ns-open"}
    seconds = [progress.seconds[i] for i in shown]
    trace = scatter("evaluations", seconds, [], {"marker": marker}, labels)
    trace["y"] = texts(progress.fidelity[i] or "full" for i in shown)
    x, height = axis("seconds", rangemode="tozero"), 130 + 28 * len(levels)
    categories = texts(level.name for level in levels)
    y = axis("", type="category", categoryorder="array", categoryarray=categories)
    seen = "No full evaluation has finished yet."
    if "" in place:
        first = progress.seconds[list(progress.fidelity).index("")]
        seen = f"The first full evaluation finished after {format_seconds(first)}."
    title = "Fidelity over time"
    return figure("levels-time", title, [trace], x, y, height=height, caption=seen)


def _curves(found: Fidelities, words: LossWords) -> Figure:
    models = list(dict.fromkeys(curve.model for curve in found.curves))
    firsts = {curve.model: curve.trial for curve in reversed(found.curves)}
    traces = []
    for curve in found.curves:
        paint, name = colour(models.index(curve.model)), plain(curve.model)
        shown = downsampled(curve.losses, [stop - 1 for stop in curve.stops], _MOST_EPOCHS)
        sizes = [8 if i + 1 in curve.stops else 0 for i in shown]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "legendgroup": name,
                "showlegend": firsts[curve.model] == curve.trial,
                "x": [i + 1 for i in shown],
                "y": numbers(curve.losses[i] for i in shown),
                "line": {"color": paint, "width": 1.4},
                "opacity": 0.8,
                "marker": {"color": paint, "symbol": "circle-open", "size": sizes},
                "hovertext": plain(_label(curve, words)),
                "hoverinfo": "text",
            }
        )
    losses = [loss for curve in found.curves for loss in curve.losses]
    x, y = axis("epochs", rangemode="tozero"), axis(words.axis, range=visible_losses(losses))
    n = len(found.curves)
    of = f"{n:,} of {found.n_curves:,} are shown. " if n < found.n_curves else ""
    note = f"{of}Circles mark stops; some trainings were resumed."
    best = min(found.curves, key=lambda curve: curve.least)
    title, seen = "Loss after each epoch, by model", f"Lowest: {_label(best, words)}."
    return figure("curves", title, traces, x, y, height=420, note=note, caption=seen)


def _label(curve: TrainingCurve, words: LossWords) -> str:
    ran = "to the end" if curve.is_complete else f"stopped at epoch {len(curve.losses)}"
    return (
        f"{curve.model}, {listed_trials(curve.trials, 4)}: {ran}, lowest {words.of(curve.least)} "
        f"at epoch {curve.best_epoch}"
    )


def _curves_table(found: Fidelities, words: LossWords) -> Table:
    best = sorted(found.curves, key=lambda curve: curve.least)[:40]
    return Table.of(
        "Trainings",
        best,
        {
            "of": lambda curve: listed_trials(curve.trials, 6),
            "model": lambda curve: curve.model,
            "#epochs": lambda curve: f"{len(curve.losses)}",
            "": lambda curve: "to the end" if curve.is_complete else "stopped",
            f"#least {words.name}": lambda curve: words.of(curve.least),
            "#at epoch": lambda curve: str(curve.best_epoch),
        },
        note=f"The best {len(best)} of {found.n_curves:,}." if found.n_curves > len(best) else "",
    )
