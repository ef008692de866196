"""Codes of patient events: what the model makes of them, and how many patients have them."""

from collections.abc import Iterator, Sequence
from math import sqrt

from prefect_tune.deployments.report.page import Cut, Figure, Part, Section, Table, Text, clipped
from prefect_tune.deployments.report.plots import axis, bar, plot
from prefect_tune.deployments.report.wording import LossWords, short_number
from prefect_tune.flows.reporting.model_report import ModelReport
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted
from prefect_tune.tasks.fitting.column_effects import CodeEffect, ColumnEffect, ColumnEffects

_MOST_CODES = 20
_MOST_COLUMNS = 4
_NO_EFFECT = 5e-5
"""Share of the largest loss below which a column has no effect that is worth a line."""
_LONGEST = 60
"""Characters of a description."""


def codes_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on strength and direction, if the study is of patient events."""
    model, title = report.model, "What the model uses"
    if model.effects_problem:
        yield Section("codes", title, f"This could not be measured: {model.effects_problem}.")
        return
    if model.effects is None:
        return
    codes = [code for code in model.effects.codes if code.strength > _NO_EFFECT][:_MOST_CODES]
    if not codes:
        yield Section("codes", title, "No code matters to the model on its own.")
        return
    words = LossWords(model.measure)
    parts: list[Part] = [
        _figure(model, codes, words),
        _effects_table(model, codes, words),
        _how(report, model.effects, words),
    ]
    yield Section("codes", title, _finding(model, codes, words), parts)


def coverage_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the coverage by code, if the study is of patient events."""
    coverage, classes = report.model.coverage, report.model.classes
    if not coverage:
        return
    shown = coverage[:_MOST_CODES]
    is_described = any(of.description for of in shown)
    rows: list[list[str | Cut]] = [
        [
            of.code,
            *([Cut(of.description, _LONGEST)] if is_described else []),
            _percent(of.patients),
            short_number(of.events),
            *map(_percent, of.by_class),
        ]
        for of in shown
    ]
    columns = ["code", *(["description"] if is_described else [])]
    columns += ["#patients, %", "#events per patient with it"]
    columns += [f"#{label}, %" for label in classes] if coverage[0].by_class else []
    note = (
        "Patients of the training rows, with their events up to their latest prediction time"
        + (", by the class at that time" if coverage[0].by_class else "")
        + "."
    )
    if len(coverage) > len(shown):
        note += f" The first {len(shown)} of {len(coverage):,} codes; `report --json` lists all."
    half = sum(of.patients >= 0.5 for of in coverage)
    rare = sum(of.patients < 0.01 for of in coverage)
    finding = (
        f"Patients have {counted(len(coverage), 'different code')}: {half:,} in at least half of "
        f"the patients, {rare:,} in less than 1 %."
    )
    table = Table("Coverage by code", columns, rows, is_open=True)
    yield Section("coverage", "Codes in the data", finding, [table, Text([note], is_quiet=True)])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _name(model: ModelReport, code: str) -> str:
    """Return the description of a code, cut if it is long; the code itself if it has none."""
    return clipped(model.descriptions.get(code, code), _LONGEST)


def _finding(model: ModelReport, codes: Sequence[CodeEffect], words: LossWords) -> str:
    names = [_name(model, code.code) for code in codes[:3]]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    lost = (
        f"lowers AUROC by {codes[0].strength:.3f}"
        if words.metric == "auroc"
        else f"raises the {words.name} by {words.of(codes[0].strength)}"
    )
    return (
        f"{listed} {'matters' if len(names) == 1 else 'matter'} most: permuting the columns "
        f"of {names[0]} {lost}."
    )


def _arrow(model: ModelReport, column: ColumnEffect, n_rows: int) -> str:
    """Return the direction of a column in words; empty if it is unclear."""
    direction = column.direction
    if direction is None or abs(direction) < 2 / sqrt(n_rows):
        return ""
    if model.classes:
        positive = model.classes[1]
        return f"↑ {positive} likelier" if direction > 0 else f"↓ {positive} less likely"
    return "↑ larger" if direction > 0 else "↓ smaller"


