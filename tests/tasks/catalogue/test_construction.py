import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.construction import EventAggregation, ToDense
from prefect_tune.tasks.data.events import EventRows

AGGREGATIONS = ("binary", "count", "sum", "average")


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
    with pytest.raises(ValueError, match="no code occurs in 3 patients"):
        EventAggregation(min_frequency=3).fit(X)


def test_an_unknown_aggregation_is_refused() -> None:
    X = worked_example()
    with pytest.raises(ValueError, match="binary, count, sum or average, not 'median'"):
        EventAggregation(1, "median").fit(X).transform(X)


def test_a_patient_with_several_rows_counts_once() -> None:
    X = worked_example()
    twice = X.take(np.array([1, 0, 1, 0, 0]))
    assert EventAggregation(min_frequency=2).fit(twice).codes_ == ["A"]
    made = EventAggregation(min_frequency=1, aggregation="sum").fit(twice).transform(twice)
    assert made.toarray()[:, 0].tolist() == [2, 11, 2, 11, 11]


def test_rows_without_any_code_of_training_are_empty() -> None:
    X = worked_example()
    for aggregation in AGGREGATIONS:
        construct = EventAggregation(1, aggregation).fit(X.take(np.array([0])))
        construct.codes_ = ["B"]
        assert construct.transform(X.take(np.array([1]))).toarray().tolist() == [[0]]


def test_trees_take_the_matrix_as_it_is() -> None:
    X = worked_example()
    made = EventAggregation(min_frequency=1).fit(X).transform(X)
    assert made.indices.dtype == made.indptr.dtype == np.int32
    assert made.has_canonical_format


def oracle(X: EventRows, min_frequency: int, aggregation: str) -> tuple[list[str], list[list]]:
    """The same in plain Python: events of each row one after the other."""
    events = list(X.events.itertuples(index=False))
    of_row = [
        [e for e in events if e.subject_id == r.subject_id and not e.time > r.prediction_time]
        for r in X.rows.itertuples(index=False)
    ]
    patients: dict[str, set] = {}
    for row in of_row:
        for event in row:
            patients.setdefault(event.code, set()).add(event.subject_id)
    codes = sorted(code for code, having in patients.items() if len(having) >= min_frequency)

    def cell(row: list, code: str) -> float:
        mine = [e for e in row if e.code == code]
        values = [e.value for e in mine if not np.isnan(e.value)]
        if not mine or any(pd.isna(e.time) for e in mine) or aggregation == "binary":
            return float(bool(mine))
        if aggregation == "count":
            return float(len(mine))
        if aggregation == "sum":
            return float(sum(values) + len(mine) - len(values))
        return sum(values) / len(values) if values else 1.0

    return codes, [[cell(row, code) for code in codes] for row in of_row]


EVENTS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([pd.NaT, *(pd.Timestamp(2020, 1, day) for day in range(1, 6))]),
        st.sampled_from("ABCD"),
        st.sampled_from([np.nan, -2.0, 0.0, 1.0, 3.5]),
    ),
    min_size=1,
    max_size=30,
)
LABELS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=8)


@given(EVENTS, LABELS, st.integers(1, 3), st.sampled_from(AGGREGATIONS))
def test_matrices_are_those_of_plain_python(events, labels, min_frequency, aggregation) -> None:
    frame = pd.DataFrame(events, columns=["subject_id", "time", "code", "value"])
    frame["time"] = frame["time"].astype("datetime64[us]")
    rows = pd.DataFrame(labels, columns=["subject_id", "day"])
    rows["prediction_time"] = pd.Timestamp(2019, 12, 31) + pd.to_timedelta(rows["day"], unit="D")
    try:
        X = EventRows.build(frame, rows.drop(columns="day"))
    except BadInput:  # labels of patients without events before them
        return
    codes, expected = oracle(X, min_frequency, aggregation)
    construct = EventAggregation(min_frequency, aggregation)
    if not codes:
        with pytest.raises(ValueError, match="no code occurs in"):
            construct.fit(X)
        return
    assert construct.fit(X).codes_ == codes
    np.testing.assert_allclose(construct.transform(X).toarray(), expected, rtol=1e-12)
