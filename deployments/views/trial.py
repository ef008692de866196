"""Trials, one a line; and one explained, with its pipeline, result, times and code."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.text import counted, format_seconds, loss_name, loss_unit
from prefect_tune.optimizers.space.wording import fidelity_text, value_text

_MOST_FOLDS = 6
"""Shown one by one."""
_MOST_CHOICES = 4
"""Algorithms of a step that are named beside the one chosen."""
_CURVE_WIDTH = 48
_BARS = "▁▂▃▄▅▆▇█"

Explained = Mapping[str, Any]


def print_trial(trial: Explained, *, task_run: str | None = None) -> None:
    """Print a trial.

    Args:
        trial: As `explained_trial` gives it.
        task_run: Where Prefect shows its task run, if that is known.
    """
    CONSOLE.print(_title(trial))
    for text in (*_asked(trial), *_when(trial, task_run), *_failure(trial)):
        CONSOLE.print(line("  ", text))
    if trial["fold_losses"]:
        _print("losses", _losses(trial))
    _print("pipeline", _pipeline(trial["pipeline"]))
    if any(h["is_default"] is False for c in trial["pipeline"] for h in c["hyperparameters"]):
        CONSOLE.print("  * not the default")
    if trial["steps"]:
        _print("time", _time(trial["steps"]))
        CONSOLE.print("  (in brackets: served by the cache; what it took when it was made)")
    if trial["constraints"]:
        _print("constraints", _constraints(trial["constraints"]))
    if trial["stretches"]:
        _print("the same configuration", _stretches(trial))
    for text in _curve(trial):
        CONSOLE.print(text)
    for text in (*_traceback(trial), *_output(trial)):
        CONSOLE.print(text)
    CONSOLE.print()
    CONSOLE.print(line(bold("its code: "), trial["code"]))


def _print(title: str, table: Table) -> None:
    CONSOLE.print()
    CONSOLE.print(line(bold(title)))
    CONSOLE.print(table)


def _table(*headers: str) -> Table:
    """Return a table that is set off to the right."""
    return Table(*headers, box=None, pad_edge=True, padding=(0, 1, 0, 1))


def _title(trial: Explained) -> Text:
    unit, best = loss_unit(trial["metric"]), trial["incumbent"]
    parts: list[str | tuple[str, str]] = [
        bold(f"trial {trial['trial']}"),
        f" of {trial['study']}: {trial['state']}",
    ]
    if trial["loss"] is not None:
        parts += [f", {loss_name(trial['metric'])} ", bold(f"{trial['loss']:.4g}{unit}")]
    if trial["fidelity"]:
        parts.append(f" ({trial['fidelity']})")
    if best is not None:
        is_best = best["trial"] == trial["trial"]
        other = f"best: trial {best['trial']}, {best['loss']:.4g}{unit}"
        parts.append(", the best one" if is_best else f"; {other}")
    if trial["in_model"]:
        parts.append("; in the final model")
    return line(*parts)


def _asked(trial: Explained) -> Iterator[str]:
    reason = trial["reason"]
    if reason is not None:
        text = f": {reason['text']}" if reason.get("text") else ""
        yield f"asked for by {trial['method']}, {reason['phase']}{text}"


def _when(trial: Explained, task_run: str | None) -> Iterator[str]:
    parts = []
    if trial["asked_at"]:
        local = datetime.fromisoformat(trial["asked_at"]).astimezone()
        parts.append(f"asked for at {local.strftime('%Y-%m-%d %H:%M:%S')}")
    if trial["cost_seconds"] is not None:
        took, whole = trial["cost_seconds"], trial["cost_uncached_seconds"]
        saved = "" if whole is None else f" ({format_seconds(whole)} without the cache)"
        parts.append(f"took {format_seconds(took)}{saved}")
        if trial["load_seconds"]:
            load = format_seconds(trial["load_seconds"])
            parts.append(f"after {load} of loading the data and the libraries")
    if trial["attempts"] > 1:
        parts.append(counted(trial["attempts"], "attempt"))
    if parts:
        yield ", ".join(parts)
    if task_run is not None:
        yield f"in Prefect: {task_run}"
    elif trial["task_run_id"]:
        yield f"in Prefect: task run {trial['task_run_id']}"


def _failure(trial: Explained) -> Iterator[str | Text]:
    failure = trial["failure"]
    if failure is None:
        return
    where = f"{failure['step']}, fold {failure['fold']}: " if failure["step"] else ""
    kind = "" if failure["kind"] == "error" else f" ({failure['kind']})"
    yield line(bold(f"failed{kind}: "), f"{where}{failure['message']}")
    yield f"retry it: {failure['retry']}"


def _losses(trial: Explained) -> Table:
    mine, best = trial["fold_losses"], trial["incumbent"]
    n_folds = max(len(mine), len(best["fold_losses"]) if best else 0)
    shown = min(n_folds, _MOST_FOLDS)
    table = _table("", "mean", *(f"fold {fold}" for fold in range(shown)))
    table.add_row(f"trial {trial['trial']}", *_numbers(trial["loss"], mine, shown))
    if best is not None and best["trial"] != trial["trial"]:
        others = best["fold_losses"]
        name = f"trial {best['trial']} (best)"
        table.add_row(name, *_numbers(best["loss"], others, shown))
        both = list(zip(mine, others, strict=False))
        if both:
            differences = [one - other for one, other in both]
            mean = sum(differences) / len(both)
            table.add_row("difference", *_numbers(mean, differences, shown, sign="+"))
    table.add_row("guessing", f"{trial['chance_loss']:.4g}")
    return table


def _numbers(mean: float, folds: Sequence[float], shown: int, sign: str = "") -> list[str]:
    cells = [f"{loss:{sign}.4g}" for loss in folds[:shown]]
    return [f"{mean:{sign}.4g}", *cells]


def _pipeline(choices: Sequence[Explained]) -> Table:
    table = _table("step", "", "value", "default", "range")
    for choice in choices:
        table.add_row(choice["step"], "", choice["algorithm"], "", _others(choice))
        for h in choice["hyperparameters"]:
            mark = "" if h["is_default"] is not False else "*"
            default = "" if h["is_default"] is None else value_text(h["default"])
            log = " (log)" if h["is_log"] else ""
            table.add_row(f"  {h['name']}", mark, _value(h), default, f"{h['range'] or ''}{log}")
    return table


def _others(choice: Explained) -> str:
    """Return what else could have been chosen."""
    others = [name for name in choice["choices"] or () if name != choice["algorithm"]]
    if not others:
        return ""
    more = f" and {len(others) - _MOST_CHOICES} more" if len(others) > _MOST_CHOICES else ""
    return f"instead of {', '.join(others[:_MOST_CHOICES])}{more}"


def _value(hyperparameter: Explained) -> str:
    """Return a value, and what the estimator got for it on the data of the first fold."""
    value, effective = hyperparameter["value"], hyperparameter["effective"]
    text = value_text(value)
    is_other = str(effective).lower() != str(value).lower()  # words stand for None and the like
    return f"{text} (here {value_text(effective)})" if is_other else text


def _time(steps: Sequence[Explained]) -> Table:
    table = _table("step", "cached", "seconds by fold", "to load")
    for step in steps:
        folds = step["folds"]
        made = [f"({f['seconds']:.2f})" if f["hit"] else f"{f['seconds']:.2f}" for f in folds]
        loading = [f"{f['load_seconds']:.2f}" for f in folds]
        table.add_row(
            step["step"],
            f"{sum(f['hit'] for f in folds)}/{len(folds)}",
            _listed(made),
            _listed(loading) if any(f["load_seconds"] for f in folds) else "",
        )
    return table


def _listed(cells: Sequence[str]) -> str:
    return " ".join(cells[:_MOST_FOLDS]) + (" …" if len(cells) > _MOST_FOLDS else "")


def _constraints(constraints: Sequence[Explained]) -> Table:
    table = _table("quantity", "measured", "at most", "")
    for c in constraints:
        value = "not measured" if c["value"] is None else f"{c['value']:.4g}"
        table.add_row(c["quantity"], value, f"{c['bound']:g}", "" if c["is_met"] else "exceeded")
    return table


def _stretches(trial: Explained) -> Table:
    table = _table("trial", "state", "of", "loss")
    mine = {name: trial[name] for name in ("trial", "state", "fidelity", "loss")}
    for other in sorted([mine, *trial["stretches"]], key=lambda row: row["trial"]):
        number = f"{other['trial']}" + (" (this one)" if other["trial"] == trial["trial"] else "")
        loss = "" if other["loss"] is None else f"{other['loss']:.4g}"
        table.add_row(number, other["state"], other["fidelity"] or "all", loss)
    return table


def _curve(trial: Explained) -> Iterator[Text | str]:
    curve = trial["curve"]
    if curve is None:
        return
    losses, best = curve["losses"], curve["best_epoch"]
    yield ""
    yield line(bold("learning"))
    yield f"  {_bars(losses)}"
    at_best = f"; {losses[best - 1]:.4g} after epoch {best}, the best one" if best else ""
    yield (
        f"  {loss_name(trial['metric'])} {losses[0]:.4g} after epoch 1, {losses[-1]:.4g} after "
        f"epoch {len(losses)}{at_best}"
    )
    if curve["resumed_from"]:
        yield f"  went on from epoch {curve['resumed_from']}, where an earlier trial had stopped"
    if curve["trouble"]:
        yield f"  {curve['trouble']}"


def _bars(losses: Sequence[float]) -> str:
    """Return a curve as bars, the height of each the largest loss of its epochs.

    >>> _bars([4.0, 2.0, 1.0])
    '█▃▁'
    """
    n = min(len(losses), _CURVE_WIDTH)
    edges = [round(i * len(losses) / n) for i in range(n + 1)]
    heights = [max(losses[a:b]) for a, b in pairwise(edges)]
    low, high = min(heights), max(heights)
    span = (high - low) or 1.0
    return "".join(_BARS[round((h - low) / span * (len(_BARS) - 1))] for h in heights)


def _traceback(trial: Explained) -> Iterator[Text | str]:
    failure = trial["failure"]
    if failure is not None and failure["traceback"]:
        yield ""
        yield line(bold("traceback"))
        yield from (f"  {text}" for text in failure["traceback"].rstrip().splitlines())


def _output(trial: Explained) -> Iterator[Text | str]:
    """Yield the last lines that a failed trial printed, and the command that prints all."""
    output_bytes, failure = trial["output_bytes"], trial["failure"]
    if not output_bytes:
        return
    yield ""
    yield line(bold("output: "), f"{output_bytes:,} bytes; {trial['show_output']}")
    if failure is not None:
        yield from (f"  {text}" for text in failure["output"].splitlines())


_STATES = {"stopped": "in part"}
"""States by the words that people know them by, where these are others."""


def first_trials(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the trials that go on with a configuration, each with the one that began it.

    Args:
        rows: All trials of a study as JSON values, by number.
    """
    begun: dict[str, int] = {}
    first = {
        row["number"]: begun.setdefault(
            json.dumps(row["query"]["configuration"], sort_keys=True), row["number"]
        )
        for row in rows
    }
    return {number: of for number, of in first.items() if number != of}