def _figure(model: ModelReport, codes: Sequence[CodeEffect], words: LossWords) -> Figure:
    effects = model.effects
    assert effects is not None  # noqa: S101 - there are codes
    directions = [_arrow(model, code.columns[0], effects.n_rows) for code in codes]
    names = [_name(model, code.code) for code in codes]
    labels = [
        f"{direction[:1]} {name} {code.code if names.count(name) > 1 else ''}".strip()
        for direction, name, code in zip(directions, names, codes, strict=True)
    ]
    hover = [
        f"{code.code}: {_strength(code.strength)}, {direction or 'no clear direction'}"
        for direction, code in zip(directions, codes, strict=True)
    ]
    trace = bar("strength", labels, [code.strength for code in codes], "var(--c0)", hover=hover)
    trace["marker"] = {"color": [_COLOURS[direction[:1]] for direction in directions]}
    layout = {
        "xaxis": axis(_loss_axis(words)),
        "yaxis": axis("", autorange="reversed", type="category"),
    }
    note = (
        "↑ higher values go with higher predictions, ↓ with lower ones." if any(directions) else ""
    )
    height = 110 + 26 * len(codes)
    return Figure("codes-strength", "Strength by code", plot([trace], **layout), height, note)


_COLOURS = {"↑": "var(--c3)", "↓": "var(--c0)", "": "var(--muted)"}
"""Colours of bars by direction, which the labels tell too."""


def _loss_axis(words: LossWords) -> str:
    if words.metric == "auroc":
        return "fall of AUROC when permuted"
    return f"rise of {words.axis} when permuted"


def _strength(strength: float | None) -> str:
    return "-" if strength is None else f"{max(strength, 0.0):.4f}"


def _effects_table(model: ModelReport, codes: Sequence[CodeEffect], words: LossWords) -> Table:
    effects = model.effects
    assert effects is not None  # noqa: S101 - there are codes
    rows: list[list[str | Cut]] = []
    is_described = any(code.code in model.descriptions for code in codes)
    for code in codes:
        text = Cut(model.descriptions.get(code.code, ""), _LONGEST)
        described, nothing = ([text], [""]) if is_described else ([], [])
        direction = _arrow(model, code.columns[0], effects.n_rows) or "unclear"
        is_alone = code.n_columns == 1
        rows.append([code.code, *described, _strength(code.strength), direction])
        if is_alone:
            continue
        for column in code.columns[:_MOST_COLUMNS]:
            if column.strength is None or column.strength > _NO_EFFECT:
                direction = _arrow(model, column, effects.n_rows) or "unclear"
                rows.append(["  " + column.column, *nothing, _strength(column.strength), direction])
    columns = [
        "code and columns",
        *(["description"] if is_described else []),
        f"#{_loss_axis(words)}",
        "direction",
    ]
    n = len(effects.codes)
    note = f"{len(codes)} of {effects.n_codes:,} codes; the {n} likeliest were measured."
    return Table("Codes and their columns", columns, rows, is_open=True, note=note)


def _how(report: StudyReport, effects: ColumnEffects, words: LossWords) -> Text:
    whose = f"trial {report.model.effects_of}"
    if len(report.members) > 1:
        whose = f"the heaviest member, {whose}"
    elif report.summary["model_of_folds"]:
        whose = f"one fold of {whose}"
    measure = "AUROC" if words.metric == "auroc" else words.name
    text = (
        f"Measured with the model of {whose}, on {counted(effects.n_rows, 'test row')}: the values "
        f"of the columns of a code are permuted among rows, and the {measure} is computed again, "
        "three times. The direction is the sign of the rank correlation with the prediction, taken "
        "from the strongest column of the code. Rows without such an event count as 0. A code that "
        "matters to the model need not cause the outcome."
    )
    return Text([text], is_quiet=True)
