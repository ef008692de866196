"""The output of a study on the page about results; `option_tables.py` rewrites it."""

import re
from dataclasses import replace

from documents.pages import DOCS
from flow_studies import USELESS, study_view

from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.deployments.views.study import print_summary
from prefect_tune.optimizers.documents import to_document

__all__ = ["RESULTS", "study_output", "with_output"]

RESULTS = DOCS / "pages" / "using" / "results.md"
PIPELINE = {
    "impute": {"algorithm": "median", "hyperparameters": {}},
    "encode": {"algorithm": "one_hot", "hyperparameters": {"min_frequency": 1}},
    "rescale": {"algorithm": "standardize", "hyperparameters": {}},
    "fit model": {"algorithm": "logistic_regression", "hyperparameters": {"C": 1.0}},
}
USEFUL = replace(USELESS, is_useless=False, constant_loss=0.5, rare_class=None)
BEST = {
    "trial": 0, "loss": 0.169, "fidelity": "", "constraints": {}, "configuration": PIPELINE
}  # fmt: skip


def study_output() -> str:
    """Return the lines of a study of a table, as `run` prints them at the end."""
    view = study_view(
        study="responders", method="flash", metric="auroc", incumbent=BEST, model_trial=BEST,
        n_trials=28, n_complete=28, n_partial=19, n_failed=0, n_begun=20, n_waiting=0,
        constraints={},
        test_loss=0.193, single_best_test_loss=0.193,
        usefulness=to_document(USEFUL),
        ensemble={"kind": "single", "members": [{"trial": 0, "weight": 1.0}]},
        decisions={"race": {"begun": 20, "stopped": 11}},
        cache={"hits": 40, "misses": 94, "size_bytes": 65_000_000, "seconds_saved": 5.7},
        seconds={
            "total": 60.0, "evaluating": 39.0, "asking": 1.0, "budget": None, "over_budget": None
        },
    )  # fmt: skip
    with CONSOLE.capture() as printed:
        print_summary(view)
    return "".join(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def with_output(page: str) -> str:
    """Return the page with the present output."""
    block = f"<!-- output of a study -->\n\n```\n{study_output()}```\n\n<!-- end of output -->"
    written = r"<!-- output of a study -->.*?<!-- end of output -->"
    return re.sub(written, lambda _: block, page, flags=re.DOTALL)
