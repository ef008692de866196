import json
from typing import Any

from curve_worlds.nets import T_MAX, bapi, crashed, curves_from, knn, mixed_nets, net, stretch

from prefect_tune.optimizers import Query, Trial
from prefect_tune.optimizers.methods.bapi.decisions import decisions_of
from prefect_tune.optimizers.methods.bapi.declaration import training_lines


def decided(*trials: Trial, **memo: Any) -> dict[str, Any]:
    curves = curves_from(*trials, space=mixed_nets())
    return decisions_of(list(curves.values()), memo, T_MAX)


def of(number: int, n: int, **evaluation: Any) -> Trial:
    return stretch(number, net(number / 10, scale="none"), [9.0] * n, **evaluation)


def test_epochs_are_counted_once_however_many_stretches() -> None:
    twice = of(0, 2), stretch(1, net(0.0, scale="none"), [9.0] * 6)
    found = decided(*twice, of(2, 4))
    assert (found["configurations"], found["epochs"], found["t_max"]) == (2, 10, T_MAX)
    assert found["spared"] == 0


def test_a_full_fit_is_no_training_and_saves_no_epochs() -> None:
    found = decided(stretch(0, knn(0.5), 9.0), of(1, 5))
    assert (found["configurations"], found["at_once"]) == (1, 1)
    assert (found["epochs"], found["spared"], found["ends"]["full"]) == (5, 0, 0)


def test_ends_are_counted_from_curves_and_from_what_was_decided() -> None:
    trials = (
        of(0, T_MAX),
        of(1, 3, epochs=6, trouble="no epoch 4"),
        crashed(2, net(0.2, scale="none"), 2),
        of(3, 2),
    )
    trials = (*trials, of(4, 3), of(5, 3), Trial(6, Query(net(0.5, scale="none"), epochs=6)))
    said = {"3": "finished", "4": "stopped", "0": "finished", "5": "stopped"}
    found = decided(*trials, verdicts=said, thawed=6, notes={"dear": "said once"})
    # Trial 0 went to the end, and what trial 5 ended is gone on with by trial 6.
    ends = {"full": 1, "finished": 1, "stopped": 1, "diverged": 1, "failed": 1, "left": 1}
    assert found["ends"] == ends
    assert found["spared"] == (T_MAX - 2) + (T_MAX - 3)
    assert (found["thawed"], found["notes"]) == (6, ["said once"])


def test_epochs_are_spared_by_what_was_decided_and_not_by_a_budget_that_ran_out() -> None:
    found = decided(of(0, 10), of(1, 4), crashed(2, net(0.2, scale="none"), 2))
    assert (found["configurations"], found["spared"], found["ends"]["left"]) == (2, 0, 2)
    found = decided(of(0, 10), of(1, 4), verdicts={"1": "stopped"})
    assert (found["spared"], found["ends"]["left"]) == (T_MAX - 4, 1)


def test_what_is_under_way_is_not_counted_before_its_first_epochs() -> None:
    pending = Trial(1, Query(net(0.9, scale="none"), epochs=2))
    assert decided(of(0, 10), pending)["configurations"] == 1
    assert decided(pending.__class__(0, pending.query))["spared"] == 0


def test_those_of_the_method_are_json_and_can_be_shown() -> None:
    optimizer = bapi()
    assert training_lines(optimizer.decisions) == []
    assert json.loads(json.dumps(optimizer.decisions)) == optimizer.decisions
