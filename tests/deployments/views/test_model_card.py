"""Model cards in Markdown."""

from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from prefect_tune.deployments.views.model_card import model_card

CONFIGURATION = {"fit model": {"algorithm": "ridge", "hyperparameters": {"alpha": 1 / 3}}}
FACTS: dict[str, Any] = {
    "study": "s",
    "written_by": "prefect-tune 0.1.0",
    "model": {
        "kind": "single",
        "class": "Pipeline",
        "members": [{"trial": 4, "weight": 1.0, "loss": 0.2, "configuration": CONFIGURATION}],
    },
    "target": {"name": "price", "kind": "numbers", "classes": []},
    "data": {
        "name": "houses", "source": "houses.csv", "kind": "table", "digest": "abc", "rows": 100,
        "training_rows": 80, "test_rows": 20, "dropped": ["id"], "aside": [], "group": None,
        "folds": 3, "holdout": None, "test_file": None,
        "columns": [
            {"name": "a|b <i>*", "type": "number", "gaps": 0.0001, "range": [0.0, 2.5]},
            {"name": "kind", "type": "category", "gaps": 0.0, "categories": list("abcdefghij")},
        ],
    },
    "losses": {
        "metric": "r2", "unit": "1 - r2", "guessing": 1.0, "best_trial": 4, "cross_validated": 0.2,
        "held_out": None, "test": 0.25, "test_score": {"type": "r2", "value": 0.75},
        "single_best_test": 0.25, "fidelity": "", "test_undefined": None,
        "test_error": None, "by_class": [],
        "by_quarter": [
            {"from": 1.0, "to": 2.0, "rows": 5, "mean_absolute_error": 0.5, "mean_error": 0.25}
        ],
    },
    "constraints": [],
    "search": {
        "method": "random", "options": {}, "space": "regression", "race": False, "epochs": None,
        "seed": 7, "budget_trials": 5, "budget_seconds": 90.0, "configurations": 5, "trials": 6,
        "failed": 1, "seconds": 75.0, "finalists": 0,
    },
    "loading": {
        "format": "pickle", "python": "3.11.7", "packages": {"scikit-learn": "1.9.1"},
        "own_classes": [], "carries_code": False, "predicts_events": False, "trusted": [],
        "rows_checked": 20,
    },
    "versions": {"python": "3.12.1"},
}  # fmt: skip


def card(
    file: str = "model.pkl", command: tuple[str, ...] = (), former: str = "", **changed: Any
) -> str:
    facts = {n: {**FACTS[n], **v} if isinstance(v, dict) else v for n, v in changed.items()}
    return model_card({**FACTS, **facts}, file, command=command, former=former)


def header_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


