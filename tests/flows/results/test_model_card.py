"""Model cards in Markdown: golden files, and text kept from an earlier card."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from flow_studies import plan, study_view
from inputs import events as events_and_labels
from markdown_it import MarkdownIt

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.results.exported import Exported
from prefect_tune.flows.results.model_card import CardFacts, QualityOnTest, model_card, written_use
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.final.quality import LossInterval, class_quality
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem

MODEL = {"algorithm": "ridge", "hyperparameters": {"alpha": 1 / 3}}
TRIAL = {
    "number": 4, "query": {"configuration": {"fit model": MODEL}},
    "evaluation": {"constraints": {"latency_us": 31.25}},
}  # fmt: skip
MEMBERS = (TrialView(TRIAL), TrialView(TRIAL | {"number": 5}))
BEST = {"trial": 4, "loss": 0.2, "fidelity": "", "constraints": {}, "configuration": {}}
VIEW = {
    "metric": "r2", "incumbent": BEST, "model_trial": BEST, "single_best_test_loss": 0.25,
    "n_begun": 5, "n_trials": 6, "n_complete": 5, "n_failed": 1,
}  # fmt: skip
ROWS = pd.DataFrame(
    {
        "a|b <i>*": np.arange(100.0) / 40,
        "kind": pd.Categorical(list("abcdefghij") * 10),
        "gaps": [np.nan] * 100,
    }
)
HOUSES = Dataset("houses", "table", ROWS, np.arange(100.0), ())
ABOUT = {"members": [{"trial": 4, "weight": 1.0}], "test_loss": 0.25, "test_loss_undefined": None}


@pytest.fixture(autouse=True)
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect_tune.flows.results.model_card.python_version", lambda: "3.11.7")


def card(
    file: str = "model.pkl",
    use: str = "",
    exported: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    view: dict[str, Any] | None = None,
    **changed: Any,
) -> str:
    """Return a card of a model of house prices with changed facts."""
    given = {"data": "houses.csv", "target": "price", "drop": ("id",), "method": "random"}
    problem = Problem("abc", "split", "regression", "digest", "r2", seed=7)
    made = Exported(
        study="s", metric="r2", about=ABOUT, format="pickle", data=b"", model=None,
        packages={"scikit-learn": "1.9.1"}, rows_checked=20,
    )  # fmt: skip
    facts = CardFacts(
        plan=plan(problem=problem, chance_loss=1.0, data_name="houses", **given | (options or {})),
        view=study_view(**VIEW | (view or {})),
        exported=replace(made, **exported or {}),
        dataset=HOUSES,
        n_training=80,
        n_test=20,
        members=MEMBERS[:1],
        balanced=(),
        quality=QualityOnTest(),
        versions={"python": "3.12.1"},
        fewest=10,
    )
    text = model_card(replace(facts, **changed), file, use)
    return text.replace(f"prefect-tune {version('prefect-tune')}", "prefect-tune VERSION")


def header_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


def test_card_of_a_regression_pipeline_equals_the_golden_file(file_regression) -> None:
    text = card()
    file_regression.check(text, extension=".txt")
    [result] = header_of(text)["model-index"][0]["results"]  # what Hugging Face reads
    assert result["metrics"] == [{"type": "r2", "value": 0.75}]
    assert "skops" in header_of(card("m.skops", exported={"format": "skops"}))["tags"]
    untested = {"exported": {"about": ABOUT | {"test_loss": None}}, "n_test": 0}
    assert "model-index" not in header_of(card(**untested))


def test_card_of_a_classification_ensemble_equals_the_golden_file(file_regression) -> None:
    events, labels = events_and_labels()
    rows = EventRows.build(events.rename(columns={"numeric_value": "value"}), labels)
    classes = np.tile([0, 1], len(rows) // 2).astype(np.int32)
    weights = [{"trial": 4, "weight": 0.25}, {"trial": 5, "weight": 0.75}]
    ensemble = {"kind": "greedy", "members": weights, "losses": [0.15], "nested": {}}
    auroc = LossInterval(0.1875, 0.125, 0.25, n_draws=1_000, n_units=20)
    bounds = (QuantityBound(Quantity("latency_us"), 50.0),)
    text = card(
        exported={"about": ABOUT | {"members": weights, "test_loss": 0.21}},
        dataset=Dataset("stays", "events", rows, classes, ("case", "control")),
        options={"target": None, "constraint": bounds},
        quality=QualityOnTest(auroc=auroc),
        members=MEMBERS,
        balanced=(4,),
        view={"ensemble": ensemble},
    )
    file_regression.check(text, extension=".txt")
    assert "pipeline_tag" not in header_of(text)
    unknown = card(quality=QualityOnTest(auroc=replace(auroc, low=None, high=None)))
    assert "0.812." in unknown


@pytest.mark.parametrize("fewest", [1, 10])
def test_card_names_rare_classes_only_on_request(fewest) -> None:
    y = np.repeat([0, 1, 2], [2, 48, 50]).astype(np.int32)
    people = replace(HOUSES, y=y, classes=("Ann", "a", "b"))
    quality = QualityOnTest(classes=class_quality(y, y, people.classes))
    text = card(dataset=people, quality=quality, fewest=fewest)
    assert text.count("`Ann`") == (2 if fewest == 1 else 0)
    assert ("and 1 class with fewer than 10 rows" in text) == (fewest == 10)


@pytest.mark.parametrize(
    ("exported", "text"),
    [
        ({"own_classes": ("Picky",), "carries_code": True}, "Python 3.11, but not prefect-tune."),
        ({"own_classes": ("Picky",), "format": "skops"}, "must be installed."),
        ({"format": "skops", "trusted": ("a.B",)}, 'trusted = [\n    "a.B",\n]\n'),
        ({"about": ABOUT | {"subset": 0.5}}, "fitted on 0.5 of the training rows."),
        ({"about": ABOUT | {"of_folds": True}}, "too little time to fit on all training rows."),
        ({"about": ABOUT | {"test_loss": None}}, "on the test rows is not known"),
        ({"about": ABOUT | {"test_loss_undefined": "no <b>"}}, r"is undefined: no \<b\>."),
    ],
)
def test_card_explains_how_the_model_was_fitted_and_how_to_load_the_model(exported, text) -> None:
    assert text in card(exported=exported)


def test_intended_use_in_a_card_is_kept_and_other_files_are_not_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "card.md"
    assert written_use(path) == ""
    first = card()
    path.write_text(first)
    assert written_use(path) == ""
    start, end = first.index("*To be written by"), first.index("\n\n## How to load")
    for mine in ("For nurses.\n\n- Not for triage.", first[start:end] + "\n\nMine."):
        path.write_text(first[:start] + mine + first[end:])
        assert written_use(path) == mine
        assert card(use=mine) == path.read_text()
    path.write_text("# Notes\n\n## Intended use\n\nmine\n")
    with pytest.raises(BadInput, check=lambda e: "--no-card" in e.remedy):
        written_use(path)


def test_command_in_a_card_cannot_close_the_code_block_and_shows_no_password() -> None:
    target = "price\n```\n<script>alert(1)</script>\r````\u2028## Limits"
    text = card(options={"data": "https://ann:hidden@host/a b.csv", "target": target})
    tokens = MarkdownIt().parse(text)
    [block] = [token.content for token in tokens if token.type == "fence" and token.info == "sh"]
    assert block.count("\n") == 1
    assert "<script>" in block
    assert "'https://ann:***@host/a b.csv'" in block
    assert not any(token.type == "html_block" for token in tokens)
    assert "hidden" not in text
