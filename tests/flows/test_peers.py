"""Other tools beside ours: splits, scores, portfolios, and what is run again."""

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import numpy as np
import pandas as pd
import psutil
import pytest
from peer_tools.portfolios import picked, related
from peer_tools.report import at_stages, mean_ranks, ratio
from peer_tools.rows import RECORDED, Rows
from peer_tools.runs import Run, Tool, run_all
from peer_tools.scoring import test_loss as loss_of_test  # or it would be collected
from peer_tools.tables import EventSet, TableFile
from peer_tools.task import Incumbents, Task
from processes import command_line

TOOLS = "stub_tools.guessing,stub_tools.knowing"


@pytest.fixture
def tables(tmp_path) -> list[TableFile]:
    """Forty rows of classes by the sign of a column, with gaps and texts, and forty of numbers."""
    rng = np.random.default_rng(0)
    a, colour = rng.normal(size=40), np.array(["red", "green", None, "blue"])[np.arange(40) % 4]
    frame = pd.DataFrame({"a": a, "b": rng.normal(size=40) / 9, "colour": colour})
    frame.assign(target=(a > 0.5).astype(int)).to_csv(tmp_path / "signs.csv.gz", index=False)
    numbers = frame.drop(columns="colour").assign(size=a * 3 + 0.01 * rng.normal(size=40))
    numbers.to_csv(tmp_path / "sizes.csv", index=False)
    return [TableFile.of(f"{tmp_path}/signs.csv.gz"), TableFile.of(f"{tmp_path}/sizes.csv:size")]


def runs_of(tables: list[TableFile], tmp_path: Path, tools: str = TOOLS) -> list[Run]:
    return [
        Run(Tool.of(label), table.name, 0, 4.0, table.split(0, tmp_path / "splits"))
        for table in tables
        for label in tools.split(",")
    ]


@pytest.mark.slow
def test_a_split_is_drawn_by_name_and_number_and_keeps_classes_and_gaps(tables, tmp_path) -> None:
    signs, sizes = tables
    files = signs.split(0, tmp_path / "one")
    again, other = signs.split(0, tmp_path / "two"), signs.split(1, tmp_path / "one")
    train, test = pd.read_parquet(files.train), pd.read_parquet(files.test)
    assert (files.kind, files.test_rows, len(train), len(test)) == ("classes", 12, 28, 12)
    assert set(train["target"]) == {"c0", "c1"}
    whole = pd.concat([train, test])
    assert abs((test["target"] == "c1").mean() - (whole["target"] == "c1").mean()) < 0.05
    assert sorted(whole["a"]) == sorted(pd.read_csv(signs.path)["a"])
    assert whole["colour"].isna().sum() == 10
    assert files.train.read_bytes() == again.train.read_bytes()
    assert set(pd.read_parquet(other.test)["a"]) != set(test["a"])
    assert (sizes.name, sizes.split(0, tmp_path / "one").kind) == ("sizes.size", "numbers")


def test_forms_of_an_event_set_and_cohorts_of_a_family_are_related() -> None:
    small, large, other = (
        EventSet.of(f"cohort:paper?n_patients={n}&family={family}&seed={n}").name
        for n, family in ((500, "sum"), (4000, "sum"), (500, "count"))
    )
    meds, omop = (EventSet.of(f"/data/{form}_bleed:labels/task") for form in ("meds", "omop"))
    assert (meds.data, meds.labels) == ("/data/meds_bleed", "labels/task")
    assert related(small, large)
    assert related(meds.name, omop.name)
    assert len({small, large, other, meds.name, omop.name}) == 5
    assert not related(small, other)
    assert not related(meds.name, small)


def test_a_portfolio_begins_with_what_is_cheap_and_then_covers_what_that_leaves() -> None:
    losses = {  # by candidate: losses on two tables, seconds
        "cheap": (1, 5, 1), "dear": (1, 4, 90), "second": (9, 0, 2), "worst": (9, 9, 1),
        "middle": (5, 5, 2),
    }  # fmt: skip
    rows = pd.DataFrame(
        {
            "configuration": json.dumps({"fit model": {"algorithm": name}}),
            "table": table,
            "loss": loss,
            "seconds": seconds,
        }
        for name, (*of_tables, seconds) in losses.items()
        for table, loss in zip("ab", of_tables, strict=True)
    )

    def models(first: str | None = None) -> list[str]:
        given = first and json.dumps({"fit model": {"algorithm": first}})
        return [json.loads(c)["fit model"]["algorithm"] for c in picked(rows, 2, given)]

    assert models() == ["cheap", "second"]
    assert models("second") == ["second", "cheap"]


@pytest.mark.slow
def test_the_loss_is_the_error_in_percent_or_one_less_r2() -> None:
    assert loss_of_test("classes", ["c1", "c0", "c1", "c0"], ["c1", "c1", "c1", "c0"]) == 25
    truth = np.array([1.0, 2.0, 3.0, 6.0])
    assert loss_of_test("numbers", truth, np.full(4, 3.0)) == pytest.approx(1.0)
    assert loss_of_test("numbers", truth, truth + 0.5) == pytest.approx(1 / 14)
    assert loss_of_test("numbers", truth, [1, 2, 3, float("nan")]) == float("inf")
    with pytest.raises(ValueError, match="3 predictions"):
        loss_of_test("classes", truth, truth[:3])


