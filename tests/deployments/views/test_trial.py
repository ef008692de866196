"""One trial explained to people."""

from typing import Any

import pytest

from prefect_tune.deployments.views.trial import print_trial

VALUE = {
    "name": "C", "value": 0.25, "default": 1.0, "is_default": False,
    "range": "a number from 0.03125 to 32768", "is_log": True, "effective": 0.25,
}  # fmt: skip
TRIAL: dict[str, Any] = {
    "study": "s", "trial": 4, "state": "complete", "metric": "error", "loss": 12.5,
    "fold_losses": [10.0, 15.0],
    "incumbent": {"trial": 2, "loss": 11.0, "fold_losses": [12.0, 10.0]},
    "chance_loss": 50.0, "fidelity": "", "stretches": [], "method": "flash", "reason": None,
    "asked_at": "2026-11-24T09:00:00+00:00", "ended_at": None, "attempts": 1, "flow_run_id": None,
    "task_run_id": None, "cost_seconds": 1.25, "cost_uncached_seconds": 3.5,
    "pipeline": [
        {
            "step": "rescale", "algorithm": "none", "choices": ["none", "minmax"],
            "hyperparameters": [],
        },
        {"step": "fit model", "algorithm": "svm", "choices": None, "hyperparameters": [VALUE]},
    ],
    "steps": [
        {
            "step": "impute",
            "folds": [
                {"fold": 0, "hit": True, "seconds": 0.5, "load_seconds": 0.25, "key": "k"},
                {"fold": 1, "hit": False, "seconds": 0.75, "load_seconds": 0.0, "key": "l"},
            ],
        }
    ],
    "constraints": [], "curve": None, "failure": None, "in_model": False,
    "code": "prefect-tune show s --trial 4 --code",
    "output_bytes": 0, "show_output": "prefect-tune show s --trial 4 --output",
}  # fmt: skip


@pytest.fixture
def shown(capsys):
    def show(task_run: str | None = None, **changed: Any) -> list[str]:
        print_trial(TRIAL | changed, task_run=task_run)
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return show


def test_losses_stand_beside_those_of_the_best_trial(shown) -> None:
    lines = shown()
    assert lines[0] == "trial 4 of s: complete, error 12.5 %; best: trial 2, 11 %"
    assert "took 1.2s (3.5s without the cache)" in lines[1]
    assert "trial 4 12.5 10 15" in lines
    assert "trial 2 (best) 11 12 10" in lines
    assert "difference +1.5 -2 +5" in lines
    assert "guessing 50" in lines
    same = {"trial": 4, "loss": 12.5, "fold_losses": [10.0, 15.0]}
    assert shown(incumbent=same, in_model=True)[0].endswith("the best one; in the final model")


def test_values_stand_beside_defaults_and_ranges_and_others_are_marked(shown) -> None:
    lines = shown()
    assert "rescale none instead of minmax" in lines
    assert "C * 0.25 1 a number from 0.03125 to 32768 (log)" in lines
    assert "* not the default" in lines
    usual = {**VALUE, "value": 1.0, "effective": 0.5, "is_default": True}
    pipeline = [{**TRIAL["pipeline"][1], "hyperparameters": [usual]}]
    lines = shown(pipeline=pipeline)
    assert "C 1 (here 0.5) 1 a number from 0.03125 to 32768 (log)" in lines
    assert "* not the default" not in lines


def test_steps_say_what_was_served_and_what_it_took(shown) -> None:
    assert "impute 1/2 (0.50) 0.75 0.25 0.00" in shown()


def test_why_it_was_asked_for_and_its_task_run_are_said(shown) -> None:
    lines = shown("http://server/runs/task-run/x", reason={"phase": "tuning", "text": "best [EI]"})
    assert "asked for by flash, tuning: best [EI]" in lines
    assert "in Prefect: http://server/runs/task-run/x" in lines
    assert "asked for by flash, design" in shown(reason={"phase": "design", "text": ""})


def test_constraints_stretches_and_curves_are_shown_where_there_are_any(shown) -> None:
    lines = shown(
        constraints=[{"quantity": "latency_us", "value": 60.0, "bound": 50.0, "is_met": False}],
        stretches=[{"trial": 3, "state": "stopped", "fidelity": "folds 1 of 2", "loss": 10.0}],
        curve={"losses": [4.0, 2.0, 3.0], "best_epoch": 2, "resumed_from": 1, "trouble": ""},
    )
    assert "latency_us 60 50 exceeded" in lines
    assert "3 stopped folds 1 of 2 10" in lines
    assert "4 (this one) complete all 12.5" in lines
    assert "█▁▅" in lines
    assert "error 4 after epoch 1, 3 after epoch 3; 2 after epoch 2, the best one" in lines
    assert "went on from epoch 1, where an earlier trial had stopped" in lines


def test_a_failure_says_where_why_how_to_retry_and_its_traceback(shown) -> None:
    failure = {
        "kind": "timeout", "message": "took more than 30 s", "step": "fit model", "fold": 1,
        "traceback": "Traceback:\n  File [x]\n", "retry": "prefect-tune retry s --trial 4",
    }  # fmt: skip
    lines = shown(
        state="failed", loss=None, fold_losses=[], failure=failure, cost_uncached_seconds=None
    )
    assert lines[0] == "trial 4 of s: failed; best: trial 2, 11 %"
    assert "failed (timeout): fit model, fold 1: took more than 30 s" in lines
    assert "retry it: prefect-tune retry s --trial 4" in lines
    assert lines[lines.index("traceback") + 2] == "File [x]"
    assert "losses" not in lines


def test_a_trial_that_waits_has_its_pipeline_alone(shown) -> None:
    lines = shown(
        state="waiting", loss=None, fold_losses=[], steps=[], incumbent=None, asked_at=None,
        cost_seconds=None, cost_uncached_seconds=None,
    )  # fmt: skip
    assert lines[0] == "trial 4 of s: waiting"
    assert lines[2] == "pipeline"


def test_the_last_lines_of_a_failed_trial_are_quoted_with_the_command_that_prints_all(
    shown,
) -> None:
    failure = {
        "kind": "error", "message": "no luck", "step": None, "fold": None, "traceback": "",
        "retry": "prefect-tune retry s --trial 4", "output": "step 1\n\x1b[31mstep 2",
    }  # fmt: skip
    lines = shown(failure=failure, output_bytes=1234)
    at = lines.index("output: 1,234 bytes; prefect-tune show s --trial 4 --output")
    assert lines[at + 1 : at + 3] == ["step 1", r"\x1b[31mstep 2"]
    assert not [line for line in shown() if line.startswith("output")]
