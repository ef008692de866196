import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from prefect_tune.storage.codec import decode, encode, layout
from prefect_tune.storage.matrices import canonical


def again(value):
    encoded = encode(value)
    return decode(encoded.codec, encoded.data)


def test_estimators_come_back_able_to_predict() -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["a", "a", "b", "b"])
    model = LogisticRegression().fit(X, y)
    assert layout(model) == "pickle"
    assert (again(model).predict_proba(X) == model.predict_proba(X)).all()


def test_a_document_is_json_and_what_json_would_change_is_not() -> None:
    document = {"a": [1, 2.5, None, True], "b": {"c": "é"}}
    encoded = encode(document)
    assert encoded.codec == "json"
    assert json.loads(bytes(encoded.data)) == again(document) == document
    for changed in ({1: "a"}, [float("nan")], [float("inf")], (1, 2), {"a": {1, 2}}):
        assert layout(changed) == "pickle"
        assert repr(again(changed)) == repr(changed)


def test_large_buffers_of_a_pickle_are_not_copied_when_read() -> None:
    encoded = encode([np.arange(1000.0)])
    (array,) = decode(encoded.codec, encoded.data)
    assert encoded.codec == "pickle"
    assert array.tolist() == list(range(1000))
    assert np.shares_memory(array, np.frombuffer(encoded.data, np.uint8))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown codec 'tar'"):
        decode("tar", encode(canonical(np.zeros(3))).data)
