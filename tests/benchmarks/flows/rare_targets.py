"""How often a model is called useless, on 30 tables with a rare target, half of them pure noise.

    tests/benchmarks/run flows/rare_targets [--tables 30] [--trials 12]

Each table has 60 positive rows, .5 to 10 % of all rows. With signal, the true score has an AUROC of
.75 to .85. Of 15 tables without signal at least 14 are to be called useless, and of 15 with signal
at most one. The metric is auroc. With error, each table is to name better metrics at import.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from flow_studies import prepare_study
from machine import Goals, describe
from sklearn.metrics import roc_auc_score

from prefect_tune import local_server, tune
from prefect_tune.flows.options.declared import OPTIONS

POSITIVE, FEATURES = 60, 8
LEAST_AUROC = 0.75


def table(seed: int, *, has_signal: bool) -> tuple[pd.DataFrame, float]:
    """A table whose score is observed or not, and the AUROC of the score."""
    rng = np.random.default_rng(seed)
    n = int(POSITIVE / rng.uniform(0.005, 0.1))
    X = rng.normal(size=(n, FEATURES))
    score = X[:, :3] @ [1.0, 0.6, 0.3] if has_signal else rng.normal(size=n)
    for noise in (1.8, 1.6, 1.4, 1.2):  # positive rows have the largest noisy scores
        y = np.zeros(n, dtype=int)
        y[np.argsort(-score - noise * np.std(score) * rng.normal(size=n))[:POSITIVE]] = 1
        area = float(roc_auc_score(y, score))
        if area >= LEAST_AUROC:
            break
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(FEATURES)]).assign(y=y), area


def main() -> None:
    """Print one line per table, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--trials", type=int, default=12)
    options = parser.parse_args()
    print(describe())
    called, advised = {True: [], False: []}, []
    with tempfile.TemporaryDirectory() as folder, local_server():
        for seed in range(options.tables):
            frame, area = table(seed, has_signal=bool(seed % 2))
            store = str(Path(folder) / str(seed))
            frame.to_csv(file := Path(folder) / f"t{seed}.csv", index=False)
            given = {"data": str(file), "target": "y", "trials": 1, "store": store}
            prepared = prepare_study({**dict.fromkeys(OPTIONS), **given, "metric": "error"})
            advised.append(any("average_precision" in str(note) for note in prepared.notes))
            prepared.release()
            prepared.store.close()
            given |= {"trials": options.trials, "metric": "auroc", "workers": 1, "seed": seed}
            check = tune(**given)["usefulness"]
            called[bool(seed % 2)].append(check["is_useless"])
            kind = "signal" if seed % 2 else "noise"
            print(
                f"{kind:6} {len(frame):6,} rows, true AUROC {area:.2f}: 1 - auroc "
                f"{check['loss']:.2f}, useless {check['is_useless']}",
                flush=True,
            )
    goals = Goals()
    n = options.tables // 2
    goals.at_most("noise not called useless", called[False].count(False), n / 15)
    goals.at_most("signal called useless", called[True].count(True), n / 15)
    goals.at_most("tables without advice on the metric", advised.count(False), 0)
    goals.end()


if __name__ == "__main__":
    main()
