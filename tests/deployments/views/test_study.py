"""A study summed up for people."""

import pytest

from prefect_tune.deployments.views.study import print_studies, print_summary

SUMMARY = {
    "study": "s", "method": "random", "metric": "error", "state": "complete",
    "data": "table.csv", "store_options": [],
    "n_trials": 3, "n_failed": 1, "n_stopped": 0, "n_begun": 5,
    "n_waiting": 2, "holdout": None,
    "incumbent": {
        "trial": 1, "loss": 12.5, "fidelity": "", "constraints": {"latency_us": 7.0},
        "configuration": {"fit model": {"algorithm": "tree", "hyperparameters": {"depth": 3}}},
    },
    "constraints": {"latency_us": 10.0}, "nearest_infeasible": None, "ensemble": None,
    "finalists": [],
    "model_trial": None, "model_is_partial": False, "instead_of": None,
    "no_model": None,
    "test_loss_undefined": None, "single_best_test_loss_undefined": None,
    "test_loss": 13.0, "single_best_test_loss": 13.0, "chance_loss": 50.0, "decisions": {},
    "notes": [],
    "cache": {"hits": 3, "misses": 1, "size_bytes": 2000, "seconds_saved": 4.0},
    "seconds": {"total": 75.0, "evaluating": 70.0, "asking": 1.0},
}  # fmt: skip


@pytest.fixture
def shown(capsys):
    def show(*, notes: bool = False, **changed: object) -> str:
        print_summary(SUMMARY | changed, notes=notes)
        return capsys.readouterr().out

    return show


def test_the_next_commands_name_a_store_that_is_not_the_default_one(shown) -> None:
    assert "--store" not in shown()
    lines = shown(store_options=["--store", "/my store"]).splitlines()
    assert "  next: prefect-tune show s --store '/my store'" in lines
    assert lines[-1].strip() == "prefect-tune export s model.pkl --store '/my store'"


def test_a_study_without_a_model_says_why_and_offers_no_export(shown) -> None:
    reason = "study 's' ended without a model: 3 refits failed"
    lines = shown(state="failed", no_model=reason).splitlines()
    assert f"  {reason}" in lines
    assert "export" not in lines[-1]


def test_a_model_that_is_another_trial_is_shown_with_its_pipeline(shown) -> None:
    chosen = {"fit model": {"algorithm": "stump", "hyperparameters": {"depth": 1}}}
    model = {**SUMMARY["incumbent"], "trial": 2, "configuration": chosen}
    assert "stump" in shown(model_trial=model)
    assert "stump" not in shown()


def test_an_ensemble_says_by_which_losses_it_was_preferred(shown) -> None:
    members = [{"trial": 1, "weight": 0.6}, {"trial": 2, "weight": 0.4}]
    nested = {"single": 12.9, "greedy": 12.0, "agnostic": 12.1}
    ensemble = {"kind": "greedy", "members": members, "losses": [12.5, 11.5], "nested": nested}
    decided = "on held-out rows that it was not built on: error 12 %, the best trial alone 12.9 %"
    assert decided in " ".join(shown(ensemble=ensemble).split())
    assert "not built on" not in shown(ensemble={**ensemble, "nested": {}})


def test_trials_best_pipeline_constraints_and_cache_are_shown(shown) -> None:
    said = shown()
    assert "s (random, complete)" in said
    assert "3 trials, 1 failed, in 1m15s (1m10s of evaluating); 2 more waiting to run" in said
    assert "best: trial 1, cross-validated error 12.5 %; on the test rows 13 %" in said
    assert "(guessing: 50 %)" in said
    assert "fit model  tree (depth=3)" in said
    assert "latency_us: 7 of at most 10" in said
    assert "cache: 3 of 4 steps served, 4.0s saved, 2.0KB" in said
    assert "export s model.pkl" in said


