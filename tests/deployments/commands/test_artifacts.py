"""Looking into the store."""

import json
import pickle
import shutil
import sqlite3
from contextlib import closing

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from inputs import write_table

from prefect_tune.tasks.data.split import REFIT

pytestmark = pytest.mark.usefixtures("server")


def test_artifacts_are_listed_shown_counted_and_verified(studied) -> None:
    rows = studied.json("artifacts", "ls")
    assert set(rows[0]) == {
        "key", "study", "step", "algorithm", "size_bytes", "cost_seconds", "created", "last_used",
        "hits",
    }  # fmt: skip
    used = {s["key"] for t in studied.json("trials", "s") for s in t["evaluation"]["steps"]}
    assert {row["key"] for row in studied.json("artifacts", "ls", "--study", "s")} >= used
    key = rows[0]["key"]
    shown = studied.json("artifacts", "show", key[:16])
    assert shown["key"] == key
    assert shown["lineage"]["steps"][-1]["step"] == rows[0]["step"]
    stats = studied.json("artifacts", "stats")
    assert set(stats) >= {
        "size_bytes", "records_bytes", "budget_bytes", "count", "hits", "misses", "evicted",
        "refused",
    }  # fmt: skip
    assert stats["count"] == len(rows)
    found = studied.json("artifacts", "verify")
    assert set(found) == {"checked", "damaged", "missing", "orphans"}
    assert found["checked"] > len(rows)
    assert found["damaged"] == found["missing"] == found["orphans"] == []
    for command in (("ls",), ("show", key), ("stats",), ("verify",)):
        assert studied.run("artifacts", *command).exit_code == 0


def test_pruning_evicts_from_the_cache_and_leaves_records(studied, tmp_path) -> None:
    home = CommandLine(shutil.copytree(studied.run.home, tmp_path / "home"))
    stats = home.json("artifacts", "stats")
    kept = stats["size_bytes"] // 2
    pruned = home.json("artifacts", "prune", "--to", f"{kept}B")
    assert pruned["evicted"] > 0
    assert pruned["size_bytes"] <= kept
    assert home.json("artifacts", "stats")["records_bytes"] == stats["records_bytes"]


def test_artifacts_are_filtered_and_sorted(studied) -> None:
    rows = studied.json("artifacts", "ls", "--sort", "size", "--limit", 4)
    assert [r["size_bytes"] for r in rows] == sorted((r["size_bytes"] for r in rows), reverse=True)
    assert len(rows) == 4
    models = studied.json("artifacts", "ls", "--step", "fit model", "--study", "s", "--limit", 2)
    assert {r["step"] for r in models} == {"fit model"}
    only = studied.json("artifacts", "ls", "--algorithm", models[0]["algorithm"])
    assert {r["algorithm"] for r in only} == {models[0]["algorithm"]}


def test_what_is_in_an_artifact_is_shown_and_exported(studied, tmp_path) -> None:
    used = {s["key"] for t in studied.json("trials", "s") for s in t["evaluation"]["steps"]}
    encoded = next(
        row
        for row in studied.json("artifacts", "ls")
        if row["key"] in used and row["step"] == "encode"
    )
    shown = studied.json("artifacts", "show", encoded["key"])
    train = shown["contents"]["train"]
    assert train["shape"] == [shown["facts"]["rows"], shown["facts"]["columns"]]
    assert len(train["rows"]) == 5
    assert set(train["columns"]["0"]) == {"min", "mean", "max", "share_zero"}
    assert shown["contents"]["estimator"]["type"].startswith("sklearn.")
    assert "n_features_in_" in shown["contents"]["estimator"]["fitted"]
    assert shown["trials"][0]["study"] == "s"
    assert all(child["step"] != encoded["step"] for child in shown["children"])
    assert studied.run("artifacts", "show", encoded["key"]).exit_code == 0

    out = tmp_path / "train.parquet"
    assert studied.run("artifacts", "export", encoded["key"], out).exit_code == 0
    assert len(pd.read_parquet(out)) == train["shape"][0]
    assert len(duckdb.read_parquet(str(out))) == train["shape"][0]
    about = json.loads(pq.read_schema(out).metadata[b"prefect_tune"])
    assert about["key"] == encoded["key"]
    assert about["shape"] == train["shape"]
    assert about["lineage"]["steps"][-1]["step"] == encoded["step"]
    estimator = tmp_path / "encoder.pkl"
    studied.run("artifacts", "export", encoded["key"], estimator, "--part", "estimator")
    assert hasattr(pickle.loads(estimator.read_bytes()), "transform")
    refused = studied.run("artifacts", "export", encoded["key"], out, "--part", "tail")
    assert refused.exit_code == 2
    assert "has no part 'tail'; it has" in refused.stderr


def test_the_final_model_is_of_all_training_rows_and_others_of_a_fold(studied) -> None:
    with closing(sqlite3.connect(studied.run.home / "store" / "index.sqlite")) as index:
        keys = dict(index.execute("SELECT fold, key FROM artifacts WHERE step = 'fit model'"))
    shown = {fold: studied.run("artifacts", "show", key).stdout for fold, key in keys.items()}
    assert "all training rows, the final model, made by study s" in shown.pop(REFIT)
    assert all(f", fold {fold}, made by study s" in text for fold, text in shown.items())


def test_a_damaged_store_is_found_and_repaired(run, tmp_path) -> None:
    run("run", write_table(tmp_path), "--target", "target", "--trials", 1, "--quiet")
    part = next((run.home / "store" / "cache").rglob("train.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    found = run("artifacts", "verify", "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["damaged"]) == 1
    assert run("artifacts", "verify", "--repair").exit_code == 0
    assert run.json("artifacts", "verify")["damaged"] == []
