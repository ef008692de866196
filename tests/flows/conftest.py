"""Studies prepared in separate folders."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
from flow_studies import prepare_study
from inputs import table

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.starting.prepare import PreparedStudy


@pytest.fixture
def prepared(tmp_path, monkeypatch) -> Callable[..., PreparedStudy]:
    """Prepare a study with options, in a folder with `train.csv` and `test.parquet`.

    Each patient has two rows in these files.
    """
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    frame = table().assign(patient=np.arange(150) // 2)
    frame[:100].to_csv("train.csv", index=False)
    frame[100:].to_parquet("test.parquet", index=False)

    def enter(data: str, **options: object) -> PreparedStudy:
        return prepare_study({**dict.fromkeys(OPTIONS), "data": data, **options})

    return enter


@pytest.fixture
def without_libgomp(tmp_path, monkeypatch) -> None:
    """Simulate a system without the OpenMP runtime that LightGBM needs."""
    message = "libgomp.so.1: cannot open shared object file: No such file or directory"
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "lightgbm.py").write_text(f"raise OSError({message!r})")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
