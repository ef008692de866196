"""ESMBO beside the best single model of Bayesian optimisation, of random search, and ERS.

    tests/benchmarks/run tasks/ensembles_on_tables --data FOLDER --home FOLDER
        [--seeds 1] [--trials 150] [--pairs svm:space_ga,mlp:wind]

As in the paper (Lacoste et al. 2014, section 6), on pairs of a table and a space of one model. Each
search gets 150 trials, scored on held-out rows. What it ends in is refitted on all training rows
and scored on test rows: the best single model of JOPT (SMBO) and of random search (RS), and the
agnostic ensembles of ESMBO's and of the random trials (ERS), whose weights are of 500 fresh
bootstraps. Errors of classes in percent, squares of standardised numbers. A quarter of the rows is
for testing; of larger tables 2,000 rows are drawn, and half of those. Several seeds of a pair count
as one data set with all their test rows.

The data folder has tables as NAME.csv.gz with the column `target`; the home keeps what is done, so
that an interrupted benchmark goes on where it was, and so that more seeds or pairs extend it.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import KeptRows
from machine import Goals, describe
from paper_statistics import (
    better_by_counts,
    better_in_most,
    better_on_average,
    expected_ranks,
    sign_test,
    wins,
)
from table_studies import Pair, TableStudy
from threadpoolctl import threadpool_limits

PAIRS = (
    "svm:ionosphere", "svr:fri_c2_1000_10_reg", "random_forest:sonar", "mlp:heart_statlog",
    "gradient_boosting:heart_statlog", "random_forest_regressor:fri_c2_1000_10_reg",
    "svm:space_ga", "svr:cal_housing_reg", "svm:vehicle", "svr:cpu_small_reg",
    "svm:delta_ailerons", "random_forest:wind", "mlp:vehicle", "gradient_boosting:pc4",
    "gradient_boosting_regressor:fri_c2_1000_10_reg", "random_forest_regressor:cal_housing_reg",
    "mlp:wind", "gradient_boosting:space_ga", "gradient_boosting_regressor:cpu_small_reg",
)  # fmt: skip
"""Space and table, about by their cost."""
SEARCHES: Mapping[str, Mapping[str, Any]] = {"esmbo": {}, "jopt": {"n_startup": 5}, "ers": {}}
ENDS = {
    "ESMBO": ("esmbo", "agnostic"),
    "SMBO": ("jopt", "single"),
    "RS": ("ers", "single"),
    "ERS": ("ers", "agnostic"),
}
"""What each method searches by, and what it ends in."""
N_ROWS = 2_000


def ended(pair: Pair, kept: KeptRows, chosen: argparse.Namespace) -> dict[str, Any]:
    """What each method ends in: test losses by row, members, and how many they are worth."""
    study = cache(lambda: TableStudy(pair, chosen.data, chosen.home, N_ROWS))
    key = {**asdict(pair), "trials": chosen.trials}

    def searched(method: str) -> dict[str, Any]:
        return {"value": study().search(method, SEARCHES[method], chosen.trials)}

    def tested(method: str, end: str) -> dict[str, Any]:
        by_search = {"key": {**key, "search": method}}
        trials = kept.get_or_make(by_search, partial(searched, method))["value"]["trials"]
        return {"value": outcome_of(study(), trials, end)}

    return {
        name: kept.get_or_make({"key": {**key, "end": name}}, partial(tested, *ends))["value"]
        for name, ends in ENDS.items()
    }


def outcome_of(study: TableStudy, trials: Sequence[Mapping[str, Any]], end: str) -> dict[str, Any]:
    """Refit the best trial or the agnostic ensemble, and test it."""
    done = [trial for trial in trials if trial["loss"] is not None]
    members, weights = [int(np.argmin([trial["loss"] for trial in done]))], [1.0]
    if end == "agnostic":
        members, weights = study.agnostic(done)
    return {
        "losses": study.test_losses([done[member] for member in members], weights),
        "members": len(members),
        "effective": float(1 / np.square(weights).sum()),
        "failed": len(trials) - len(done),
    }


def better(first: np.ndarray, second: np.ndarray, *, is_of_classes: bool) -> float:
    """How likely a method is better on a data set, by the losses of test rows."""
    differences = first - second
    if is_of_classes or not differences.std():
        return better_by_counts((differences < 0).sum(), (differences > 0).sum())
    return better_on_average(differences)


def row(pair: str, outcomes: Sequence[Mapping[str, Any]]) -> str:
    """Test losses of the methods over all seeds, and the ensembles of ESMBO and ERS."""
    unit = 100 if outcomes[0]["RS"]["is_of_classes"] else 1
    means = [unit * np.mean([np.mean(o[name]["losses"]) for o in outcomes]) for name in ENDS]
    sizes = [
        f"{np.mean([o[name]['members'] for o in outcomes]):5.0f} "
        f"{np.mean([o[name]['effective'] for o in outcomes]):5.1f}"
        for name in ("ESMBO", "ERS")
    ]
    failed = max(o[name]["failed"] for o in outcomes for name in ENDS)
    cells = "".join(f"{mean:9.4f}" for mean in means)
    return f"{pair:<50}{cells}  {'  '.join(sizes)}  {failed:4d}"


def compare(by_pair: Mapping[str, Sequence[Mapping[str, Any]]], goals: Goals) -> None:
    """Print the statistics of the paper, section 6.2, and check the goals."""
    names, n = list(ENDS), len(ENDS)
    frequencies, sure = np.zeros((len(by_pair), n, n)), np.full((len(by_pair), n, n), 0.5)
    for place, outcomes in enumerate(by_pair.values()):
        means = [[np.mean(o[name]["losses"]) for name in names] for o in outcomes]
        frequencies[place] = wins(np.array(means)).mean(axis=0)
        rows = np.array([np.concatenate([o[name]["losses"] for o in outcomes]) for name in names])
        of_classes = bool(outcomes[0]["RS"]["is_of_classes"])
        for a in range(n):
            for b in set(range(n)) - {a}:
                sure[place, a, b] = better(rows[a], rows[b], is_of_classes=of_classes)
    rho, won = frequencies.mean(axis=0), (frequencies > 0.5).sum(axis=0)
    ranks = expected_ranks(rho)
    print(f"{len(by_pair)} pairs: expected rank; against each other method the share of pairs won,")
    print("p of the sign test, and the Poisson-binomial probability of being better")
    for a, name in enumerate(names):
        cells = [
            f"{names[b]} {rho[a, b]:.2f} p={sign_test(won[a, b], won[b, a]):.3f} "
            f"PB={better_in_most(sure[:, a, b]):.3f}"
            for b in range(n)
            if b != a
        ]
        print(f"  {name:<6} {ranks[a]:.2f}   {'; '.join(cells)}")
    goals.at_most(
        "ESMBO's expected rank, less the least of the others", ranks[0] - ranks[1:].min(), 0
    )
    goals.at_least("Poisson-binomial, ESMBO over SMBO", better_in_most(sure[:, 0, 1]), 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    chosen = parser.parse_args()
    print(describe(), flush=True)
    kept, by_pair = (
        KeptRows(chosen.home / "outcomes.jsonl", "key"),
        dict[str, list[dict[str, Any]]](),
    )
    for seed in range(chosen.seeds):
        for text in chosen.pairs.split(","):
            space, table = text.split(":")
            outcomes = ended(Pair(table, space, seed), kept, chosen)
            for outcome in outcomes.values():
                outcome["is_of_classes"] = set(outcome["losses"]) <= {0.0, 1.0}
            by_pair.setdefault(text, []).append(outcomes)
            print(f"  {row(f'{text} {seed}', [outcomes])}  {describe()}", flush=True)
    heads = "".join(f"{name:>9}" for name in ENDS)
    print(f"{'test loss of each method':<50}{heads}  members and their worth: ESMBO, ERS; failed")
    for pair, outcomes in by_pair.items():
        print(row(pair, outcomes))
    goals = Goals()
    compare(by_pair, goals)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
