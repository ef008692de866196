"""Comparisons: the standings of the methods."""

from collections.abc import Sequence

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.comparison.standings import SIGNIFICANCE, Standings
from prefect_tune.flows.text import LossWords, counted, format_seconds, number_text

HOW_RANKED = (
    "Rank: mean rank of the test loss over blocks (a data set and a repeat). p: permutation test "
    "of the distance to the first; = marks a method that is not significantly behind "
    f"(p > {SIGNIFICANCE}). Losses: median (quartiles) of the final models."
)


def ranking(standings: Standings) -> dict[str, list[str]]:
    """Return the columns of the table of methods, best first; `#` marks a column of numbers."""
    loss, methods = LossWords(standings.metric).axis, standings.methods
    return {
        "method": [one.method for one in methods],
        "#rank": [f"{one.average_rank:.2f}{' =' * one.is_tied_with_best}" for one in methods],
        "#p": [f"{one.p_value:.3g}" for one in methods],
        f"#test {loss}": [
            _spread(one.median_test_loss, one.quartiles_test_loss) for one in methods
        ],
        f"#cross-validated {loss}": [
            _spread(one.median_loss, one.quartiles_loss) for one in methods
        ],
        "#trials": [f"{one.trials:g}" for one in methods],
        "#asking": [format_seconds(one.ask_seconds) for one in methods],
    }


def facts(standings: Standings) -> list[str]:
    """Return what was compared, without facts that differ between pooled comparisons."""
    found = [counted(len(standings.methods), "method"), counted(standings.n_blocks, "block")]
    found += [f"data {standings.data}"] * bool(standings.data)
    found += [f"space {standings.space}"] * bool(standings.space)
    return found + [f"{standings.budget} a study"] * bool(standings.budget)


def print_comparison(standings: Standings, files: Sequence[str]) -> None:
    """Print the methods, one per line, best first; `files` have the curves."""
    title = standings.comparison or f"{len(files)} comparisons"
    CONSOLE.print(line(bold(title), f": {', '.join(facts(standings))}"))
    columns = ranking(standings)
    table = Table(*(name.removeprefix("#") for name in columns), box=None)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    CONSOLE.print(table)
    for text in (HOW_RANKED, *standings.warnings, f"Curves of all studies: {', '.join(files)}"):
        CONSOLE.print(line(f"  {text}"))


def _spread(median: float | None, quartiles: Sequence[float | None]) -> str:
    low, high = map(number_text, quartiles)
    is_known = None not in quartiles and low != high
    return f"{number_text(median)} ({low} to {high})" if is_known else number_text(median)
