"""The ranking of tools: ranks at each stage, medians by table, and ratios with standard errors."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from machine import Goals

__all__ = [
    "METHODS",
    "PARTS",
    "RECORDED",
    "at_stages",
    "goals",
    "mean_ranks",
    "parts",
    "ratio",
    "report",
]

RECORDED = Path(__file__).with_name("recorded_runs.parquet")
"""Rows of the runs that README speaks of."""
PARTS = Path(__file__).with_name("recorded_parts.parquet")
"""Rows of our default and of our default without each of its parts."""
METHODS = Path(__file__).with_name("recorded_methods.parquet")
"""Rows of our default and of our default with other methods."""
BLOCK = ["table", "split"]
HALF = 50.0
"""Percent of half a row; it is added to an error before ratios are taken."""
GOAL_RATIO = 0.95
"""Largest ratio of our test loss to AutoGluon's."""


def at_stages(rows: pd.DataFrame, column: str) -> dict[float, pd.DataFrame]:
    """Return the losses of the tools' answers by stage, block and tool.

    Only tools with answers before the end, and blocks with runs of all these tools, are included.
    Missing or unknown losses are NaN.
    """
    answers = rows[(rows["model"] == "answer") & rows["is_anytime"]]
    whole = _table(answers, "stage").dropna().index
    tools = answers["tool"].unique()
    return {
        stage: _table(answers[answers["stage"] == stage], column).reindex(whole, columns=tools)
        for stage in sorted(answers["stage"].unique())
    }


def mean_ranks(losses: pd.DataFrame) -> pd.Series:
    """Return mean ranks over blocks; equal losses share ranks, and missing losses rank last."""
    return losses.fillna(np.inf).rank(axis=1).mean()


def ratio(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float, int]:
    """Return the geometric mean over tables of the ratio of test losses.

    Args:
        ours: Rows of the first tool at a stage.
        theirs: Rows of the second tool at the same stage.

    Returns:
        The ratio, its standard error over tables, and the number of tables; NaN if unknown.
    """
    pairs = ours.merge(theirs, on=BLOCK, suffixes=("", "_other"))
    added = np.where(pairs["kind"] == "classes", HALF / pairs["test_rows"], 0.0)
    logs = np.log((pairs["test_loss"] + added) / (pairs["test_loss_other"] + added))
    by_table = logs.groupby(pairs["table"]).mean()
    n, mean = len(by_table), np.exp(by_table.mean())
    error = mean * by_table.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return float(mean), float(error), n


def report(rows: pd.DataFrame) -> None:
    """Print ranks, medians and ratios of the tools in these rows, in order."""
    tools = list(rows["tool"].unique())
    for stage, table in at_stages(rows, "test_loss").items():
        print(f"after {stage:g} s, mean ranks by test loss ({len(table)} blocks):")
        print(mean_ranks(table).sort_values().to_string(float_format="%.2f"))
    models = _final(rows)
    print("median test loss at the end, error in percent or 1 - R2:")
    by_table = _table(models["answer"], "test_loss").groupby("table").median()
    print(by_table.reindex(columns=tools).to_string(float_format="%.4g"))
    answers = dict(list(models["answer"].groupby("tool")))
    for model, of_model in models.items():
        for tool, other in product((t for t in tools if t.startswith("ours")), tools):
            if (model, other) != ("answer", tool):
                found, error, n = ratio(of_model[of_model["tool"] == tool], answers[other])
                print(f"{tool} {model} / {other}: {found:.3f} (s.e. {error:.3f}, {n} tables)")
    first = answers[tools[0]]
    for stage, at_stage in rows[rows["model"] == "answer"].groupby("stage"):
        mine = at_stage[at_stage["tool"] == tools[0]]
        found, error, n = ratio(mine, first)
        print(
            f"{tools[0]} after {stage:g} s / at the end: {found:.3f} (s.e. {error:.3f}, {n} tables)"
        )
        tried = mine.groupby("table")["configurations"].mean()
        print(f"  {tried.min():.0f} to {tried.max():.0f} configurations per table")
    ready = first["handed_over"]
    print(f"{tools[0]}: final model after {ready.min():.0f} to {ready.max():.0f} s")


def parts(rows: pd.DataFrame) -> None:
    """Print the ratio of the first tool's test losses to each other tool's, at each stage."""
    answers = rows[rows["model"] == "answer"]
    first, *others = rows["tool"].unique()
    for other in others:
        found = []
        for stage, at_stage in answers.groupby("stage"):
            mine, theirs = (at_stage[at_stage["tool"] == tool] for tool in (first, other))
            mean, error, n = ratio(mine, theirs)
            found.append(f"{stage:g} s {mean:.3f} ({error:.3f}, {n} tables)")
        print(f"{first} / {other}: {', '.join(found)}")


def goals(rows: pd.DataFrame) -> Goals:
    """Check our first tool against the other tools in the rows."""
    reached, tools = Goals(), list(rows["tool"].unique())
    ours = next((tool for tool in tools if tool.startswith("ours")), None)
    others = [tool for tool in tools if not tool.startswith("ours")]
    if ours is None or not others:
        return reached
    for stage, table in at_stages(rows, "test_loss").items():
        ranks = mean_ranks(table[[t for t in table if t == ours or t in others]])
        what = f"mean rank after {stage:g} s, less the best other's"
        reached.at_most(what, ranks[ours] - ranks.drop(ours).min(), 0.0)
    models = _final(rows)
    answers = models["answer"]
    by_table = _table(answers, "test_loss").groupby("table").median()
    if "flaml" in others:
        both = by_table[[ours, "flaml"]].dropna()
        share = float((both[ours] < both["flaml"]).mean())
        reached.at_least("share of tables with a median below flaml's", share, 0.501)
    for model, of_model in models.items() if "autogluon" in others else ():
        mine = of_model[of_model["tool"] == ours]
        found, _, _ = ratio(mine, answers[answers["tool"] == "autogluon"])
        reached.at_most(f"{ours} {model} / autogluon", found, GOAL_RATIO)
    return reached


def _final(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of answers at the end, and of the best single pipelines.

    An answer without an ensemble is also the best single pipeline.
    """
    final = rows[rows["stage"] == rows["budget"]]
    singles = final.sort_values("model", ascending=False, kind="stable")
    return {
        "answer": final[final["model"] == "answer"],
        "single": singles.drop_duplicates(["tool", *BLOCK]),
    }


def _table(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    values = rows.assign(**{column: rows[column].astype(float)})
    return values.pivot_table(index=BLOCK, columns="tool", values=column)