def test_stretches_are_told_apart_from_the_configurations_begun(shown) -> None:
    incumbent = {**SUMMARY["incumbent"], "fidelity": "subset 1/9"}
    said = shown(n_trials=31, n_stopped=24, n_begun=8, incumbent=incumbent)
    assert "8 configurations in 31 trials: 6 in full, 24 in part, 1 failed, in 1m15s" in said
    assert "best: trial 1 (subset 1/9), cross-validated error" in said


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([(1, 12.5, 13.5), (4, 12.6, 14.4)], "best 2 on another split: trial 1 has the least"),
        ([(1, 12.5, 13.5), (4, 12.6, 14.4)], "error over both, 13 %"),
        (
            [(4, 12.0, 14.0), (1, 12.5, 12.5), (5, 12.5, None)],
            "trial 1 has the least error over both, 12.5 % (trial 4: 13 %)",
        ),
        ([(1, 12.5, None), (4, 12.6, 14.4)], None),
        ([(4, 12.0, 12.0), (5, 12.0, 12.1)], None),
    ],
    ids=["the first", "its loss", "another", "failed again", "of another time"],
)
def test_what_a_second_look_came_to_is_shown(shown, looks, said) -> None:
    keys = ("trial", "loss", "again")
    text = " ".join(shown(finalists=[dict(zip(keys, look, strict=True)) for look in looks]).split())
    if said is None:
        assert "looked again" not in text
    else:
        assert said in text


def test_without_an_incumbent_the_nearest_trial_is_named(shown) -> None:
    nearest = {**SUMMARY["incumbent"], "constraints": {"latency_us": 30.0}}
    said = shown(
        incumbent=None, nearest_infeasible=nearest, test_loss=None, single_best_test_loss=None
    )
    assert "best:" not in said
    assert "latency_us: 30 of at most 10 in trial 1, the nearest" in said
    assert "export" not in said


def test_before_any_trial_nothing_is_made_up(shown) -> None:
    cache = {"hits": 0, "misses": 0, "size_bytes": 0, "seconds_saved": 0.0}
    said = shown(incumbent=None, n_trials=0, cache=cache)
    assert "latency_us: not measured of at most 10" in said
    assert "cache:" not in said


def test_an_ensemble_is_shown_with_its_losses_and_members_beside_the_best_trial(shown) -> None:
    members = [{"trial": n, "weight": w} for n, w in ((7, 0.125), (1, 0.5), (2, 0.375))]
    ensemble = {"kind": "greedy", "members": members, "losses": [12.5, 11.0]}
    said = shown(ensemble=ensemble, test_loss=12.0)
    lines = [line.strip() for line in said.splitlines()]
    model = "model: greedy ensemble of 3 trials, error on the held-out rows 11 %; on the test rows"
    assert f"{model} 12 %" in lines
    assert "trial 1 50.0%, trial 2 37.5%, trial 7 12.5%" in lines
    best = "best single trial 1, cross-validated error 12.5 %; on the test rows 13 % (guessing:"
    assert f"{best} 50 %)" in lines
    assert "best: trial" not in said


def test_members_of_a_large_ensemble_take_several_lines(shown) -> None:
    members = [{"trial": n, "weight": 1 / 12} for n in range(12)]
    said = shown(ensemble={"kind": "agnostic", "members": members})
    lines = [line.strip() for line in said.splitlines() if line.strip().startswith("trial")]
    assert [line.count("%") for line in lines] == [5, 5, 2]
    assert "model: agnostic ensemble of 12 trials, error on the test rows 13 %" in said


def test_a_trial_that_was_preferred_to_an_ensemble_is_said_to_be(shown) -> None:
    ensemble = {"kind": "single", "members": [{"trial": 1, "weight": 1.0}]}
    assert "model: trial 1 alone, as no ensemble was found to be better" in shown(ensemble=ensemble)


def test_a_method_that_is_not_known_any_more_is_shown_without_its_decisions(shown) -> None:
    assert "s (bygone, complete)" in shown(method="bygone", decisions={"kept": 3})


def test_studies_are_a_line_each(capsys) -> None:
    part = {**SUMMARY["incumbent"], "fidelity": "subset 1/8"}
    rows = [{"study": "t", "incumbent": None}, {"study": "u", "incumbent": part}]
    print_studies([SUMMARY, *(SUMMARY | row for row in rows)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["study", "s", "t", "u"]
    assert "12.5 (subset 1/8)" in lines[3]
    assert "(" not in lines[1]
    print_studies([])
    assert capsys.readouterr().out == "no studies\n"


def test_a_race_says_how_many_ended_early(shown) -> None:
    said = shown(decisions={"race": {"begun": 12, "stopped": 7}})
    assert "race: of 12 configurations 7 ended early, clearly behind" in said


def test_notes_of_the_method_are_shown_where_no_run_has_said_them(shown) -> None:
    decisions = {"notes": ["subsets cannot help [here]"]}
    assert "random: subsets cannot help [here]" in shown(notes=True, decisions=decisions)
    assert "subsets" not in shown(decisions=decisions)
