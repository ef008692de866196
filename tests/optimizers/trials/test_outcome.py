import json
import pickle

import pytest

from prefect_tune.optimizers import Failure, FailureKind


def test_kinds_of_failures_are_plain_words_in_documents_and_kinds_when_read() -> None:
    for kind in FailureKind:
        document = Failure(kind, "why").to_json()
        assert type(document["kind"]) is str
        again = Failure.from_json(json.loads(json.dumps(document)))
        assert (again.kind, type(again.kind)) == (kind, FailureKind)
    words = [Failure(kind, "").to_json()["kind"] for kind in FailureKind]
    assert words == ["error", "timeout", "memory", "crashed"]


def test_more_rows_cure_errors_alone_and_bring_limits_nearer() -> None:
    assert [kind for kind in FailureKind if not kind.is_hopeless] == ["error"]
    assert [kind for kind in FailureKind if kind.grows_with_rows] == ["timeout", "memory"]


def test_a_kind_may_be_given_as_its_word_and_no_other_word() -> None:
    failure = Failure("memory", "took 9 GB")  # type: ignore[arg-type]
    assert failure.kind is FailureKind.MEMORY
    assert failure.kind.grows_with_rows
    assert pickle.loads(pickle.dumps(failure)) == failure == Failure.from_json(failure.to_json())
    with pytest.raises(ValueError, match="explosion"):
        Failure("explosion", "")  # type: ignore[arg-type]
