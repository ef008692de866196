"""One thread, whichever libraries there are by then."""

import os
import subprocess
import sys

import pytest
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier

from prefect_tune.tasks import threads
from prefect_tune.tasks.threads import one_thread, with_one_thread

LATE = """
from threadpoolctl import threadpool_info
from prefect_tune.tasks.threads import one_thread

with one_thread():
    assert threadpool_info() == []
import numpy

def counts():
    return {library["num_threads"] for library in threadpool_info()}

before = counts()
assert before
with one_thread():
    assert counts() == {1}
assert counts() == before
"""


LIGHTGBM = """
import os, sys
import numpy as np
from sklearn.base import BaseEstimator
from prefect_tune.tasks.threads import one_thread, with_one_thread

X = np.random.default_rng(0).normal(size=(20_000, 20))
y = X[:, 0] > 0

class Own:
    def fit(self, X, y):
        import lightgbm
        lightgbm.train({"verbose": -1}, lightgbm.Dataset(X, y), 20)

def threads():
    return len(os.listdir("/proc/self/task"))

with one_thread():
    if sys.argv[1] == "native":
        estimator = Own()
    else:
        from lightgbm import LGBMClassifier
        estimator = LGBMClassifier(n_estimators=20, verbose=-1)
    before = threads()
    with_one_thread(estimator).fit(X, y)
    assert threads() == before, (before, threads())
assert "OMP_NUM_THREADS" not in os.environ
"""


def run_fresh(script: str, *arguments: str, **variables: str) -> None:
    """Run a script in a process whose environment says nothing of threads."""
    environment = {k: v for k, v in os.environ.items() if k not in threads.THREAD_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_library_that_was_imported_since_has_one_thread_too() -> None:
    run_fresh(LATE, OPENBLAS_NUM_THREADS="2")


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("way", ["native", "estimator"])
def test_lightgbm_works_with_one_thread_where_it_is_loaded_late(way) -> None:
    run_fresh(LIGHTGBM, way)


class TellsWhatWasSet:
    """An estimator as CatBoost's are."""

    def __init__(self, depth=None, thread_count=None) -> None:
        self.set = {"depth": depth} | ({"thread_count": thread_count} if thread_count else {})

    def get_params(self, deep):  # noqa: ARG002
        return self.set

    def set_params(self, **parameters):
        self.set |= parameters
        return self


def test_a_number_of_threads_that_was_left_open_is_one_and_others_stay() -> None:
    inner = RandomForestClassifier()
    outer = with_one_thread(BaggingClassifier(inner, n_jobs=2))
    assert (outer.n_jobs, inner.n_jobs) == (2, 1)
    assert with_one_thread(TellsWhatWasSet()).set == {"depth": None, "thread_count": 1}
    assert with_one_thread(TellsWhatWasSet(thread_count=3)).set["thread_count"] == 3
    assert with_one_thread("no estimator") == "no estimator"


def test_variables_come_back_when_the_last_thread_leaves(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    second.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_libraries_are_looked_for_again_only_when_modules_were_imported(monkeypatch) -> None:
    found = []

    class Looked(threads.ThreadpoolController):
        def __init__(self) -> None:
            found.append(len(sys.modules))
            super().__init__()

    monkeypatch.setattr(threads, "ThreadpoolController", Looked)
    threads._controller.cache_clear()
    for _ in range(3):
        with one_thread():
            pass
    assert len(found) == 1
    monkeypatch.setitem(sys.modules, "a_module_with_a_library", pytest)
    for _ in range(3):
        with one_thread():
            pass
    assert len(found) == 2
    threads._controller.cache_clear()
