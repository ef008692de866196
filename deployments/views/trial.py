"""One trial explained: its pipeline, its result, its times and its code."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, UNITS, bold, line
from prefect_tune.flows.text import counted, format_seconds, loss_name
from prefect_tune.optimizers.space.wording import value_text

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
    unit, best = UNITS.get(trial["metric"], ""), trial["incumbent"]
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
