"""Areas under the ROC curve, and differences of them with bootstraps over patients."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from machine import Goals
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

__all__ = ["areas", "differences", "goals", "report"]

DRAWS = 2_000
_AT_ONCE = 250
"""Draws that are scored together."""


def areas(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the area of each tool (a column) by table and split."""
    found = [
        {"table": table, "split": split, "tool": tool,
         "area": roc_auc_score(run["truth"], run["score"])}
        for (table, split, tool), run in rows.groupby(["table", "split", "tool"], sort=False)
    ]  # fmt: skip
    by_run = pd.DataFrame(found).pivot_table(index=["table", "split"], columns="tool")["area"]
    return by_run.reindex(columns=rows["tool"].unique())


def differences(
    rows: pd.DataFrame, ours: str, peer: str, n_draws: int = DRAWS
) -> dict[str, tuple[float, float]]:
    """Return, by table, the mean over splits of the area's difference, and its standard error.

    The error is the deviation over draws of patients with replacement, the same draw for both tools
    and all splits of a table, since a patient may test in several.
    """
    found = {}
    for table, of_table in rows.groupby("table", sort=False):
        patients = pd.Index(of_table["patient"].unique())
        generator = np.random.default_rng(0)
        shares = np.full(len(patients), 1 / len(patients))
        counts = generator.multinomial(len(patients), shares, size=n_draws).astype(np.float64)
        counts = np.vstack((np.ones(len(patients)), counts))  # the first has each patient once
        both = of_table[of_table["tool"].isin([ours, peer])]
        tools_of = both.groupby("split")["tool"].nunique()
        splits = tools_of.index[tools_of == 2]
        made = [
            _areas(of_table[(of_table["split"] == split) & (of_table["tool"] == tool)], patients,
                   counts) * sign
            for split in splits for tool, sign in ((ours, 1), (peer, -1))
        ]  # fmt: skip
        if made:
            drawn = np.sum(made, axis=0) / len(splits)
            found[str(table)] = float(drawn[0]), float(np.std(drawn[1:], ddof=1))
    return found


def _areas(run: pd.DataFrame, patients: pd.Index, counts: NDArray[np.float64]) -> NDArray:
    """Return the area of a run with each draw's weights, shape (draws,)."""
    truth, score = run["truth"].to_numpy(bool), run["score"].to_numpy(np.float64)
    weights = counts[:, patients.get_indexer(run["patient"])]
    is_above = np.heaviside(score[truth][:, None] - score[~truth][None, :], 0.5)
    parts = []
    for first in range(0, len(weights), _AT_ONCE):
        positive = weights[first : first + _AT_ONCE, truth]
        negative = weights[first : first + _AT_ONCE, ~truth]
        above = np.einsum("dn,dn->d", positive @ is_above, negative)
        parts.append(above / (positive.sum(axis=1) * negative.sum(axis=1)))
    return np.concatenate(parts)


def report(rows: pd.DataFrame) -> None:
    """Print the areas by split, their means, the seconds, and the differences to the first tool."""
    found = areas(rows)
    print("AUROC of the test patients:")
    print(found.to_string(float_format="%.4f"))
    print("means over splits:")
    print(found.groupby("table", sort=False).mean().to_string(float_format="%.4f"))
    runs = rows.drop_duplicates(["table", "split", "tool"])
    print("mean seconds, and the largest load before or after a run:")
    seconds = runs.pivot_table(index="table", columns="tool", values="seconds", sort=False)
    print(seconds.to_string(float_format="%.0f"), f"\n{runs['load'].max():.2f}")
    tools = list(rows["tool"].unique())
    for ours in (tool for tool in tools if tool.startswith("ours")):
        for peer in (tool for tool in tools if tool != ours):
            for table, (mean, error) in differences(rows, ours, peer).items():
                print(f"{table}: {ours} - {peer}: {mean:+.4f} +- {error:.4f}")


def goals(rows: pd.DataFrame, peers: Sequence[str]) -> Goals:
    """Hold our first tool against peers: on no set a standard error worse, better on average."""
    reached = Goals()
    ours = next((tool for tool in rows["tool"].unique() if tool.startswith("ours")), None)
    if ours is None:
        return reached
    for peer in peers:
        found = differences(rows, ours, peer)
        for table, (mean, error) in found.items():
            what = f"{table}: AUROC above {peer}'s, in standard errors"
            reached.at_least(what, mean / error if error else np.sign(mean) * np.inf, -1.0)
        if found:
            mean = float(np.mean([difference for difference, _ in found.values()]))
            reached.at_least(f"mean over sets of AUROC above {peer}'s", mean, 0.0)
    return reached