@pytest.mark.slow
def test_what_led_at_a_time_is_the_least_of_what_had_ended() -> None:
    found = Incumbents()
    for seconds, loss in ((1.0, None), (2.0, 9.0), (5.0, 4.0), (7.0, 6.0), (9.0, 1.0)):
        found.ended(seconds, loss, f"at {seconds:g}")
    task = Task("", "", "y", "numbers", 8.0, 0, 0.0, "")
    answers = list(found.answers(task, lambda what: [what]))
    came = [(a.stage, a.found, a.loss, a.configurations, a.predictions) for a in answers]
    assert came == [
        (2.0, 2.0, 9.0, 2, ["at 2"]),
        (4.0, 2.0, 9.0, 2, ["at 2"]),
        (8.0, 5.0, 4.0, 4, ["at 5"]),
    ]
    assert answers[0].predictions is answers[1].predictions
    assert found.at(1.5) is None


@pytest.mark.slow
def test_runs_that_are_there_are_not_run_again(tables, tmp_path) -> None:
    rows, said = Rows(tmp_path / "rows.parquet"), []
    runs = runs_of(tables, tmp_path)
    assert run_all(runs[:3], rows, tmp_path, 1, said.append) == []
    before = Rows(rows.path)
    assert [before.has(run.key) for run in runs] == [True, True, True, False]
    assert run_all(runs, before, tmp_path, 2, said.append) == []
    assert said[-2] == "3 of 4 runs are there"
    assert said[-1].startswith("stub_tools.knowing-sizes.size-0-4: test loss ")
    frame = Rows(rows.path).of([run.key for run in runs])
    # Guessing has no loss at a quarter; knowing has an answer at each stage, and its single best.
    assert frame.groupby(["table", "tool"]).size().tolist() == [2, 4, 2, 4]
    guess = frame[(frame["tool"] == "stub_tools.guessing") & (frame["table"] == "signs")]
    y = pd.read_parquet(runs[0].files.test)["target"]
    assert guess["test_loss"].tolist() == [pytest.approx(100 * (y == "c1").mean())] * 2
    assert guess["version"].unique().tolist() == [pd.__version__]
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "deployments/docs/pages/using/comparing.md"])
def test_the_figures_of_a_page_match_the_recorded_runs(page) -> None:
    frame = pd.read_parquet(RECORDED)
    text = (Path(__file__).parents[2] / page).read_text().split("## Comparison with other tools")[1]
    shown = [line.strip("|").split("|") for line in text.split("\n\n")[2].splitlines()[2:]]
    ranks = [mean_ranks(losses) for losses in at_stages(frame, "test_loss").values()]
    final = frame[(frame["model"] == "answer") & (frame["stage"] == frame["budget"])]
    by_tool = dict(list(final.groupby("tool")))
    assert len(shown) == len(by_tool) == 5
    for name, *of_ranks, of_ratio in shown:
        tool = {"prefect-tune": "ours", "SMAC3": "smac"}.get(
            name.split()[0], name.split()[0].lower()
        )
        found = [f"{rank[tool]:.2f}" if tool in rank else "" for rank in ranks]
        assert [cell.strip() for cell in of_ranks] == found
        if tool != "ours":
            mean, error, n = ratio(by_tool["ours"], by_tool[tool])
            numbers = re.findall(r"\d\.\d+", of_ratio)
            assert (numbers, n) == ([f"{mean:.3f}", f"{error:.3f}"], 8)
            assert name.split()[1] == by_tool[tool]["version"].iloc[0]


@pytest.mark.slow
def test_an_interrupted_benchmark_leaves_no_run_behind(tables, tmp_path) -> None:
    (run,) = runs_of(tables[:1], tmp_path, "stub_tools.guessing:sleeps=yes")
    me, seen = psutil.Process(), []

    def interrupt() -> None:
        while not (found := [c for c in me.children() if "one_run" in " ".join(command_line(c))]):
            sleep(0.05)
        seen.extend(found)
        os.kill(me.pid, signal.SIGINT)

    with ThreadPoolExecutor(1) as background:
        background.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_all([run], Rows(tmp_path / "rows.parquet"), tmp_path, 1, lambda _: None)
    assert [child.is_running() for child in seen] == [False]


def rows(losses: dict[str, list[float]], seconds: dict[str, float] | None = None) -> pd.DataFrame:
    """Losses of candidates on tables t0, t1, ..., each in a second unless given."""
    return pd.DataFrame(
        [
            {"configuration": name, "table": f"t{t}", "loss": loss, "seconds": taken}
            for name, of_tables in losses.items()
            for taken in [(seconds or {}).get(name, 1.0)]
            for t, loss in enumerate(of_tables)
        ]
    )
