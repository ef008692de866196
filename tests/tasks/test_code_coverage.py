"""Coverage by code, against a plain loop over patients."""

import numpy as np
import pandas as pd
import pytest
from inputs import events

from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.final import figures as module
from prefect_tune.tasks.final.figures import code_coverage

TABLE = pd.DataFrame({"code": ["A"], "description": ["A first code"], "parents": [[]]})


@pytest.mark.parametrize("at_a_time", [10**6, 7])
def test_each_patient_counts_once_with_the_latest_row_and_class(monkeypatch, at_a_time) -> None:
    monkeypatch.setattr(module, "_PATIENTS_AT_ONCE", at_a_time)
    data, labels = events()
    data = data.rename(columns={"numeric_value": "value"}).assign(value=1.0)
    extra = pd.DataFrame({"subject_id": [100], "time": pd.Timestamp(2020, 3, 1), "code": "MARCH"})
    data = pd.concat([data, extra.assign(value=np.nan)], ignore_index=True)
    data["time"] = data["time"].astype("datetime64[us]")
    X = EventRows.build(data, labels[["subject_id", "prediction_time"]], TABLE)
    label = labels["boolean_value"].to_numpy().astype(np.int32)
    training = np.arange(60)  # of 30 patients, two each
    covered = code_coverage(X, training, label)
    assert covered["patients"].is_monotonic_decreasing
    found = covered.set_index("code")
    latest = training[1::2]
    seen = [X.events["code"][X.start[i] : X.stop[i]].tolist() for i in latest]
    assert set(found.index) == {code for codes in seen for code in codes}
    assert "LATER" not in found.index
    for code, of in found.iterrows():
        n_with = np.array([code in codes for codes in seen])
        assert (of.patients, of.n_patients) == (pytest.approx(n_with.mean()), n_with.sum())
        assert of.events == pytest.approx(sum(codes.count(code) for codes in seen) / n_with.sum())
        sides = [n_with[label[latest] == k].mean() for k in (0, 1)]
        assert [of.patients_of_0, of.patients_of_1] == pytest.approx(sides)
    assert found["patients"]["MARCH"] == pytest.approx(1 / 30)
    assert found["description"][["A", "B"]].tolist() == ["A first code", ""]
    assert not {"patients_of_0"} & set(code_coverage(X, training))  # of other targets
