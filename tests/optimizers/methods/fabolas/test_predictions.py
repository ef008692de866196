import json

from prefect_tune.optimizers.methods.fabolas.gate import Prediction


def test_predictions_come_back_from_a_memo_by_the_number_of_their_trial() -> None:
    first = Prediction("verify", -1.25, 0.5)
    second = Prediction("confirm", 2.0, 0.25, 1.5, 0.125)
    memo = json.loads(json.dumps({"full": {"7": first.to_json(), "12": second.to_json()}}))
    assert Prediction.all_of(memo) == {7: first, 12: second}
    assert Prediction.all_of({}) == {}


def test_what_is_kept_is_rounded_but_a_deviation_never_to_nothing() -> None:
    kept = Prediction("search", 1 / 3, 2e-11 / 3, 1e9 / 7, 100 / 3).to_json()
    assert kept == ["search", 0.333333333, 6.66666667e-12, 142857143.0, 33.3333333]
