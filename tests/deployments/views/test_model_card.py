"""Model cards in Markdown."""

import re
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
        "of_folds": False,
        "subset": 1.0,
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
        "test_error": None, "test_auroc": None, "by_class": [],
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
    assert r"| a\|b \<i\>\* | number | 0.1% | 0 to 2.5 |" in text
    assert "`h` and 2 more |" in text
    assert "| 1 to 2 | 5 | 0.5 | 0.25 |" in text
    assert "| 0.25 | 20 |" in text
    assert "| fit model | `ridge` | `alpha=0.3333` |" in text
    assert "best single trial (4) on" not in text
    assert "prefect-tune 0.1.0" in text
    assert "| python | 3.12.1 |" in text
    assert "Fairness" in text
    bounded = {"quantity": "latency_us", "bound": 50.0, "measured": {4: 31.25}}
    limited = card(constraints=[bounded])
    assert "| `latency_us` | 50 | 4 | 31.25 |" in limited
    member = {**FACTS["model"]["members"][0], "balanced": True}
    assert "(trial 4)" in card(model={"members": [member]}).split("## Limits")[1]
    data = {"kind": "events", "columns": [], "codes": 12, "patients": 40}
    target = {"name": None, "kind": "classes", "classes": ["case", "control"]}
    events = card(data=data, target=target)
    assert "`case`, `control`" in events
    assert "pipeline_tag" not in header_of(events)


def test_of_an_ensemble_its_losses_stand_beside_those_of_the_best_trial() -> None:
    members = [
        {**FACTS["model"]["members"][0], "trial": n, "weight": w} for n, w in ((4, 0.25), (5, 0.75))
    ]
    text = card(
        model={"kind": "greedy", "members": members}, losses={"held_out": 0.15, "test": 0.21}
    )
    rows = [line.split(" | ")[1:] for line in text.splitlines() if line.startswith("| ")]
    found = {tuple(row) for row in rows if row}
    assert {("0.15", "80 |"), ("0.21", "20 |"), ("0.25", "20 |")} <= found
    assert text.index("Trial 5, weight 75.0%") < text.index("Trial 4, weight 25.0%")


@pytest.mark.parametrize(
    ("loading", "said"),
    [
        ({}, "prefect-tune is not needed."),
        ({"own_classes": ["Picky"], "carries_code": True}, "Python 3.11, but not prefect-tune."),
        ({"own_classes": ["Picky"], "format": "skops"}, "must be installed."),
        ({"format": "skops", "trusted": ["a.B"]}, 'trusted = [\n    "a.B",\n]\n'),
    ],
)
def test_what_loading_takes_is_said(loading, said) -> None:
    assert said in card(loading=loading)
    of_skops = card("m.skops", loading={"format": "skops"})
    assert "skops" in header_of(of_skops)["tags"]


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
    kept = again.partition("## Intended use\n\n")[2].partition("\n\n## How to load it")[0]
    assert kept == "For nurses.\n\n- Not for triage."
    assert "To be written" not in again
    assert again == card(former=again)


def test_no_word_of_the_command_ends_its_block_and_none_is_a_password() -> None:
    target = "price\n```\n<script>alert(1)</script>\r````\u2028## Limits"
    words = ("prefect-tune", "run", "https://ann:hidden@host/a b.csv", "--target", target)
    text = card(command=words)
    tokens = MarkdownIt().parse(text)
    blocks = [token.content for token in tokens if token.type == "fence" and token.info == "sh"]
    assert len(blocks) == 1
    assert blocks[0].count("\n") == 1
    assert "<script>" in blocks[0]
    assert "'https://ann:***@host/a b.csv'" in blocks[0]
    assert not any(token.type == "html_block" for token in tokens)
    assert "hidden" not in text
    assert "```sh" not in card()


def test_an_area_has_its_interval_where_one_is_known() -> None:
    auroc = {"value": 0.8125, "low": 0.75, "high": 0.875, "n_draws": 1_000, "n_units": 20}
    assert re.search(r"AUROC.* 0\.812 .*0\.750 .*0\.875", card(losses={"test_auroc": auroc}))
    unknown = card(losses={"test_auroc": auroc | {"low": None, "high": None}})
    assert re.search(r"AUROC.* 0\.812\.", unknown)
    assert "AUROC" not in card()
