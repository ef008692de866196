import json

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
