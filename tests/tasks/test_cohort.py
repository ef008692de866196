import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from prefect_tune.optimizers import UnknownName
from prefect_tune.tasks.catalogue.construction import EventAggregation, ToDense
from prefect_tune.tasks.cohort import LEAK, CohortSpec, generate
from prefect_tune.tasks.events import EventRows, events_table, labels_table

FAMILIES = ("binary", "count", "sum", "average")


def rows_of(spec: CohortSpec) -> tuple[EventRows, np.ndarray]:
    cohort = generate(spec)
    rows, target = labels_table([cohort.labels], "test", None)
    return EventRows.build(events_table([cohort.events], "test"), rows), target.to_numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_planted_aggregation_is_the_best_one(family) -> None:
    """Errors are 8 to 11 % with the planted aggregation and 12 to 28 % with the others."""
    X, y = rows_of(CohortSpec(n_patients=3000, family=family, noise_codes=0, seed=3))
    half = np.arange(1500)
    error = {}
    for aggregation in FAMILIES:
        construct = EventAggregation(min_frequency=3, aggregation=aggregation).fit(X.take(half))
        model = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=1000, C=3))
        model.fit(construct.transform(X.take(half)), y[half])
        predicted = model.predict(construct.transform(X.take(half + 1500)))
        error[aggregation] = 100 * np.mean(predicted != y[half + 1500])
    assert min(error, key=error.get) == family, error


def test_the_code_after_the_prediction_time_is_never_seen() -> None:
    X, _ = rows_of(CohortSpec(n_patients=300, noise_codes=10))
    assert LEAK in X.codes
    _, event = X.expand()
    assert LEAK not in set(X.events["code"].to_numpy()[event])


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'count'"):
        generate(CohortSpec(family="cuont"))  # type: ignore[arg-type]


def worked_example() -> EventRows:
    """Two patients; the first has a static fact, code A twice (10 and none) and B once (4)."""
    events = pd.DataFrame(
        [
            (1, pd.NaT, "SEX", 7.0),
            (1, pd.Timestamp(2020, 1, 1), "A", 10.0),
            (1, pd.Timestamp(2020, 1, 2), "A", np.nan),
            (1, pd.Timestamp(2020, 1, 3), "B", 4.0),
            (1, pd.Timestamp(2021, 1, 1), "A", 99.0),
            (2, pd.Timestamp(2020, 1, 1), "A", 2.0),
            (2, pd.Timestamp(2020, 1, 1), "C", np.nan),
        ],
        columns=["subject_id", "time", "code", "value"],
    )
    rows = pd.DataFrame({"subject_id": [1, 2], "prediction_time": pd.Timestamp(2020, 6, 1)})
    return EventRows.build(events, rows)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("binary", [[1, 1, 0, 1], [1, 0, 1, 0]]),
        ("count", [[2, 1, 0, 1], [1, 0, 1, 0]]),
        ("sum", [[11, 4, 0, 1], [2, 0, 1, 0]]),
        ("average", [[10, 4, 0, 1], [2, 0, 1, 0]]),
    ],
)
def test_aggregations_of_a_worked_example(aggregation, expected) -> None:
    X = worked_example()
    construct = EventAggregation(min_frequency=1, aggregation=aggregation).fit(X)
    assert list(construct.get_feature_names_out()) == ["A", "B", "C", "SEX"]
    assert ToDense().fit(X).transform(construct.transform(X)).tolist() == expected


def test_codes_are_chosen_by_the_patients_that_have_them_in_training() -> None:
    X = worked_example()
    assert EventAggregation(min_frequency=2).fit(X).codes_ == ["A"]
    with pytest.raises(ValueError, match="no code is had by 3 patients"):
        EventAggregation(min_frequency=3).fit(X)


def test_an_unknown_aggregation_is_refused() -> None:
    X = worked_example()
    with pytest.raises(ValueError, match="binary, count, sum or average, not 'median'"):
        EventAggregation(1, "median").fit(X).transform(X)
