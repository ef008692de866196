"""Importance of each choice for the loss, from the losses in the ledger."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from prefect_tune.deployments.report.page import Figure, Part, Section, Table, Text
from prefect_tune.deployments.report.plots import axis, bar, figure
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.optimizers.importance import Effect, Importance, Input, importance_of

_MOST_BARS = 14
_LEAST_SHARE = 0.002
"""Smallest share shown in the figure."""
_MOST_ROWS = 60


class ImportancePass:
    """Collector of trials with losses on all rows and epochs.

    A configuration that a race stopped is usually bad. Its estimated loss is the loss of its first
    folds, plus the mean difference to the other folds in full trials.
    """

    def __init__(self, plan: StudyPlan) -> None:
        self._plan, self._n_folds = plan, plan.options.folds or 1
        self._known: dict[bytes, tuple[int, float, Mapping[str, Any]]] = {}
        self._beyond: dict[int, list[float]] = {}

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        is_of_all = trial.subset == 1.0 and trial.epochs is None
        if not trial.has_loss or not is_of_all or not isfinite(trial.loss):
            return
        n_folds = self._n_folds if trial.is_full else (trial.folds or self._n_folds)
        if trial.is_full:
            folds = trial.fold_losses
            for n in range(1, len(folds)):
                self._beyond.setdefault(n, []).append(trial.loss - fmean(folds[:n]))
        key = trial.configuration_text
        if key not in self._known or self._known[key][0] <= n_folds:
            self._known[key] = n_folds, trial.loss, trial.configuration

    def found(self) -> Importance:
        """Return the importance, or the reason for having none."""
        beyond = {n: fmean(more) for n, more in self._beyond.items() if n < self._n_folds}
        losses = [loss + beyond.get(n, 0.0) for n, loss, _ in self._known.values()]
        configurations = [configuration for *_, configuration in self._known.values()]
        problem = self._plan.problem
        try:
            space = problem.find_space()
        except Exception as error:  # a user's space may be deleted or need a missing package
            return Importance(len(losses), reason=f"the space cannot be loaded: {error}")
        if space.digest != problem.space_digest:
            return Importance(len(losses), reason="the space has changed since the study")
        return importance_of(space, configurations, losses, self._plan.chance_loss)


def importance_section(found: Importance, summary: StudyView) -> Iterator[Section]:
    """Yield the section; without an importance, it gives the reason."""
    title, words, parts = "What mattered", LossWords(summary.metric), list[Part]()
    if not found.n_configurations:
        return
    finding = _unknown(found, words)
    if found.effects:
        shown = [e for e in found.effects if e.total >= _LEAST_SHARE][:_MOST_BARS]
        names = input_names(effect.input for effect in found.effects)
        parts = [_figure(shown, names), _table(found.effects, names), _how(found, words)]
        finding = _finding(found, shown, names)
    yield Section("importance", title, finding, parts)


def input_names(inputs: Iterable[Input]) -> dict[Input, str]:
    """Return unique names of a space's inputs, with the step if an algorithm occurs in several."""
    names = {
        chosen: f"algorithm of {chosen.step}"
        if chosen.hyperparameter is None
        else f"{chosen.hyperparameter} of {chosen.algorithm}"
        for chosen in inputs
    }
    times = Counter(names.values())
    return {
        chosen: name if times[name] == 1 else f"{name} ({chosen.step})"
        for chosen, name in names.items()
    }


def _unknown(found: Importance, words: LossWords) -> str:
    n = counted(found.n_configurations, "configuration")
    text = f"Not known yet: {n} with a comparable loss, and {found.reason}."
    if found.r2 is None:
        return text
    share = f"{100 * max(found.r2, 0):.0f} %"
    return (
        f"{text} A random forest predicts only {share} of the variance of the {words.name} of "
        "unseen configurations, so its importance would be mostly noise."
    )


def _finding(found: Importance, shown: Sequence[Effect], names: Mapping[Input, str]) -> str:
    first, *others = (
        names[e.input] if e.input.hyperparameter else f"the {names[e.input]}"
        for e in shown[:3]
        if e is shown[0] or e.total >= 0.05
    )
    share = f"{100 * shown[0].total:.0f} % (± {100 * shown[0].total_deviation:.0f})"
    text = f"{first} mattered most, with {share} of the variance of the loss"
    if others:
        text += f"; next {'comes' if len(others) == 1 else 'come'} {' and '.join(others)}"
    r2 = found.r2 or 0.0
    how = "reliable" if r2 >= 0.7 else "fairly reliable" if r2 >= 0.45 else "a rough guide only"
    return (
        f"{text[0].upper()}{text[1:]}. The shares are {how}: the model behind them predicts "
        f"{100 * r2:.0f} % of the variance of unseen configurations."
    )


def _figure(shown: Sequence[Effect], names: Mapping[Input, str]) -> Figure:
    labels, traces = [names[effect.input] for effect in shown], []
    for name, paint, shares in (
        ("with interactions", "var(--c1)", [(e.total, e.total_deviation) for e in shown]),
        ("alone", "var(--c0)", [(e.main, e.main_deviation) for e in shown]),
    ):
        values, errors = ([100 * number for number in of] for of in zip(*shares, strict=True))
        hover = [
            f"{label}: {value:.1f} % ± {error:.1f} {name}"
            for label, value, error in zip(labels, values, errors, strict=True)
        ]
        whiskers = {
            "type": "data", "symmetric": False, "array": errors,
            "arrayminus": list(map(min, errors, values)),
            "color": "var(--muted)", "thickness": 1.2, "width": 3,
        }  # fmt: skip
        traces.append(bar(name, labels, values, paint, hover=hover, error_x=whiskers))
    most = 104 * max(effect.total + effect.total_deviation for effect in shown)
    x, height = axis("share of the variance, %", range=[0, min(most, 104)]), 120 + 38 * len(shown)
    layout: dict[str, Any] = {"barmode": "group", "bargap": 0.25, "height": height}
    return figure("importance-shares", "Share of the variance by choice", traces, x, **layout)


def _table(effects: Sequence[Effect], names: Mapping[Input, str]) -> Table:
    def share(value: float, deviation: float) -> str:
        return f"{100 * value:.1f} ± {100 * deviation:.1f}"

    return Table.of(
        "Share of the variance",
        effects[:_MOST_ROWS],
        {
            "choice": lambda effect: names[effect.input],
            "#alone, %": lambda effect: share(effect.main, effect.main_deviation),
            "#with interactions, %": lambda effect: share(effect.total, effect.total_deviation),
        },
        note=f"The first {_MOST_ROWS} of {len(effects)}." if len(effects) > _MOST_ROWS else "",
    )


def _how(found: Importance, words: LossWords) -> Text:
    bound = words.of(found.bound)
    clipped = f" Losses above {bound} count as {bound}." if found.bound is not None else ""
    learned = counted(found.n_configurations, "configuration")
    text = (
        "Functional ANOVA (Hutter et al. 2014): random forests learn the loss from "
        f"{learned}, and its variance over the whole space "
        "is split among the choices. ± is the standard deviation over forests of different "
        f"bootstraps of the configurations.{clipped} The search samples mostly where losses are "
        "low; estimates elsewhere are weak."
    )
    return Text([text], is_quiet=True)
