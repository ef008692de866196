"""Comparisons: the standings of the methods."""

from collections.abc import Sequence

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line
from prefect_tune.flows.comparison.standings import (
    SIGNIFICANCE,
    ComparisonOutcome,
    MethodStanding,
    SingleComparison,
    Standings,
    replicate_budget,
)
from prefect_tune.flows.text import LossWords, counted, format_seconds, number_text


def print_comparison(outcome: ComparisonOutcome) -> None:
    """Print the standings at fractions of the budget, one method per line, best first."""
    standings, subject = outcome.standings, outcome.subject
    loss = LossWords(subject.metric).axis
    if isinstance(subject, SingleComparison):
        budget = replicate_budget(subject.budget_seconds, subject.budget_trials)
        of = f"{counted(subject.repeats, 'repeat')} of {budget} a replicate"
        CONSOLE.print(
            line(bold(subject.comparison), f": {subject.data}, space {subject.space}, {of}")
        )
    table = Table(
        "of the budget", "method", "rank", "", f"test {loss}", f"cross-validated {loss}", "trials",
        "asking", box=None,
    )  # fmt: skip
    for stage in standings.fractions:
        for position, one in enumerate(stage.methods):
            table.add_row(
                f"{100 * stage.fraction:g} %" if position == 0 else "",
                one.method,
                f"{one.average_rank:.2f}",
                "=" if one.is_tied_with_best else "",
                _spread(one.median_test_loss, one.quartiles_test_loss),
                _spread(one.median_loss, one.quartiles_loss),
                f"{one.trials:g}",
                format_seconds(one.ask_seconds),
            )
    CONSOLE.print(table)
    for data_set in standings.data_sets:
        CONSOLE.print(f"  {data_set.data}, at the end: {_in_short(data_set.methods)}")
    CONSOLE.print(
        "  Median (quartiles) of the replicates' best pipelines. Rank: mean rank of the test loss "
        f"over {counted(standings.n_blocks, 'block')} (a data set and a repeat); = marks a method "
        "that is not significantly behind the first (ranks reordered within blocks, "
        f"p = {SIGNIFICANCE})"
    )
    for warning in outcome.warnings:
        CONSOLE.print(line(f"  {warning}"))
    if standings.pairs:
        _print_pairs(standings)
    if isinstance(subject, SingleComparison):
        CONSOLE.print(f"  curves of all replicates: {subject.out}")


def _print_pairs(standings: Standings) -> None:
    """Print how certainly the method with the lowest expected rank beats the others."""
    methods = sorted(standings.methods, key=lambda one: one.expected_rank)
    first = methods[0].method
    pairs = {pair.other: pair for pair in standings.pairs if pair.method == first}
    table = Table(
        "at the end", "expected rank", "loses to the first", "sign test", "Pr(first is better)",
        box=None,
    )  # fmt: skip
    for one in methods:
        pair = pairs.get(one.method)
        against = (
            (f"{pair.win_frequency:.2f}", f"{pair.sign_test_p_value:.3g}", f"{pair.better:.3f}")
            if pair
            else ()
        )
        table.add_row(one.method, f"{one.expected_rank:.2f}", *against)
    CONSOLE.print(table)
    if standings.data_sets:
        over = counted(len(standings.data_sets), "data set")
        better, by = "on more than half of such data sets", "Poisson-binomial test"
    else:
        over, better = counted(standings.n_blocks, "repeat"), "on this data set"
        by = "Student's t over repeats; for one repeat, over its errors or wins"
    CONSOLE.print(
        f"  Share of losses to {first} (a tie counts half), one-sided p of the sign test over "
        f"{over}, and the probability that {first} is better {better} ({by})"
    )


def _spread(median: float | None, quartiles: Sequence[float | None]) -> str:
    low, high = map(number_text, quartiles)
    is_known = None not in quartiles and low != high
    return f"{number_text(median)} ({low}-{high})" if is_known else number_text(median)


def _in_short(methods: Sequence[MethodStanding]) -> str:
    return ", ".join(f"{one.method} {number_text(one.median_test_loss)}" for one in methods)
