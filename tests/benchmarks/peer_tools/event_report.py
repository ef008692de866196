"""AUROC of tools, and differences of AUROC with bootstraps over patients."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from machine import Goals
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

__all__ = ["differences", "goals", "report"]

DRAWS = 2_000
_AT_ONCE = 250
"""Draws that are scored together."""


def differences(rows: pd.DataFrame, ours: str, peer: str) -> dict[str, tuple[float, float]]:
    """Return, by table, the mean over splits of the AUROC difference, and its standard error.

    The error is the deviation over bootstrap samples of patients. Both tools and all splits of a
    table use the same bootstrap samples, since a patient may be a test patient in several splits.
    """
    found = {}
    for table, of_table in rows.groupby("table", sort=False):
        patients = pd.Index(of_table["patient"].unique())
        shares = np.full(len(patients), 1 / len(patients))
        counts = np.random.default_rng(0).multinomial(len(patients), shares, size=DRAWS)
        counts = np.vstack((np.ones(len(patients)), counts))  # the first has each patient once
        made = [
            _areas(run, patients, counts) * (1 if tool == ours else -1)
            for (_, tool), run in of_table.groupby(["split", "tool"])
            if tool in (ours, peer)
        ]
        drawn = np.sum(made, axis=0) / of_table["split"].nunique()
        found[str(table)] = float(drawn[0]), float(np.std(drawn[1:], ddof=1))
    return found


def _areas(run: pd.DataFrame, patients: pd.Index, counts: NDArray[np.float64]) -> NDArray:
    """Return the AUROC of a run in each bootstrap sample, shape (draws,)."""
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
    """Print AUROC by split, means, seconds, and differences to the first tool."""
    found = [
        {"table": table, "split": split, "tool": tool,
         "area": roc_auc_score(run["truth"], run["score"]), "seconds": run["seconds"].iloc[0]}
        for (table, split, tool), run in rows.groupby(["table", "split", "tool"], sort=False)
    ]  # fmt: skip
    by_run = pd.DataFrame(found)
    print("AUROC of the test patients by split, means over splits, and mean seconds:")
    areas = by_run.pivot_table(index=["table", "split"], columns="tool", values="area")
    print(areas.to_string(float_format="%.4f"))
    print(areas.groupby("table").mean().to_string(float_format="%.4f"))
    seconds = by_run.pivot_table(index="table", columns="tool", values="seconds")
    print(seconds.to_string(float_format="%.0f"))
    print(f"largest load before or after a run: {rows['load'].max():.2f}")
    tools = list(rows["tool"].unique())
    for ours in (tool for tool in tools if tool.startswith("ours")):
        for peer in (tool for tool in tools if tool != ours):
            for table, (mean, error) in differences(rows, ours, peer).items():
                print(f"{table}: {ours} - {peer}: {mean:+.4f} +- {error:.4f}")


def goals(rows: pd.DataFrame, peers: Sequence[str]) -> Goals:
    """Check our first tool: at most a standard error worse than peers, and not worse on average."""
    reached = Goals()
    ours = next((tool for tool in rows["tool"].unique() if tool.startswith("ours")), None)
    for peer in peers if ours else ():
        found = differences(rows, str(ours), peer)
        for table, (mean, error) in found.items():
            what = f"{table}: AUROC above {peer}'s, in standard errors"
            reached.at_least(what, mean / max(error, 1e-9), -1.0)
        mean = float(np.mean([difference for difference, _ in found.values()]))
        reached.at_least(f"mean over sets of AUROC above {peer}'s", mean, 0.0)
    return reached