def print_trials(
    rows: Sequence[Mapping[str, Any]],
    n_folds: int | None = None,
    epochs: int | None = None,
    *,
    first: Mapping[int, int] | None = None,
    links: Mapping[int, str] | None = None,
) -> None:
    """Print trials, one a line; failed ones with their reason, others with what they ran on.

    Args:
        rows: Trials as JSON values.
        n_folds: Folds of the whole evaluation, where known.
        epochs: Epochs of the whole training, where known.
        first: Trials that go on with a configuration, each with the one that began it.
        links: By number, where Prefect shows the task runs of trials.
    """
    first, links = first or {}, links or {}
    fidelities = [fidelity_text(row["query"], n_folds, epochs) for row in rows]
    of = ("of",) if any(fidelities) else ()
    on = ("goes on",) if any(row["number"] in first for row in rows) else ()
    table = Table("trial", *on, "state", *of, "loss", "seconds", "cached", "pipeline", box=None)
    for row, fidelity in zip(rows, fidelities, strict=True):
        evaluation, failure = row["evaluation"], row["failure"]
        path = " > ".join(c["algorithm"] for c in row["query"]["configuration"].values())
        steps = evaluation["steps"] if evaluation else []
        cost = (evaluation or failure or {}).get("cost_seconds")
        constraints = evaluation["constraints"] if evaluation else {}
        measured = ", ".join(f"{name} {value:.4g}" for name, value in constraints.items())
        where = (
            f"{failure['step']}, fold {failure['fold']}: " if failure and failure["step"] else ""
        )
        table.add_row(
            str(row["number"]),
            *((f"from {first[row['number']]}" if row["number"] in first else "",) if on else ()),
            _STATES.get(row["state"], row["state"]),
            *((fidelity or "all",) if of else ()),
            f"{evaluation['loss']:.4g}" if evaluation else "",
            f"{cost:.1f}" if cost is not None else "",
            f"{sum(s['hit'] for s in steps)}/{len(steps)}" if steps else "",
            path
            + (f"\n{where}{failure['message']}" if failure else "")
            + "".join(f"\n| {line}" for line in (failure or {}).get("output", "").splitlines())
            + (f"\n{links[row['number']]}" if row["number"] in links else "")
            + (f"\n{evaluation['trouble']}" if evaluation and evaluation.get("trouble") else "")
            + (f"\n{measured}" if measured else ""),
        )
    CONSOLE.print(table if rows else "no trials")
