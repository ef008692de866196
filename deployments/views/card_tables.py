"""The tables of a model card: columns, losses, constraints, pipelines, search and data."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefect_tune.flows.markdown import block, code, escaped, table
from prefect_tune.flows.text import counted, format_seconds, loss_name, loss_unit
from prefect_tune.optimizers.space.wording import values_text
from prefect_tune.storage.masking import masked

_MOST_COLUMNS = 60
"""Listed one by one; of more, as many from the beginning."""
MOST_VALUES = 8
"""Of categories or classes, so many are named."""

_OF_CLASS = ("recall", "error", "precision")
_OF_QUARTER = ("mean_absolute_error", "mean_error")

Facts = Mapping[str, Any]


def loss_and_unit(losses: Facts) -> str:
    """Return what the loss of a study is called, with its unit."""
    return loss_name(losses["metric"]) + loss_unit(losses["metric"])


def column_lines(data: Facts) -> Iterator[str]:
    """Yield the table of the columns that a model takes."""
    if data["kind"] == "events":
        return
    yield "## Columns that it takes"
    yield ""
    rows = [_column(column) for column in data["columns"][:_MOST_COLUMNS]]
    yield from table(("column", "type", "empty", "in the data"), rows)
    more = len(data["columns"]) - _MOST_COLUMNS
    if more > 0:
        yield ""
        yield f"and {more} more"


def _column(column: Facts) -> tuple[str, str, str, str]:
    if column["type"] == "category":
        known = column["categories"]
        values = ", ".join(map(code, known[:MOST_VALUES]))
        more = len(known) - MOST_VALUES
        values += f" and {more} more" if more > 0 else ""
        kind = "category (text)"
    else:
        ends = column["range"]
        values = _range(*ends) if ends else ""
        kind = "number"
    empty = f"{max(column['gaps'], 0.001):.1%}" if column["gaps"] else ""
    return code(column["name"]), kind, empty, values


def loss_lines(facts: Facts) -> Iterator[str]:
    """Yield how well a model predicts: losses, and the test rows part by part."""
    losses, data = facts["losses"], facts["data"]
    yield "## How well it predicts"
    yield ""
    scored = f"{data['folds']} folds" if data["holdout"] is None else "one part held out"
    scored = losses["fidelity"] or scored
    best = f"best single trial ({losses['best_trial']})"
    rows = [
        ("the model on the test rows", losses["test"], data["test_rows"]),
        (f"{best} on the test rows", losses["single_best_test"], data["test_rows"]),
        ("the ensemble on the held-out rows that it was chosen on", losses["held_out"], None),
        (f"{best}, {scored} of the training rows", losses["cross_validated"], None),
        ("guessing", losses["guessing"], None),
    ]
    if len(facts["model"]["members"]) == 1:
        del rows[1]
    shown = [
        (what, f"{loss:.4g}", str(n_rows or data["training_rows"]))
        for what, loss, n_rows in rows
        if loss is not None
    ]
    yield from table(("", f"{escaped(loss_and_unit(losses))} (less is better)", "rows"), shown)
    if losses["test_undefined"]:
        yield ""
        yield f"The loss on the test rows is undefined: {escaped(losses['test_undefined'])}."
    error = losses["test_error"]
    if error is not None:
        yield ""
        yield (
            f"{error['percent']:.3g} % of the test rows are predicted wrongly; of many more rows "
            f"like them, {error['low']:.3g} to {error['high']:.3g} % (95 % confidence)."
        )
    auroc = losses["test_auroc"]
    if auroc is not None:
        ends = (
            f" (95 % confidence: {auroc['low']:.3f} to {auroc['high']:.3f})"
            if auroc["low"] is not None
            else ""
        )
        yield ""
        yield f"The AUROC on the test rows is {auroc['value']:.3f}{ends}."
    yield from _by_part(losses)


def _by_part(losses: Facts) -> Iterator[str]:
    if losses["by_class"]:
        yield from ("", "Test rows by class, in percent:", "")
        yield from table(
            ("class", "rows", "recall", "error", "precision"),
            [
                (code(r["class"]), str(r["rows"]), *(_number(r[n]) for n in _OF_CLASS))
                for r in losses["by_class"]
            ],
        )
    if losses["by_quarter"]:
        yield from (
            "",
            "Test rows by quarter of the target (mean error: above 0 where too much is predicted):",
            "",
        )
        yield from table(
            ("target", "rows", "mean absolute error", "mean error"),
            [
                (_range(r["from"], r["to"]), str(r["rows"]), *(_number(r[n]) for n in _OF_QUARTER))
                for r in losses["by_quarter"]
            ],
        )


def _range(low: float, high: float) -> str:
    return f"{low:.6g} to {high:.6g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def constraint_lines(facts: Facts) -> Iterator[str]:
    """Yield what was bounded, and what was measured of the trials of a model."""
    constraints = facts["constraints"]
    if not constraints:
        return
    yield "## Constraints"
    yield ""
    yield "Measured in cross-validation, the mean over the folds:"
    yield ""
    rows = [
        (code(c["quantity"]), f"{c['bound']:.6g}", str(trial), _number(value))
        for c in constraints
        for trial, value in c["measured"].items()
    ]
    yield from table(("quantity", "at most", "trial", "measured"), rows)
    if len(facts["model"]["members"]) > 1:
        yield ""
        yield "Each member meets them; the ensemble as a whole is slower and larger."


def pipeline_lines(model: Facts) -> Iterator[str]:
    """Yield the pipelines that a model is made of, the heaviest first."""
    members = sorted(model["members"], key=lambda m: -m["weight"])
    yield "## Pipeline" if len(members) == 1 else "## Pipelines of the ensemble"
    for member in members:
        yield ""
        weight = f", weight {member['weight']:.1%}" if len(members) > 1 else ""
        yield f"Trial {member['trial']}{weight}:"
        yield ""
        rows = [
            (
                escaped(step),
                code(choice["algorithm"]),
                ", ".join(map(code, values_text(choice["hyperparameters"]))),
            )
            for step, choice in member["configuration"].items()
        ]
        yield from table(("step", "algorithm", "hyperparameters"), rows)


def search_lines(search: Facts, command: Sequence[str]) -> Iterator[str]:
    """Yield how a model was searched for."""
    yield "## How it was found"
    yield ""
    options = "".join(f" {name}={value}" for name, value in search["options"].items())
    budget = [
        counted(search["budget_trials"], "configuration") if search["budget_trials"] else "",
        format_seconds(search["budget_seconds"]) if search["budget_seconds"] else "",
    ]
    begun = counted(search["configurations"], "configuration")
    trials, seconds = counted(search["trials"], "trial"), format_seconds(search["seconds"])
    rows = [
        ("method", code(search["method"] + options)),
        ("space", code(search["space"])),
        ("budget", " or ".join(filter(None, budget))),
        ("seed", str(search["seed"])),
        ("evaluated", f"{begun} in {trials}, {search['failed']} of them failed, in {seconds}"),
    ]
    if search["epochs"]:
        rows.append(("epochs of iterative models", str(search["epochs"])))
    yield from table(("", ""), rows)
    if command:
        yield ""
        yield from block([shlex.join(map(masked, command))], "sh")


def data_lines(facts: Facts) -> Iterator[str]:
    """Yield what a model was fitted to and tested on."""
    data = facts["data"]
    yield "## Data"
    yield ""
    of_classes = facts["target"]["kind"] == "classes"
    stratified = "class" if of_classes else "tenth of the target"
    drawn = f"drawn at random with seed {facts['search']['seed']}, stratified by {stratified}"
    named = f"those of {code(data['test_file'])}" if data["test_file"] else drawn
    rows = [
        ("source", code(data["source"])),
        ("digest of its content", code(data["digest"])),
        ("training rows", f"{data['training_rows']:,}"),
        ("test rows", f"{data['test_rows']:,}" + (f", {named}" if data["test_rows"] else "")),
    ]
    if data["kind"] == "events":
        rows.append(("patients", f"{data['patients']:,}; all rows of one are on one side"))
    if data["group"]:
        rows.append(("groups", f"rows with the same {code(data['group'])} are on one side"))
    if data["dropped"]:
        rows.append(("columns left out", ", ".join(map(code, data["dropped"]))))
    if data["aside"]:
        rows.append(("columns for constraints alone", ", ".join(map(code, data["aside"]))))
    yield from table(("", ""), rows)
