"""Studies, trials and comparisons shown to people."""

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from flow_studies import SUMMARY, USELESS, plan, study_view
from reports.compared import curves_of, replicate

from prefect_tune.deployments.views.artifact import print_totals
from prefect_tune.deployments.views.comparison import print_comparison
from prefect_tune.deployments.views.study import print_studies, print_summary
from prefect_tune.deployments.views.trial import first_trials, print_trial, print_trials
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.flows.options.store_location import default_store
from prefect_tune.flows.reading.opened_study import ExplainedTrial, Moments, ValueRange
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import ModelFacts, StudyFacts, WeightedTrial
from prefect_tune.flows.wording.text import Whole
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.storage.index import CacheCounts, CacheTotals
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound


@pytest.fixture
def shown(capsys):
    def show(*, notes: bool = False, **changed: object) -> str:
        print_summary(study_view(**changed), notes=notes)
        return capsys.readouterr().out

    return show


def test_the_next_commands_name_a_store_that_is_not_the_default_one(shown) -> None:
    assert "--store" not in shown()
    lines = shown(store_options=["--store", "/my store"]).splitlines()
    assert "  next: prefect-tune show s --store '/my store'" in lines
    assert "prefect-tune predict s new_rows.csv --store '/my store'" in map(str.strip, lines)
    assert "prefect-tune show s\n" not in shown(notes=True)  # after `show`
    assert lines[-1].strip() == "prefect-tune export s model.pkl --store '/my store'"


@pytest.mark.parametrize("n_failed", [0, 1])
def test_failed_trials_add_commands_for_failed_trials(shown, n_failed) -> None:
    lines = list(map(str.strip, shown(n_failed=n_failed).splitlines()))
    for command in "trials s --failed", "retry s":
        assert (f"prefect-tune {command}" in lines) == bool(n_failed)


def test_a_study_that_a_flow_returned_is_shown_like_the_stored_one() -> None:
    members = [{"trial": 1, "weight": 0.5}, {"trial": 2, "weight": 0.5}]
    view = study_view(
        ensemble={"kind": "greedy", "members": members, "losses": [2.0], "nested": {"single": 3.0}},
        instead_of={"trials": [4], "reason": "r", "failures": [{"trials": [4], "reason": "r"}]},
        finalists=[{"trial": 1, "loss": 12.5, "recheck_loss": None}],
    )
    assert from_document(StudyView, json.loads(json.dumps(view.to_json()))) == view


def test_the_first_line_calls_a_useless_model_useless(shown) -> None:
    text = shown(usefulness=to_document(USELESS))
    assert text.index("no better than a constant prediction") < text.index("3 trials")
    assert "25% (3 of 12 test rows)" in text
    assert "no better" not in shown(usefulness=to_document(replace(USELESS, is_useless=False)))


def holds(text: str, *parts: str) -> bool:
    """Whether a text has these parts, in this order."""
    for part in parts:
        _, found, text = text.partition(part)
        if not found:
            return False
    return True


def test_trials_best_pipeline_constraints_and_cache_are_shown(shown) -> None:
    said = shown()
    assert "s (random, complete)" in said
    assert holds(said, "3 trials", "1 failed", "1m15s", "1m10s", "2 more")
    assert holds(said, "best: trial 1", "error 12.5 %", "13 %", "guessing: 50 %")
    assert "fit model  tree (depth=3)" in said
    assert holds(said, "latency_us", "7", "10")
    assert holds(said, "cache: 3 of 4", "4.0s", "2.0KB")
    assert "export s model.pkl" in said
    failed = shown(state="failed", no_model="3 refits failed", method="bygone")
    assert "3 refits failed" in failed
    assert "export" not in failed
    chosen = {"fit model": {"algorithm": "stump", "hyperparameters": {"depth": 1}}}
    model = {**SUMMARY["incumbent"], "trial": 2, "configuration": chosen}
    assert "stump" in shown(model_trial=model)
    cache = {"hits": 0, "misses": 0, "size_bytes": 0, "seconds_saved": 0.0}
    assert "cache:" not in shown(incumbent=None, n_trials=0, cache=cache)


def test_no_view_says_that_less_than_nothing_was_saved(shown, capsys) -> None:
    cache = {"hits": 3, "misses": 1, "size_bytes": 2000, "seconds_saved": -4.0}
    assert "0.0s saved" in shown(cache=cache)
    counts = {"size_bytes": 2000, "hits": 3, "misses": 1, "evicted": 0, "refused": 0}
    counts["seconds_saved"] = -4.0
    steps = {"scale": CacheCounts(**counts)}
    print_totals(CacheTotals(**counts, budget_bytes=9000, count=1, steps=steps), 0)
    said = capsys.readouterr().out
    assert "0.0s saved" in said
    assert "-" not in said


