"""What FLASH does about the steps that all paths share."""

from worlds import told

from prefect_tune.optimizers import Asked, Budget, Flash, Objective, Told, Trial, replay
from prefect_tune.tasks.catalogue.spaces import space_named


def ask_for_cohorts(n: int) -> tuple[Flash, list[Asked | Told]]:
    """Ask one by one in the space for events; a trial's loss is that of its aggregation."""
    optimizer = Flash(space_named("healthcare"), 0, Objective())
    events: list[Asked | Told] = []
    for number in range(n):
        budget = Budget(trials_left=20 - number)
        query = optimizer.ask(budget)
        values = dict(query.configuration["construct features"].values)
        trial = told(number, query, LOSS_OF[str(values["aggregation"])])
        optimizer.tell(trial)
        events += [Asked(number, query, budget, optimizer.memo), Told(trial)]
    return optimizer, events


LOSS_OF = {"count": 30.0, "binary": 35.0, "sum": 40.0, "average": 12.0}


def test_values_of_a_step_that_all_paths_share_are_tried_on_the_best_pipeline() -> None:
    optimizer, events = ask_for_cohorts(14)
    queries = [e.query for e in events if isinstance(e, Asked)]
    n_init = optimizer.decisions["n_init"]
    shared = [dict(q.configuration["construct features"].values) for q in queries]
    assert {v["aggregation"] for v in shared[:n_init]} == {"count"}
    assert {v["aggregation"] for v in shared[n_init : n_init + 3]} == {"binary", "sum", "average"}
    assert {q.configuration.path for q in queries[n_init : n_init + 3]} == {
        queries[0].configuration.path
    }
    assert shared[n_init + 3]["aggregation"] == "average"
    assert optimizer.decisions["shared"]["construct features"]["hyperparameters"] == {
        "aggregation": "average",
        "min_frequency": 3,
    }


def test_what_the_paths_share_is_settled_once_all_its_values_are_known() -> None:
    optimizer = Flash(space_named("healthcare"), 0, Objective())
    pending: list[Trial] = []
    for number in range(30):
        pending.append(Trial(number, optimizer.ask(Budget(trials_left=60 - number))))
        if len(pending) > 1:
            trial = pending.pop(0)
            values = dict(trial.query.configuration["construct features"].values)
            optimizer.tell(told(trial.number, trial.query, LOSS_OF[str(values["aggregation"])]))
    shared = optimizer.decisions["shared"]["construct features"]["hyperparameters"]
    assert shared["aggregation"] == "average"


def test_what_the_paths_share_is_the_same_after_a_replay() -> None:
    optimizer, events = ask_for_cohorts(14)
    again = Flash(space_named("healthcare"), 0, Objective())
    replay(again, events)
    assert again.decisions == optimizer.decisions
    left = Budget(trials_left=6)
    assert again.ask(left) == optimizer.ask(left)


def test_a_space_without_shared_values_has_no_variants() -> None:
    optimizer = Flash(space_named("flash"), 0, Objective())
    for number in range(12):
        query = optimizer.ask(Budget(trials_left=20 - number))
        optimizer.tell(told(number, query, 10.0 + number))
    assert optimizer.decisions["phase"] == 2
    assert "shared" not in optimizer.decisions
