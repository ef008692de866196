"""Terminal output on comparisons: the standings of the methods."""

from collections.abc import Sequence

import pandas as pd
from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.comparison.standings import SIGNIFICANCE, Standings
from prefect_tune.flows.wording.text import LossWords, counted, format_seconds

HOW_RANKED = (
    "Rank: mean rank of the test score over blocks (a data set and a repeat). p: permutation test "
    "of the distance to the first; = marks a method that is not significantly behind "
    f"(p > {SIGNIFICANCE}). Scores: median (quartiles) of the final models."
)


def ranking(standings: Standings) -> pd.DataFrame:
    """Return the table of methods, best first. `#` marks a column of numbers."""
    words = LossWords(standings.metric)
    scores = f"#test {words.name}", f"#cross-validated {words.name}"
    columns = ("method", "#rank", "#p", *scores, "#configurations")
    rows = [
        (
            one["method"],
            f"{one['average_rank']:.2f}{' =' * one['is_tied_with_best']}",
            f"{one['p_value']:.3g}",
            _spread(words, one["median_test_loss"], one["quartiles_test_loss"]),
            _spread(words, one["median_loss"], one["quartiles_loss"]),
            f"{one['trials']:g}",
            format_seconds(one["ask_seconds"]),
        )
        for one in standings.methods.to_dict("records")
    ]
    return pd.DataFrame(rows, columns=[*columns, "#asking"])


def facts(standings: Standings) -> list[str]:
    """Describe the comparison, without properties that differ between pooled comparisons."""
    known = {
        "data": standings.data,
        "space": standings.space,
        "configurations": standings.budget_trials,
        "time": standings.budget_seconds and format_seconds(standings.budget_seconds),
    }
    counts = [counted(len(standings.methods), "method"), counted(standings.n_blocks, "block")]
    return counts + [f"{name} {value}" for name, value in known.items() if value]


def print_comparison(standings: Standings, files: Sequence[str]) -> None:
    """Print the methods, one per line, best first. `files` are the files with the curves."""
    title = standings.comparison or f"{len(files)} comparisons"
    CONSOLE.print(line(bold(title), f": {', '.join(facts(standings))}"))
    shown = ranking(standings)
    table = Table(*(str(name).removeprefix("#") for name in shown), box=None)
    for cells in shown.to_numpy():
        table.add_row(*cells)
    CONSOLE.print(table)
    for text in (HOW_RANKED, *standings.warnings, f"Curves of all studies: {', '.join(files)}"):
        CONSOLE.print(line(f"  {text}"))


def _spread(words: LossWords, median: float | None, quartiles: Sequence[float | None]) -> str:
    low, high = quartiles
    is_known = None not in quartiles and words.of(low) != words.of(high)
    return words.of(median) + (f" ({words.interval(low, high)})" if is_known else "")