def test_stretches_are_told_apart_from_the_configurations_begun(shown) -> None:
    incumbent = {**SUMMARY["incumbent"], "fidelity": "subset 1/9"}
    race = {"race": {"begun": 12, "stopped": 7}}
    said = shown(n_trials=31, n_stopped=24, n_begun=8, incumbent=incumbent, decisions=race)
    assert holds(said, "31 trials", "6 full", "24 partial", "1 failed", "8 configurations")
    assert "trial 1 (subset 1/9)" in said
    assert holds(said, "race", "7", "12")


@pytest.mark.parametrize(
    ("looks", "figures"),
    [
        ([(1, 12.5, 13.5), (4, 12.6, 14.4)], ("best 2", "trial 1", "13 %")),
        ([(4, 12.0, 14.0), (1, 12.5, 12.5), (5, 12.5, None)], ("trial 1", "12.5 %", "trial 4: 13")),
        ([(1, 12.5, None), (4, 12.6, 14.4)], None),
        ([(4, 12.0, 12.0), (5, 12.0, 12.1)], None),
    ],
    ids=["the first", "another", "failed again", "of another time"],
)
def test_what_a_second_look_came_to_is_shown(shown, looks, figures) -> None:
    keys = ("trial", "loss", "recheck_loss")
    text = " ".join(shown(finalists=[dict(zip(keys, look, strict=True)) for look in looks]).split())
    _, looked, rest = text.partition("re-evaluated")
    assert bool(looked) == (figures is not None)
    assert holds(rest, *(figures or ()))


def test_without_an_incumbent_the_nearest_trial_is_named(shown) -> None:
    nearest = {**SUMMARY["incumbent"], "constraints": {"latency_us": 30.0}}
    said = shown(
        incumbent=None, nearest_infeasible=nearest, model_trial=None,
        test_loss=None, single_best_test_loss=None,
    )  # fmt: skip
    assert "best:" not in said
    assert holds(said, "latency_us", "30", "10", "trial 1")
    assert "export" not in said


def test_an_ensemble_is_shown_with_losses_members_and_the_best_trial(shown) -> None:
    members = [{"trial": n, "weight": w} for n, w in ((7, 0.125), (1, 0.5), (2, 0.375))]
    nested = {"single": 12.9, "greedy": 12.0, "agnostic": 12.1}
    ensemble = {"kind": "greedy", "members": members, "losses": [12.5, 11.0], "nested": nested}
    said = shown(ensemble=ensemble, test_loss=12.0)
    assert holds(said, "greedy ensemble of 3 trials", "11 %", "12 %")
    assert holds(said, "trial 1 50.0%, trial 2 37.5%, trial 7 12.5%")
    assert holds(said, "best single trial 1", "12.5 %", "13 %", "50 %")
    assert holds(said, "12 %", "12.9 %")
    assert "best: trial" not in said
    single = {"kind": "single", "members": [{"trial": 1, "weight": 1.0}]}
    assert holds(shown(ensemble=single), "trial 1", "no ensemble")


