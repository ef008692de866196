"""Generated cohorts: the planted signal can be found, and nothing else reveals the class."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from prefect_tune.optimizers import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.construction import EventAggregation
from prefect_tune.tasks.data.cohort import (
    LABELS,
    LEAK,
    Cohort,
    CohortSpec,
    cohort_named,
    generate,
    write_meds,
)
from prefect_tune.tasks.data.event_tables import events_table, labels_table
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source

pytestmark = pytest.mark.slow

FAMILIES = ("binary", "count", "sum", "average")


def rows_of(cohort: Cohort) -> tuple[EventRows, np.ndarray]:
    rows, target = labels_table([cohort.labels], "test", None)
    return EventRows.build(events_table([cohort.events], "test")[0], rows), target.to_numpy()


def error_of(X: EventRows, y: np.ndarray, aggregation: str, threshold: int) -> float:
    """Return the percentage of errors in the second half, for a model fitted to the first half."""
    linear = LogisticRegression(max_iter=1000, C=3)
    first, second = np.split(np.arange(len(y)), 2)
    model = make_pipeline(EventAggregation(threshold, aggregation), MaxAbsScaler(), linear)
    model.fit(X.take(first), y[first])
    return 100 * float(np.mean(model.predict(X.take(second)) != y[second]))


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.full if f != "count" else ()) for f in FAMILIES]
)
def test_exhaustive_search_finds_the_planted_aggregation(family) -> None:
    """The planted aggregation wins by 3 to 12 points; the errors are accurate to 1 point."""
    cohort = generate(CohortSpec(family=family, seed=3))
    X, y = rows_of(cohort)
    best = {one: min(error_of(X, y, one, least) for least in (2, 3, 4, 5)) for one in FAMILIES}
    assert cohort.truth["aggregation"] == family
    planted = best.pop(family)
    assert planted + 2 < min(best.values()), best


def test_event_rates_match_the_paper() -> None:
    """The rates are within 5 percent of the training rows in Table 3 of FLASH."""
    cohort = generate(CohortSpec(n_patients=10_000, rare_cover=0.2, noise_codes=9000))
    is_case = (cohort.labels["label"] == "case").to_numpy()
    events = cohort.events[cohort.events["event_id"] != LEAK]
    for prefix, case, control in (("CLASS//", 29.48, 18.11), ("", 52.85, 33.51)):
        found = events[events["event_id"].astype(str).str.startswith(prefix)]
        rate = np.bincount(is_case[found["patient_id"]]) / 5000
        assert rate.tolist() == pytest.approx([control, case], rel=0.05)


def test_cohort_depends_on_the_seed_and_a_larger_cohort_has_the_same_first_patients() -> None:
    again, other = (generate(CohortSpec(n_patients=500, seed=seed, first=200)) for seed in (4, 5))
    small, large = (generate(CohortSpec(n_patients=500, seed=4, first=n)) for n in (200, 350))
    assert set(small.labels["patient_id"]) == set(range(200))
    assert not small.events.equals(other.events)
    pd.testing.assert_frame_equal(small.events, again.events)
    for before, after in ((small.events, large.events), (small.labels, large.labels)):
        pd.testing.assert_frame_equal(before, after[after["patient_id"] < 200])


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("papr", "'paper'"),
        ("demo?famly=sum", "'family'"),
        ("demo?a=1", "n_patients, seed"),
        ("demo?family=cuont", "'count'"),
        *((f"demo?{text}", text) for text in ("seed=x", "rare_cover=nan", "n_patients=10")),
    ],
)
def test_invalid_cohort_is_refused_with_a_remedy(name, named) -> None:
    with pytest.raises((BadInput, UnknownName), match=named):
        cohort_named(name)


def test_cohort_written_as_meds_is_the_same_data(tmp_path) -> None:
    name = "demo?n_patients=300&rare_cover=0.5"
    cohort = generate(cohort_named(name))
    write_meds(cohort, name, tmp_path)
    labels = str(tmp_path / LABELS)
    there = read_source(Source(f"cohort:{name}"))
    given = Source(str(tmp_path), labels=labels, target="categorical_value", splits="ignore")
    assert read_source(given).digest() == there.digest()
    cases = read_source(Source(str(tmp_path), labels=labels))
    assert cases.classes == (False, True)
    assert ((cases.y == 1) == (there.y == 0)).all()
    assert json.loads((tmp_path / "truth.json").read_text()) == cohort.truth
