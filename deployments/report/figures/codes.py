"""Codes of patient events: their importance for the model, and their coverage of patients."""

from collections.abc import Iterator, Sequence
from math import sqrt

from prefect_tune.deployments.report.figures.quality import ModelReport
from prefect_tune.deployments.report.page import Cut, Figure, Part, Section, Table, Text, clipped
from prefect_tune.deployments.report.plots import axis, bar, figure
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.text import LossWords, counted, number_text
from prefect_tune.tasks.fitting.column_effects import CodeEffect, ColumnEffect, ColumnEffects

_MOST_CODES = 20
_MOST_COLUMNS = 4
_NO_EFFECT = 5e-5
"""Share of the largest effect below which a column gets no line."""
_LONGEST = 60
"""Longest description, in characters."""


def codes_section(model: ModelReport, n_members: int, summary: StudyView) -> Iterator[Section]:
    """Yield the section on strength and direction, for patient events."""
    title, effects = "What the model uses", model.effects
    if model.effects_problem:
        yield Section("codes", title, f"They could not be measured: {model.effects_problem}.")
    elif effects is not None:
        codes = [code for code in effects.codes if code.strength > _NO_EFFECT][:_MOST_CODES]
        if not codes:
            yield Section("codes", title, "No single code affects the loss of the model.")
            return
        words = LossWords(model.measure)
        whose = f"trial {model.effects_of}"
        if n_members > 1:
            whose = f"the heaviest member, {whose}"
        elif summary.model_of_folds:
            whose = f"one fold of {whose}"
        parts: list[Part] = [
            _figure(model, effects, codes, words),
            _effects_table(model, effects, codes, words),
            _how(whose, effects.n_rows, words),
        ]
        yield Section("codes", title, _finding(model, codes, words), parts)


def coverage_section(model: ModelReport) -> Iterator[Section]:
    """Yield the section on coverage by code, for patient events."""
    coverage = model.coverage
    if not coverage:
        return
    shown = coverage[:_MOST_CODES]
    by_class = model.classes if coverage[0].by_class else ()
    described = ["description"] if any(of.description for of in shown) else []
    rows: list[list[str | Cut]] = [
        [
            of.code,
            *(Cut(of.description, _LONGEST) for _ in described),
            _percent(of.patients),
            number_text(of.events),
            *map(_percent, of.by_class),
        ]
        for of in shown
    ]
    columns = ["code", *described, "#patients, %", "#events per patient with it"]
    columns += [f"#{label}, %" for label in by_class]
    note = (
        "Patients of the training rows, with events up to their latest prediction time"
        f"{', by the class at that time' if by_class else ''}."
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
    """Return the description of a code, clipped; the code itself if it has none."""
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
    """Return the direction of a column in words; empty if unclear."""
    direction = column.direction
    if direction is None or abs(direction) < 2 / sqrt(n_rows):
        return ""
    if model.classes:
        positive = model.classes[1]
        return f"↑ {positive} likelier" if direction > 0 else f"↓ {positive} less likely"
    return "↑ larger" if direction > 0 else "↓ smaller"


def _figure(
    model: ModelReport, effects: ColumnEffects, codes: Sequence[CodeEffect], words: LossWords
) -> Figure:
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
    has_arrows = any(directions)
    note = "Higher values mean higher (↑) or lower (↓) predictions." if has_arrows else ""
    x, height = axis(_loss_axis(words)), 110 + 26 * len(codes)
    return figure("codes-strength", "Strength by code", [trace], x, height=height, note=note)


_COLOURS = {"↑": "var(--c3)", "↓": "var(--c0)", "": "var(--muted)"}
"""Colours of bars by direction; labels show the direction, too."""


def _loss_axis(words: LossWords) -> str:
    if words.metric == "auroc":
        return "drop in AUROC when permuted"
    return f"rise in {words.axis} when permuted"


def _strength(strength: float | None) -> str:
    return "-" if strength is None else f"{max(strength, 0.0):.4f}"


def _effects_table(
    model: ModelReport, effects: ColumnEffects, codes: Sequence[CodeEffect], words: LossWords
) -> Table:
    rows: list[list[str | Cut]] = []
    described = ["description"] if any(c.code in model.descriptions for c in codes) else []
    for code in codes:
        columns = code.columns[: _MOST_COLUMNS if code.n_columns > 1 else 0]
        text = Cut(model.descriptions.get(code.code, ""), _LONGEST)
        lines: list[tuple[str, str | Cut, float | None, ColumnEffect]] = [
            (code.code, text, code.strength, code.columns[0]),
            *(
                (f"  {column.column}", "", column.strength, column)
                for column in columns
                if column.strength is None or column.strength > _NO_EFFECT
            ),
        ]
        for name, description, strength, column in lines:
            direction = _arrow(model, column, effects.n_rows) or "unclear"
            texts = [description] if described else []
            rows.append([name, *texts, _strength(strength), direction])
    headings = ["code and columns", *described, f"#{_loss_axis(words)}", "direction"]
    n = len(effects.codes)
    note = f"{len(codes)} of {effects.n_codes:,} codes; the {n} most likely ones were measured."
    return Table("Codes and their columns", headings, rows, is_open=True, note=note)


def _how(whose: str, n_rows: int, words: LossWords) -> Text:
    measure = "AUROC" if words.metric == "auroc" else words.name
    text = (
        f"Measured with the model of {whose}, on {counted(n_rows, 'test row')}: the values of the "
        f"columns of a code are permuted among rows, and the {measure} is recomputed, three times. "
        "The direction is the sign of the rank correlation of the code's strongest column with the "
        "prediction. Rows without such an event count as 0. A code that matters to the model need "
        "not cause the outcome."
    )
    return Text([text], is_quiet=True)