def test_studies_are_a_line_each(capsys) -> None:
    part = {**SUMMARY["incumbent"], "fidelity": "subset 1/8"}
    rows = [{"study": "t", "incumbent": None}, {"study": "u", "incumbent": part}]
    print_studies([study_view(**row) for row in ({}, *rows)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["study", "s", "t", "u"]
    assert "12.5 % (subset 1/8)" in lines[3]
    assert "(" not in lines[1]
    print_studies([])
    assert capsys.readouterr().out == "no studies\n"


def test_notes_of_the_method_are_shown_if_no_run_has_reported_them(shown) -> None:
    decisions = {"notes": ["subsets cannot help [here]"]}
    assert "random: subsets cannot help [here]" in shown(notes=True, decisions=decisions)
    assert "subsets" not in shown(decisions=decisions)


STEP = {"step": "impute", "fold": 0, "hit": True, "seconds": 0.5, "load_seconds": 0.25, "key": "k"}
EVALUATION: dict[str, Any] = {
    "loss": 12.5, "fold_losses": [10.0, 15.0], "cost_seconds": 1.25, "cost_uncached_seconds": 3.5,
    "load_seconds": 6.25, "constraints": {},
    "steps": [STEP, {**STEP, "fold": 1, "hit": False, "seconds": 0.75, "load_seconds": 0.0}],
}  # fmt: skip
PIPELINE = {
    "rescale": {"algorithm": "none", "hyperparameters": {}},
    "fit model": {"algorithm": "svm", "hyperparameters": {"C": 0.25}},
}
TRIAL: dict[str, Any] = {
    "number": 4, "state": "complete", "attempts": 1, "query": {"configuration": PIPELINE},
    "evaluation": EVALUATION, "failure": None,
}  # fmt: skip
BEST = TRIAL | {"number": 2, "evaluation": EVALUATION | {"loss": 11.0, "fold_losses": [12.0, 10.0]}}
FAILURE = {
    "kind": "timeout", "message": "took more than 30 s", "step": "fit model", "fold": 1,
    "traceback": "Traceback:\n  File [x]\n", "output": "",
}  # fmt: skip
FAILED = {"state": "failed", "evaluation": None}


@pytest.fixture
def explained(capsys):
    def show(
        best: dict[str, Any] = BEST,
        same: Sequence[dict[str, Any]] = (),
        moments: Moments | None = None,
        options: dict[str, Any] | None = None,
        members: Sequence[int] = (),
        **changed: Any,
    ) -> list[str]:
        address = SimpleNamespace(url=default_store(), database="")
        study: Any = SimpleNamespace(
            name="s",
            plan=plan(method="flash", chance_loss=50.0, **options or {}),
            facts=StudyFacts(
                model=ModelFacts(members=tuple(WeightedTrial(n, 1.0) for n in members))
            ),
            store=SimpleNamespace(address=address),
        )
        print_trial(
            ExplainedTrial(
                study, TrialView(TRIAL | changed), moments or Moments(0.0, 0.0), TrialView(best),
                [*map(TrialView, same)], {"rescale": ["none", "minmax"]},
                {"fit model": {"C": ValueRange(1.0, "a number from 0.03125 to 32768", log=True)}},
            )
        )  # fmt: skip
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return show


def test_losses_are_compared_with_the_best_trial(explained) -> None:
    reason = {"phase": "tuning", "text": "best [EI]"}
    lines = explained(moments=Moments(0.0, 0.0, reason=reason))
    assert holds(lines[0], "trial 4 of s", "12.5 %", "trial 2", "11 %")
    assert any(holds(line, "1.2s", "3.5s", "6.2s") for line in lines)
    assert "trial 4 12.5 10 15" in lines
    assert "trial 2 (best) 11 12 10" in lines
    assert "difference +1.5 -2 +5" in lines
    assert "guessing 50" in lines
    assert "impute 1/2 (0.50) 0.75 0.25 0.00" in lines
    assert any(holds(line, "flash", "tuning", "best [EI]") for line in lines)
    assert holds(explained(best=TRIAL, members=[4])[0], "best one", "final model")


def test_values_come_with_defaults_and_ranges_and_others_are_marked(explained) -> None:
    lines = explained()
    assert "rescale none instead of minmax" in lines
    assert "C * 0.25 1 a number from 0.03125 to 32768 (log)" in lines
    assert "* not the default" in lines
    usual = {"fit model": {"algorithm": "svm", "hyperparameters": {"C": 1.0, "gamma": 2}}}
    lines = explained(query={"configuration": usual})
    assert "C 1 1 a number from 0.03125 to 32768 (log)" in lines
    assert "gamma 2" in lines
    assert "* not the default" not in lines


def test_constraints_parts_and_curves_are_shown_where_there_are_any(explained) -> None:
    part = {
        **TRIAL, "number": 3, "state": "stopped", "query": {**TRIAL["query"], "folds": 1},
        "evaluation": EVALUATION | {"loss": 10.0},
    }  # fmt: skip
    lines = explained(
        same=[part, TRIAL],
        options={"constraint": (QuantityBound(Quantity("latency_us"), 50.0),)},
        evaluation=EVALUATION
        | {"constraints": {"latency_us": 60.0}, "curve": [4.0, 2.0, 3.0], "best_epoch": 2}
        | {"resumed_from": 1},
    )
    assert "latency_us 60 50 exceeded" in lines
    assert lines[lines.index("the same configuration") + 1] == "trial 3"
    assert any(holds(line, "4 % after epoch 1", "2 % after epoch 2") for line in lines)
    assert any("from epoch 1," in line for line in lines)


def test_a_failure_says_where_why_how_to_retry_and_its_traceback(explained) -> None:
    lines = explained(**FAILED, failure=FAILURE)
    assert holds(lines[0], "failed", "trial 2", "11 %")
    assert any(holds(line, "timeout", "fit model, fold 1", "30 s") for line in lines)
    assert any("prefect-tune retry s --trial 4" in line for line in lines)
    assert lines[lines.index("traceback") + 2] == "File [x]"
    assert "losses" not in lines


def test_the_last_lines_of_a_failed_trial_are_quoted_with_the_command_that_prints_all(
    explained,
) -> None:
    failure = FAILURE | {"output": "step 1\n\x1b[31mstep 2"}
    lines = explained(**FAILED, failure=failure, moments=Moments(0.0, 0.0, output_bytes=1234))
    at = next(n for n, line in enumerate(lines) if line.startswith("output: 1,234"))
    assert "show s --trial 4 --output" in lines[at]
    assert lines[at + 1 : at + 3] == ["step 1", r"\x1b[31mstep 2"]
    assert not [line for line in explained() if line.startswith("output")]


CONFIGURATION = {
    "rescale": {"algorithm": "minmax", "hyperparameters": {}},
    "fit model": {"algorithm": "tree", "hyperparameters": {}},
}


WHOLE = Whole(folds=3, epochs=50)


WAITING = {
    "number": 0, "state": "waiting", "query": {"configuration": CONFIGURATION},
    "evaluation": None, "failure": None, "attempts": 0,
}  # fmt: skip


def test_a_trial_is_a_line_with_loss_cost_and_cache(capsys) -> None:
    evaluation = {
        "loss": 12.5, "cost_seconds": 2.0, "constraints": {"latency_us": 7.0},
        "steps": [{"hit": hit} for hit in (True, False)],
    }  # fmt: skip
    complete = {**WAITING, "number": 1, "state": "complete", "evaluation": evaluation}
    print_trials([*map(TrialView, (WAITING, complete))], WHOLE, {})
    _, waiting, complete, measured = capsys.readouterr().out.splitlines()
    assert waiting.split() == ["0", "waiting", "minmax", ">", "tree"]
    assert complete.split() == ["1", "complete", "12.5", "2.0", "1/2", "minmax", ">", "tree"]
    assert measured.split() == ["latency_us", "7"]


def test_a_trial_that_is_not_the_whole_evaluation_says_of_what_it_is(capsys) -> None:
    evaluation = {"loss": 12.5, "cost_seconds": 2.0, "constraints": {}, "steps": []}
    fidelity = {"subset": 1 / 27, "subset_draw": 1, "folds": 1, "epochs": 10}
    stopped = {
        **WAITING, "number": 1, "state": "stopped", "evaluation": evaluation,
        "query": {**WAITING["query"], **fidelity},
    }  # fmt: skip
    print_trials([*map(TrialView, (WAITING, stopped))], WHOLE, {})
    header, waiting, line = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["trial", "state", "of", "loss"]
    assert waiting.split()[:3] == ["0", "waiting", "all"]
    assert holds(line, "in part", "subset 1/27", "draw 1", "folds 1 of 3", "10 of 50", "12.5")


def test_a_trial_that_resumes_a_configuration_names_its_predecessor(capsys) -> None:
    other = {"rescale": {"algorithm": "none", "hyperparameters": {}}}
    rows = [
        WAITING,
        {**WAITING, "number": 1, "query": {"configuration": other}},
        {**WAITING, "number": 2},
    ]
    trials = [*map(TrialView, rows)]
    assert first_trials(trials) == {2: 0}
    print_trials(trials, WHOLE, first_trials(trials))
    header, first, second, third = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["trial", "continues", "state"]
    assert first.split()[:2] == ["0", "waiting"]
    assert second.split()[:2] == ["1", "waiting"]
    assert third.split()[:4] == ["2", "trial", "0", "waiting"]


def test_methods_are_listed_best_first_with_their_distance(capsys) -> None:
    tests = {"a": 3.0, "b": 2.0}
    curves = curves_of(
        replicate(name, repeat, [9.0], tests[name]) for name in tests for repeat in (0, 1)
    )
    print_comparison(standings(curves), ["curves.parquet"])
    title, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("c: 2 methods, 2 blocks, data d")
    assert first.split()[:5] == ["b", "1.00", "=", "1", "2"]
    assert second.split()[:3] == ["a", "2.00", "="]