def test_the_header_is_what_hugging_face_reads() -> None:
    header = header_of(card())
    assert header["library_name"] == "sklearn"
    assert header["tags"] == ["sklearn", "prefect-tune", "tabular-regression"]
    assert (header["model_file"], header["model_format"]) == ("model.pkl", "pickle")
    (result,) = header["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "r2", "value": 0.75}]
    untested = {"test": None, "test_score": None, "single_best_test": None, "by_quarter": []}
    assert "model-index" not in header_of(card(losses=untested))


def test_columns_and_numbers_are_listed_and_what_steers_markdown_is_escaped() -> None:
    text = card()
    assert "Predicts the number `price` from 2 columns of a table." in text
    assert r"| a\|b \<i\>\* | number | 0.1% | 0 to 2.5 |" in text
    assert (
        "| `kind` | category (text) |  | `a`, `b`, `c`, `d`, `e`, `f`, `g`, `h` and 2 more |"
        in text
    )
    assert "| 1 to 2 | 5 | 0.5 | 0.25 |" in text
    assert "| the model on the test rows | 0.25 | 20 |" in text
    assert "| fit model | `ridge` | `alpha=0.3333` |" in text
    assert "best single trial (4) on the test rows" not in text
    assert "stratified by tenth of the target" in text
    assert "[prefect-tune 0.1.0](https://pypi.org/project/prefect-tune/) searched for it" in text


def test_of_an_ensemble_its_losses_stand_beside_those_of_the_best_trial() -> None:
    members = [
        {**FACTS["model"]["members"][0], "trial": n, "weight": w} for n, w in ((4, 0.25), (5, 0.75))
    ]
    text = card(
        model={"kind": "greedy", "members": members}, losses={"held_out": 0.15, "test": 0.21}
    )
    assert "The model is an ensemble of 2 pipelines" in text
    assert "| the model on the test rows | 0.21 | 20 |" in text
    assert "| best single trial (4) on the test rows | 0.25 | 20 |" in text
    assert "| the ensemble on the held-out rows that it was chosen on | 0.15 | 80 |" in text
    assert text.index("Trial 5, weight 75.0%") < text.index("Trial 4, weight 25.0%")


def test_constraints_are_shown_with_what_was_measured() -> None:
    text = card(constraints=[{"quantity": "latency_us", "bound": 50.0, "measured": {4: 31.25}}])
    assert "| `latency_us` | 50 | 4 | 31.25 |" in text
    assert "Fairness, speed and size were not measured" not in text
    assert "Fairness, speed and size were not measured" in card()


@pytest.mark.parametrize(
    ("loading", "said"),
    [
        ({}, "prefect-tune is not needed."),
        (
            {"own_classes": ["Picky"], "carries_code": True},
            "go with it as code: prefect-tune is not needed, but Python must be 3.11.",
        ),
        ({"own_classes": ["Picky"], "format": "skops"}, "which must be installed."),
    ],
)
def test_what_loading_takes_is_said(loading, said) -> None:
    assert said in card(loading=loading)


def test_a_skops_file_has_the_line_that_loads_it() -> None:
    text = card("model.skops", loading={"format": "skops", "trusted": ["a.B"]})
    assert (
        'trusted = [\n    "a.B",\n]\nmodel = skops.io.load("model.skops", trusted=trusted)' in text
    )
    assert "Reading the file runs nothing" in text
    assert "skops" in header_of(text)["tags"]


def test_what_people_wrote_of_its_use_is_kept() -> None:
    first = card()
    assert "To be written by whoever" in first
    start = first.index("*To be written")
    written = (
        first[:start]
        + "For nurses.\n\n- Not for triage."
        + first[first.index("\n\n## How to load") :]
    )
    again = card(former=written)
    assert "## Intended use\n\nFor nurses.\n\n- Not for triage.\n\n## How to load it" in again
    assert "To be written" not in again
    assert again == card(former=again)


def test_the_command_that_starts_the_study_anew_is_quoted() -> None:
    text = card(command=("prefect-tune", "run", "my houses.csv", "--target", "price"))
    assert "```sh\nprefect-tune run 'my houses.csv' --target price\n```" in text
    assert "```sh" not in card()


def test_versions_are_those_of_the_search_where_they_are_known() -> None:
    header = "| package | version |\n| --- | --- |"
    assert f"Of the packages that searched:\n\n{header}\n| python | 3.12.1 |" in card()
    facts = {**FACTS, "versions": {}}
    assert "| python | 3.11.7 |" in model_card(facts, "model.pkl")


def test_models_of_events_say_who_reads_events() -> None:
    data = {"kind": "events", "columns": [], "codes": 12, "patients": 40}
    target = {"name": None, "kind": "classes", "classes": ["case", "control"]}
    text = card(data=data, target=target)
    assert "Predicts one of `case`, `control` from the events of a patient up to a time" in text
    assert "`prefect-tune predict` takes them from files" in text
    assert "pipeline_tag" not in header_of(text)


def test_the_command_has_no_password() -> None:
    words = ("prefect-tune", "run", "https://ann:hidden@host/a.csv", "--test", "s3://k:hidden@b/c")
    text = card(command=words)
    assert "hidden" not in text
    assert "https://ann:***@host/a.csv" in text


def test_no_word_of_the_command_ends_its_block() -> None:
    target = "price\n```\n<script>alert(1)</script>\r````\u2028## Limits"
    text = card(command=("prefect-tune", "run", "houses.csv", "--target", target))
    tokens = MarkdownIt().parse(text)
    blocks = [token.content for token in tokens if token.type == "fence" and token.info == "sh"]
    assert len(blocks) == 1
    assert blocks[0].count("\n") == 1
    assert "<script>" in blocks[0]
    assert not any(token.type == "html_block" for token in tokens)


def test_probabilities_of_balanced_classes_are_said_to_be_none_of_these_rows() -> None:
    member = FACTS["model"]["members"][0]
    members = [{**member, "balanced": True}, {**member, "trial": 9, "balanced": False}]
    limits = card(model={"members": members}).split("## Limits")[1]
    assert "balance in training (trial 4)" in limits
    assert "balance in training" not in card()
