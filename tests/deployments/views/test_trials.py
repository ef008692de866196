from prefect_tune.deployments.views.trial import first_trials, print_trials

CONFIGURATION = {
    "rescale": {"algorithm": "minmax", "hyperparameters": {}},
    "fit model": {"algorithm": "tree", "hyperparameters": {}},
}
TRIAL = {
    "number": 0, "state": "waiting", "query": {"configuration": CONFIGURATION},
    "evaluation": None, "failure": None, "attempts": 0,
}  # fmt: skip


def test_a_trial_is_a_line_with_loss_cost_and_cache(capsys) -> None:
    evaluation = {
        "loss": 12.5, "cost_seconds": 2.0, "constraints": {"latency_us": 7.0},
        "steps": [{"hit": True}, {"hit": False}],
    }  # fmt: skip
    print_trials([TRIAL, {**TRIAL, "number": 1, "state": "complete", "evaluation": evaluation}])
    _, waiting, complete, measured = capsys.readouterr().out.splitlines()
    assert waiting.split() == ["0", "waiting", "minmax", ">", "tree"]
    assert complete.split() == ["1", "complete", "12.5", "2.0", "1/2", "minmax", ">", "tree"]
    assert measured.split() == ["latency_us", "7"]


def test_a_trial_that_is_not_the_whole_evaluation_says_of_what_it_is(capsys) -> None:
    evaluation = {"loss": 12.5, "cost_seconds": 2.0, "constraints": {}, "steps": []}
    fidelity = {"subset": 1 / 27, "subset_draw": 1, "folds": 1, "epochs": 10}
    stopped = {
        **TRIAL, "number": 1, "state": "stopped", "evaluation": evaluation,
        "query": {**TRIAL["query"], **fidelity},
    }  # fmt: skip
    print_trials([TRIAL, stopped], n_folds=3, epochs=50)
    header, waiting, line = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["trial", "state", "of", "loss"]
    assert waiting.split()[:3] == ["0", "waiting", "all"]
    assert "in part  subset 1/27, draw 1, folds 1 of 3, epochs 10 of 50  12.5" in line


def test_a_failed_trial_says_where_and_why(capsys) -> None:
    failure = {"step": "fit model", "fold": 2, "message": "no convergence", "cost_seconds": 0.5}
    print_trials([{**TRIAL, "state": "failed", "failure": failure}])
    assert "fit model, fold 2: no convergence" in capsys.readouterr().out


def test_a_trial_whose_training_could_not_go_on_says_why(capsys) -> None:
    trouble = "no epoch 7 in fold 1: ValueError: the predictions after epoch 7 are not finite"
    evaluation = {
        "loss": 1.0, "cost_seconds": 2.0, "constraints": {}, "steps": [], "trouble": trouble
    }  # fmt: skip
    print_trials([{**TRIAL, "state": "complete", "evaluation": evaluation}])
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(trouble)


def test_a_trial_that_goes_on_with_a_configuration_says_with_which(capsys) -> None:
    other = {"rescale": {"algorithm": "none", "hyperparameters": {}}}
    rows = [
        TRIAL,
        {**TRIAL, "number": 1, "query": {"configuration": other}},
        {**TRIAL, "number": 2},
    ]
    assert first_trials(rows) == {2: 0}
    print_trials(rows, first=first_trials(rows))
    header, first, second, third = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["trial", "goes", "on", "state"]
    assert first.split()[:2] == ["0", "waiting"]
    assert second.split()[:2] == ["1", "waiting"]
    assert third.split()[:4] == ["2", "from", "0", "waiting"]


def test_a_failed_trial_says_where_prefect_shows_it(capsys) -> None:
    failure = {"step": None, "fold": None, "message": "it died", "cost_seconds": 0.5}
    url = "http://server/runs/task-run/" + "a" * 36
    print_trials([{**TRIAL, "state": "failed", "failure": failure}], links={0: url})
    assert url in capsys.readouterr().out.split()


def test_no_trials_are_said(capsys) -> None:
    print_trials([])
    assert capsys.readouterr().out == "no trials\n"
