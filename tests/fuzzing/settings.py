"""Parameters of the flow `tune`: JSON at random, up to the point where the flow starts."""

from inspect import signature
from typing import Any

from flow_studies import prepare_study
from hypothesis import strategies as st
from prefect.exceptions import ParameterTypeError

from fuzzing.ground import REFUSALS, Ground, check_message, files_in, studies_in
from fuzzing.values import documents
from prefect_tune.flows.tune import tune

_DEFAULTS = {name: p.default for name, p in signature(tune.fn).parameters.items()}
_USUAL: dict[str, tuple[Any, ...]] = {
    "target": ("target", "count", "a", "colour"),
    "splits": ("ignore",),
    "test_size": (0.1, 0.5),
    "folds": (2, 5),
    "holdout": (0.3,),
    "group": ("count",),
    "time": ("count",),
    "gap": ("1d",),
    "drop": (["a"], ["a", "b", "c", "count", "colour"], ["colour", "colour"]),
    "categorical": (["count"], ["a"]),
    "space": ("small", "flash", "regression", "healthcare"),
    "method": ("flash", "random", "admm", "smac", "tpe", "fabolas", "hyperband", "bapi", "esmbo"),
    "metric": ("auroc", "f1", "r2", "neg_log_loss", "neg_mean_squared_error", "average_precision"),
    "positive": ("yes", "no"),
    "constraint": (["latency_us<=50"], ["disparate_impact(count, bins=3:6)<=60"]),
    "ensemble": ("single", "auto", "agnostic", 3),
    "epochs": (10,),
    "option": ({"variant": "paper"}, {"r": 5}, {"eta": 3}),
    "budget": ("30m",),
    "trial_timeout": ("1s",),
    "trial_memory": ("1GB",),
    "cache_budget": ("1GB", "0B"),
    "task_runs": ("misses",),
    "input": ("stored",),
    "format": ("table", "events", "omop"),
    "study": ("s",),
}


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Parameters of which some are as usual and some are any JSON."""
    names = draw(st.lists(st.sampled_from(sorted(_DEFAULTS)), max_size=5, unique=True))
    given: dict[str, Any] = {"data": "table.csv", "target": "target", "space": "small"}
    for name in names:
        usual = st.sampled_from(_USUAL.get(name, (None,)))
        given[name] = draw(usual | usual | documents())
    return given


def check(ground: Ground, given: dict[str, Any]) -> bool:
    """Prepare a study; whether it was accepted."""
    with ground.case() as folder:
        store = folder / "store"
        (folder / "table.csv").symlink_to(ground.table)
        given = {"store": str(store), **given}
        try:
            values = _DEFAULTS | tune.validate_parameters(given)
            prepare_study(values)
        except ParameterTypeError:
            return False
        except REFUSALS as error:
            check_message(str(error))
            if given["store"] == str(store):
                assert studies_in(store) == set()
                assert files_in(store) <= {"store.json"}
            return False
        return True
