"""What decides a step's result besides its values: versions, and the texts of our own steps."""

import numpy as np
import pytest
import scipy
import sklearn

from prefect_tune.tasks.fitting import versions as own_code
from prefect_tune.tasks.fitting.versions import digest_of_own, library_of

SOLVERS = [f"numpy {np.__version__}", f"scipy {scipy.__version__}"]
OWN = "prefect_tune.tasks.catalogue.preparation.make_imputer"
REPAIRS = "prefect_tune.tasks.repairs.REPAIRS"


@pytest.fixture(autouse=True)
def forgetful() -> None:
    for cached in (digest_of_own, own_code._imported, own_code._text):
        cached.cache_clear()


def test_versions_of_numpy_and_scipy_are_in_keys_of_scikit_learns_steps() -> None:
    library = library_of("sklearn.linear_model.LogisticRegression", lambda: None)
    assert library.split(", ") == [f"sklearn {sklearn.__version__}", *SOLVERS]


def test_a_step_of_ours_enters_by_its_text_and_the_versions_below_it() -> None:
    library = library_of(OWN, lambda: None).split(", ")
    assert library == [
        f"prefect_tune {digest_of_own(OWN)}", *SOLVERS, f"sklearn {sklearn.__version__}"
    ]  # fmt: skip


def test_repairs_of_ours_in_front_of_a_step_enter_by_their_text() -> None:
    library = library_of("sklearn.naive_bayes.MultinomialNB", lambda: None, repaired=True)
    assert f"prefect_tune {digest_of_own(REPAIRS)}" in library.split(", ")


@pytest.mark.parametrize(
    "changed",
    ["prefect_tune.tasks.repairs", "prefect_tune.tasks.catalogue.construction"],
)
def test_the_digest_changes_with_the_code_of_the_module_and_of_what_it_imports(
    monkeypatch, changed
) -> None:
    before, of_others = digest_of_own(REPAIRS), digest_of_own(OWN)
    text = own_code._text

    def edited(module: str) -> str:
        return text(module) + ("\nedited = 1" if module == changed else "")

    digest_of_own.cache_clear()
    monkeypatch.setattr(own_code, "_text", edited)
    assert digest_of_own(REPAIRS) != before
    assert digest_of_own(OWN) == of_others


def test_no_module_of_ours_is_without_text() -> None:
    assert "def make_imputer" in own_code._text(OWN.rpartition(".")[0])
