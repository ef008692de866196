"""Who is ahead: ranks at each stage, medians by table, and ratios with their standard errors."""

from typing import Any

import numpy as np
import pandas as pd
from machine import Goals

__all__ = ["at_stages", "goals", "mean_ranks", "medians", "parts", "ratio", "report"]

BLOCK = ["table", "split"]
WHOLE = 100.0
"""Percent; half a row in error is added to an error before ratios are taken."""
GOAL_RATIO = 0.95
"""Of our test loss to AutoGluon's, at most."""


def at_stages(rows: pd.DataFrame, column: str) -> dict[float, pd.DataFrame]:
    """By stage, the losses of what tools hand over, a block a row and a tool a column.

    Of tools that have answers before the end, and of blocks in which all of them were run. A tool
    that had nothing yet, or whose loss is not known, has NaN.
    """
    answers = rows[(rows["model"] == "answer") & rows["is_anytime"]]
    tools, ran = _order(answers), _table(answers, "stage")
    whole = ran.dropna().index
    return {
        stage: _table(answers[answers["stage"] == stage], column).reindex(whole, columns=tools)
        for stage in sorted(answers["stage"].unique())
    }


def mean_ranks(losses: pd.DataFrame) -> pd.Series:
    """Mean rank over blocks; equal losses share theirs, and without a loss a tool is last.

    Args:
        losses: A block a row, a tool a column.
    """
    return losses.fillna(np.inf).rank(axis=1).mean()


def medians(rows: pd.DataFrame, model: str = "answer") -> pd.DataFrame:
    """Median test loss over splits at the end, a table a row and a tool a column."""
    return _table(_final(rows, model), "test_loss").groupby("table").median()


def ratio(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float, int]:
    """Geometric mean over tables of the ratio of final test losses, by each table's mean logarithm.

    Args:
        ours: Rows of the one tool at the end.
        theirs: Those of the other one.

    Returns:
        The ratio, its standard error over tables, and the number of tables; NaN where unknown.
    """
    pairs = ours.merge(theirs, on=BLOCK, suffixes=("", "_other"))
    added = np.where(pairs["kind"] == "classes", WHOLE / 2 / pairs["test_rows"], 0.0)
    logs = np.log((pairs["test_loss"] + added) / (pairs["test_loss_other"] + added))
    by_table = logs.groupby(pairs["table"]).mean()
    n, mean = len(by_table), np.exp(by_table.mean())
    error = mean * by_table.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return float(mean), float(error), n


def report(rows: pd.DataFrame) -> None:
    """Print ranks, medians and ratios of the tools among these rows, in their order."""
    tools = _order(rows)
    losses, validated = at_stages(rows, "test_loss"), at_stages(_singles(rows), "loss")
    for stage, table in losses.items():
        # Who had nothing yet is last; where the loss of an answer is not known, none is ranked.
        cv = validated[stage].where(table.notna(), np.inf)
        cv = cv.loc[:, validated[max(losses)].notna().any()].dropna()
        by_cv, n_cv = mean_ranks(cv), len(cv)
        print(f"after {stage:g} s, mean ranks (test: {len(table)} blocks; CV: {n_cv}):")
        for tool, rank in mean_ranks(table).sort_values().items():
            cv = f"{by_cv[tool]:.2f}" if n_cv and tool in by_cv else "-"
            print(f"  {tool:40} test {rank:.2f}  CV {cv}")
    print("median test loss at the end, error in percent or 1 - R2:")
    print(medians(rows).reindex(columns=tools).to_string(float_format="%.4g"))
    for tool in tools:
        if not tool.startswith("ours"):
            continue
        for model in ("answer", "single"):
            mine = _final(rows, model).query("tool == @tool")
            others = [(other, "answer") for other in tools if other != tool]
            others += [(tool, "single")] if model == "answer" else []
            for other, of in others if len(mine) else ():
                theirs = _final(rows, of)
                _print_ratio(f"{tool} {model}", mine, other, of, theirs[theirs["tool"] == other])


def parts(rows: pd.DataFrame) -> None:
    """Print the ratio of the first tool's test losses to each other's, at each stage."""
    answers = rows[rows["model"] == "answer"]
    first, *others = _order(rows)
    for other in others:
        found = []
        for stage, at_stage in answers.groupby("stage"):
            mine, theirs = (at_stage[at_stage["tool"] == tool] for tool in (first, other))
            mean, error, n = ratio(mine, theirs)
            found.append(f"{stage:g} s {mean:.3f} ({error:.3f}, {n} tables)")
        print(f"{first} / {other}: {', '.join(found)}")


def goals(rows: pd.DataFrame) -> Goals:
    """Hold the first of our tools against the others, as far as they are there."""
    reached, tools = Goals(), _order(rows)
    ours = next((tool for tool in tools if tool.startswith("ours")), None)
    if ours is None:
        return reached
    for stage, table in at_stages(rows, "test_loss").items():
        if ours in table and table.shape[1] > 1:
            others = [t for t in table if t == ours or not t.startswith("ours")]
            ranks = mean_ranks(table[others])
            what = f"mean rank after {stage:g} s, less the best other's"
            reached.at_most(what, ranks[ours] - ranks.drop(ours).min(), 0.0)
    final = _final(rows, "answer")
    by_table = medians(rows)
    for other in (t for t in tools if t.split(":")[0] == "flaml"):
        both = by_table[[ours, other]].dropna()
        share = float((both[ours] < both[other]).mean())
        reached.at_least(f"share of tables with a median below {other}'s", share, 0.501)
    for other in (t for t in tools if t.split(":")[0] == "autogluon"):
        for model in ("answer", "single"):
            mine = _final(rows, model).query("tool == @ours")
            if len(mine):
                found, _, _ = ratio(mine, final[final["tool"] == other])
                reached.at_most(f"{ours} {model} / {other}", found, GOAL_RATIO)
    return reached


def _print_ratio(name: str, mine: pd.DataFrame, other: str, of: str, theirs: pd.DataFrame) -> None:
    if len(theirs):
        found, error, n = ratio(mine, theirs)
        print(f"{name} / {other} {of}: {found:.3f} (standard error {error:.3f}, {n} tables)")


def _final(rows: pd.DataFrame, model: str) -> pd.DataFrame:
    """Rows at the end; where the answer is no ensemble it is the best single pipeline too."""
    of_model = rows[rows["model"] == "answer"] if model == "answer" else _singles(rows)
    return of_model[of_model["stage"] == of_model["budget"]]


def _singles(rows: pd.DataFrame) -> pd.DataFrame:
    """The best single pipeline in place of an ensemble, which has no cross-validated loss."""
    first = rows.sort_values("model", ascending=False, kind="stable")
    kept = first.drop_duplicates(["tool", *BLOCK, "stage"]).sort_index()
    return kept.assign(model="answer")


def _table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    values: Any = rows.assign(**{column: rows[column].astype(float)})
    return values.pivot_table(index=BLOCK, columns="tool", values=column)


def _order(rows: pd.DataFrame) -> list[str]:
    return list(rows["tool"].drop_duplicates())
