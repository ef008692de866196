"""Comparisons: the standings of the methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.comparison.standings import SIGNIFICANCE, least_p_value
from prefect_tune.flows.text import counted, format_seconds, loss_name, loss_unit


def print_comparison(document: Mapping[str, Any]) -> None:
    """Print the standings at fractions of the budget, a method a line, best first."""
    loss = loss_name(document["metric"]) + loss_unit(document["metric"])
    if "comparison" in document:
        CONSOLE.print(
            line(
                bold(document["comparison"]),
                f": {document['data']}, space {document['space']}, ",
                f"{counted(document['repeats'], 'repeat')} of {_budget(document)} a replicate",
            )
        )
    table = Table(
        "of the budget", "method", "rank", "", f"test {loss}", f"cross-validated {loss}", "trials",
        "asking", box=None,
    )  # fmt: skip
    for stage in document["fractions"]:
        for position, row in enumerate(stage["methods"]):
            at = f"{100 * stage['fraction']:g} %" if position == 0 else ""
            table.add_row(at, *_cells(row))
    CONSOLE.print(table)
    for data_set in document.get("data_sets", ()):
        CONSOLE.print(f"  {data_set['data']}, at the end: {_in_short(data_set['methods'])}")
    for reason, n_replicates in document.get("undefined_test_losses", {}).items():
        of = counted(n_replicates, "replicate")
        CONSOLE.print(line(f"  The test loss of {of} is undefined: {reason}"))
    n_methods, n_blocks = len(document["methods"]), document["n_blocks"]
    CONSOLE.print(
        "  Median (quartiles) of the replicates' best pipelines. Rank: mean rank of the test loss "
        f"over {counted(n_blocks, 'block')} of a data set and a repeat; = marks a method that is "
        f"not significantly behind the first (ranks reordered within blocks, p = {SIGNIFICANCE})"
    )
    if least_p_value(n_blocks, n_methods) > SIGNIFICANCE:
        CONSOLE.print(
            f"  With {counted(n_blocks, 'block')} no difference between {n_methods} methods can be "
            "significant: more repeats tell more"
        )
    if n_methods > 1:
        _print_pairs(document)
    if "out" in document:
        CONSOLE.print(f"  curves of all replicates: {document['out']}")


def _print_pairs(document: Mapping[str, Any]) -> None:
    """Print how sure it is that the method of the least expected rank is better than the others."""
    rows = sorted(document["methods"], key=lambda row: row["expected_rank"])
    first = rows[0]["method"]
    pairs = {pair["other"]: pair for pair in document["pairs"] if pair["method"] == first}
    n_data_sets = len(document.get("data_sets", ())) or 1
    table = Table(
        "at the end", "expected rank", "loses to the first", "sign test", "Pr(first is better)",
        box=None,
    )  # fmt: skip
    for row in rows:
        table.add_row(row["method"], f"{row['expected_rank']:.2f}", *_against(pairs, row["method"]))
    CONSOLE.print(table)
    if n_data_sets > 1:
        over, better = counted(n_data_sets, "data set"), "on more than half of such data sets"
        by = "Poisson-binomial test"
    else:
        over, better = counted(document["n_blocks"], "repeat"), "on this data set"
        by = "Student's t of the repeats; of one repeat, its errors or who won"
    CONSOLE.print(
        f"  How often each loses to {first} (a tie is half), one-sided p of the sign test over "
        f"{over}, and the probability that {first} is better {better} ({by})"
    )


def _against(pairs: Mapping[str, Any], method: str) -> list[str]:
    """Return the cells of a method against the first; none for the first itself."""
    if method not in pairs:
        return []
    pair = pairs[method]
    is_one = len(pair["on_data_sets"]) == 1
    better = pair["on_data_sets"][0] if is_one else pair["poisson_binomial"]
    return [
        f"{pair['win_frequency']:.2f}",
        f"{pair['sign_test_p_value']:.3g}",
        f"{better:.3f}",
    ]


def _budget(document: Mapping[str, Any]) -> str:
    seconds, trials = document["budget_seconds"], document["budget_trials"]
    return counted(trials, "trial") if seconds is None else format_seconds(seconds)


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["method"],
        f"{row['average_rank']:.2f}",
        "=" if row["is_tied_with_best"] else "",
        _spread(row["median_test_loss"], row["quartiles_test_loss"]),
        _spread(row["median_loss"], row["quartiles_loss"]),
        f"{row['trials']:g}",
        format_seconds(row["ask_seconds"]),
    ]


def _spread(median: float | None, quartiles: Sequence[float | None]) -> str:
    low, high = map(_number, quartiles)
    is_known = None not in quartiles and low != high
    return f"{_number(median)} ({low}-{high})" if is_known else _number(median)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _in_short(methods: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{row['method']} {_number(row['median_test_loss'])}" for row in methods)
