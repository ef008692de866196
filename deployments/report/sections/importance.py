"""How much each choice matters for the loss."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prefect_tune.deployments.report.page import Figure, Part, Section, Table, Text
from prefect_tune.deployments.report.plots import axis, bar, plot
from prefect_tune.deployments.report.wording import LossWords
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted
from prefect_tune.optimizers.importance import Effect, Importance, Input

_MOST_BARS = 14
_LEAST_SHARE = 0.002
"""Shares below are left out of the figure."""
_MOST_ROWS = 60


def importance_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, which says so where nothing can be said."""
    found, words = report.importance, LossWords(report.summary["metric"])
    if not found.n_configurations:
        return
    if not found.effects:
        yield Section("importance", "What mattered", _unknown(found, words))
        return
    shown = [e for e in found.effects if e.total >= _LEAST_SHARE][:_MOST_BARS]
    names = input_names(effect.input for effect in found.effects)
    parts: list[Part] = [_figure(shown, names), _table(found.effects, names), _how(found, words)]
    yield Section("importance", "What mattered", _finding(found, shown, names), parts)


def input_names(inputs: Iterable[Input]) -> dict[Input, str]:
    """Return what people call the inputs of a space, each by another name.

    The step is named where several have the same algorithm.
    """
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
    said = f"Nothing can be said yet: {n} with a comparable loss, and {found.reason}."
    if found.r2 is None:
        return said
    share = f"{100 * max(found.r2, 0):.0f} %"
    return (
        f"{said} A random forest predicts {share} of the variance of the {words.name} of unseen "
        "configurations; the importance that it sees would be mostly noise."
    )


def _finding(found: Importance, shown: Sequence[Effect], names: Mapping[Input, str]) -> str:
    first = shown[0]
    share = f"{100 * first.total:.0f} % (± {100 * first.total_deviation:.0f})"
    others = [_the(effect.input, names) for effect in shown[1:3] if effect.total >= 0.05]
    then = (
        f"; next {'comes' if len(others) == 1 else 'come'} {' and '.join(others)}" if others else ""
    )
    said = (
        f"{_the(first.input, names)} mattered most, with {share} of the variance of the loss{then}"
    )
    return f"{said[0].upper()}{said[1:]}. {_trust(found)}"


def _the(chosen: Input, names: Mapping[Input, str]) -> str:
    return f"the {names[chosen]}" if chosen.hyperparameter is None else names[chosen]


def _trust(found: Importance) -> str:
    r2 = found.r2 or 0.0
    how = "reliable" if r2 >= 0.7 else "fairly reliable" if r2 >= 0.45 else "a rough guide only"
    return (
        f"The shares are {how}: the model behind them predicts {100 * r2:.0f} % of the variance of "
        "unseen configurations."
    )


def _figure(shown: Sequence[Effect], names: Mapping[Input, str]) -> Figure:
    labels = [names[effect.input] for effect in shown]
    traces = []
    for name, paint, share, deviation in (
        ("with interactions", "var(--c1)", "total", "total_deviation"),
        ("alone", "var(--c0)", "main", "main_deviation"),
    ):
        values = [100 * getattr(effect, share) for effect in shown]
        errors = [100 * getattr(effect, deviation) for effect in shown]
        said = [
            f"{label}: {value:.1f} % ± {error:.1f} {name}"
            for label, value, error in zip(labels, values, errors, strict=True)
        ]
        below = [min(error, value) for error, value in zip(errors, values, strict=True)]
        whiskers = {
            "type": "data", "symmetric": False, "array": errors, "arrayminus": below,
            "color": "var(--muted)", "thickness": 1.2, "width": 3,
        }  # fmt: skip
        traces.append(bar(name, labels, values, paint, hover=said, error_x=whiskers))
    most = 104 * max(effect.total + effect.total_deviation for effect in shown)
    layout = {
        "xaxis": axis("share of the variance, %", range=[0, min(most, 104)]),
        "yaxis": axis("", autorange="reversed", type="category"),
        "barmode": "group",
        "bargap": 0.25,
    }
    height = 120 + 38 * len(shown)
    return Figure("importance-shares", "Shares by choice", plot(traces, **layout), height)


def _table(effects: Sequence[Effect], names: Mapping[Input, str]) -> Table:
    rows = [
        [
            names[effect.input],
            f"{100 * effect.main:.1f} ± {100 * effect.main_deviation:.1f}",
            f"{100 * effect.total:.1f} ± {100 * effect.total_deviation:.1f}",
        ]
        for effect in effects[:_MOST_ROWS]
    ]
    note = f"The first {_MOST_ROWS} of {len(effects)}." if len(effects) > _MOST_ROWS else ""
    columns = ["choice", "#alone, %", "#with interactions, %"]
    return Table("Shares of the variance", columns, rows, note=note)


def _how(found: Importance, words: LossWords) -> Text:
    bound = words.of(found.bound)
    clipped = f" Losses above {bound} count as {bound}." if found.bound is not None else ""
    learned = counted(found.n_configurations, "configuration")
    said = (
        "Functional ANOVA (Hutter et al. 2014): random forests learn the loss from "
        f"{learned}, and its variance over the whole space "
        "is split among the choices. ± is the standard deviation over forests of different "
        f"bootstraps of the configurations.{clipped} A search looks most where losses are low, so "
        "elsewhere the forests guess."
    )
    return Text([said], is_quiet=True)
