"""Champion and challenger: what a series decides after each night, and what is made of it.

Nights are whole studies on growing data, on real workers. The targets of the first rows are noise,
so that the model of the first night is useless, and later ones are better.
"""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine
from inputs import QUICK
from prefect_api import artifacts, flow_runs
from processes import environment

from prefect_tune import load_champion
from prefect_tune.flows import flow_run_page
from prefect_tune.flows.reading.lookup import champion_of, find_series
from prefect_tune.flows.results.exported import exported_model
from prefect_tune.flows.results.predict import predict
from prefect_tune.flows.series.champion import promote, promote_study, roll_back
from prefect_tune.flows.series.locked import LockedSeries, SeriesBusy
from prefect_tune.flows.tune import tune
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.series import Decision, Series
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.usefixtures("server")

N_NOISE = 700


def frame(n: int, n_noise: int = N_NOISE) -> pd.DataFrame:
    """The first n rows of a table whose first targets are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 3))
    is_yes = X[:, 0] + X[:, 1] > 0
    is_yes[:n_noise] = rng.random(n_noise) < 0.5
    frame = pd.DataFrame(X, columns=list("abc")).assign(target=np.where(is_yes, "yes", "no"))
    return frame[:n]


class Nights:
    """The nights of a series in a store of its own."""

    def __init__(self, folder: Path, name: str = "daily") -> None:
        self.folder, self.name = folder, name
        self.store = ArtifactStore(StoreAddress(str(folder / "store")))

    def parameters(self, data: pd.DataFrame, **options: Any) -> dict[str, Any]:
        data.to_csv(self.folder / "table.csv", index=False)
        return {
            "data": str(self.folder / "table.csv"), "target": "target", "series": self.name,
            "store": str(self.folder / "store"), "workers": 2, "trials": 3, "folds": 3, **QUICK,
            **options,
        }  # fmt: skip

    def night(self, n: int, **options: Any) -> dict[str, Any]:
        return tune(**self.parameters(frame(n), **options))

    @property
    def state(self) -> Series:
        return find_series(self.store, self.name)

    @property
    def decisions(self) -> list[Decision | None]:
        return [run.decision for run in self.state.runs]

    @property
    def outcomes(self) -> list[str]:
        return [decision.outcome for decision in self.decisions if decision]

    @property
    def champions(self) -> list[str]:
        return [champion.study for champion in self.state.champions]

    @property
    def record(self) -> str:
        return champion_of(self.store, self.name).record


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Names and payloads of the events that go to Prefect."""
    sent: list[tuple[str, dict[str, Any]]] = []
    emit = flow_run_page.emit_event

    def noted(event: str, resource: Any, payload: dict[str, Any]) -> Any:
        sent.append((event, payload))
        return emit(event, resource, payload=payload)

    monkeypatch.setattr(flow_run_page, "emit_event", noted)
    return sent


@pytest.fixture(scope="module")
def nights(server, tmp_path_factory: pytest.TempPathFactory) -> Nights:  # noqa: ARG001
    """Four nights; nobody changes the champion afterwards."""
    made = Nights(tmp_path_factory.mktemp("nights"), "nightly")
    for n in (N_NOISE, 4_000, 4_300, 6_500):
        made.night(n)
    return made


def test_the_first_model_is_the_champion_and_a_better_one_replaces_it(nights: Nights) -> None:
    assert nights.outcomes[:3] == ["first", "better", "too few rows"]
    assert nights.outcomes[3] in {"better", "not better"}
    first, second, third, fourth = nights.decisions
    assert (first.promoted, second.promoted, third.promoted) == (True, True, False)
    assert second.champion == "nightly-1"
    assert second.compared["p"] <= second.compared["level"] < 0.02
    assert second.compared["difference"]["low"] > 0
    loss, of_champion = (second.compared[one] for one in ("challenger", "champion"))
    assert loss["low"] < loss["value"] < loss["high"] < of_champion["low"]
    assert second.n_rows > second.compared["n_blocks"] == 200
    assert "fresh rows" in second.reason
    assert "not enough rows" in third.reason
    assert third.compared is None
    assert fourth.test_number == 1  # a decision without a test uses no level


def test_only_test_rows_that_have_not_decided_yet_decide(nights: Nights) -> None:
    # The second champion was promoted on a fifth of 4,000 rows; 2,500 rows came after it.
    decided, *_, last = nights.decisions[1:]
    assert decided.n_rows == pytest.approx(0.2 * 4_000, rel=0.2)
    assert last.n_rows == pytest.approx(0.2 * 2_500, rel=0.2)


@pytest.mark.usefixtures("nights")
def test_the_decision_is_shown_in_prefect() -> None:
    run = next(r for r in flow_runs() if r.name.startswith("nightly-2"))
    (page,) = (a for a in artifacts(run.id) if a.key == "nightly-champion")
    assert "nightly-1" in page.data
    assert "fresh rows" in page.data
    assert page.type == "markdown"


def test_the_models_of_champions_are_kept(nights: Nights) -> None:
    records = nights.store.records.used_by("series nightly")
    assert set(records) == {champion.record for champion in nights.state.champions}
    assert len(records) >= 2


def test_predict_and_export_use_the_champion(nights: Nights, tmp_path: Path) -> None:
    cli, new = CommandLine(tmp_path), tmp_path / "new.csv"
    store = ("--store", nights.folder / "store")
    frame(8_000)[-300:].drop(columns="target").to_csv(new, index=False)
    out = tmp_path / "out.parquet"
    said = cli.json("predict", "--series", "nightly", new, "--out", out, *store)
    champion = nights.state.champion.study
    assert champion in {"nightly-2", "nightly-4"}
    assert (said["study"], said["rows"]) == (champion, 300)
    expected = predict(nights.store, champion, str(new), None)
    pd.testing.assert_frame_equal(pd.read_parquet(out), expected, check_dtype=False)
    said = cli.json("export", "--series", "nightly", tmp_path / "model.pkl", *store)
    model = pd.read_pickle(tmp_path / "model.pkl")
    rows = pd.read_csv(new)
    assert np.array_equal(model.predict(rows), expected["prediction"])
    loaded = load_champion("nightly", str(nights.folder / "store"))
    assert loaded.name == champion
    assert np.array_equal(loaded.model().predict(rows), expected["prediction"])


def test_study_and_series_are_not_given_both(nights: Nights, tmp_path: Path) -> None:
    cli, store = CommandLine(tmp_path), ("--store", nights.folder / "store")
    for arguments in (
        ("predict", "--series", "nightly", "nightly-1", "new.csv"),
        ("predict", "nightly-1"),
        ("export", "--series", "nightly"),
        ("export",),
    ):
        result = cli(*arguments, *store)
        assert result.exit_code == 2, arguments
    assert cli("predict", "--series", "none", "new.csv", *store).exit_code == 2


def test_a_champion_set_by_hand(tmp_path: Path, events: list[Any]) -> None:
    nights, cli = Nights(tmp_path), CommandLine(tmp_path)
    nights.night(N_NOISE)
    nights.night(2_000, promotion="never")
    assert nights.outcomes == ["first", "never"]
    assert nights.decisions[1].compared is not None
    store = ("--store", tmp_path / "store")
    changed = cli.json("promote", "daily", *store)
    assert changed == {
        "series": "daily", "champion": "daily-2", "former": "daily-1", "by": "promote",
        "is_changed": True,
    }  # fmt: skip
    assert nights.champions == ["daily-2", "daily-1"]
    assert nights.state.champion.by != "rule"
    assert len(nights.store.records.used_by("series daily")) == 2
    assert "already" in cli("promote", "daily", "daily-2", *store).stdout
    assert "daily-1" in cli("rollback", "daily", *store).stdout
    assert nights.champions == ["daily-1"]
    assert nights.store.records.used_by("series daily") == [nights.record]
    assert cli("rollback", "daily", *store).exit_code == 2  # past the kept champions
    named = [payload for name, payload in events if name == "prefect-tune.champion-changed"]
    assert [(p["study"], p["former"], p["by"]) for p in named] == [
        ("daily-1", None, "rule"),
        ("daily-2", "daily-1", "promote"),
        ("daily-1", "daily-2", "rollback"),
    ]
    promote("daily", "daily-2", str(tmp_path / "store"))  # the flow of the deployment
    assert nights.champions == ["daily-2", "daily-1"]
    nights.store.records.release("series daily")  # a person has removed the kept models
    assert cli("rollback", "daily", *store).exit_code == 2
    assert nights.champions == ["daily-2", "daily-1"]


def test_a_resumed_champion_stays_until_its_new_model_is_better(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.night(1_500, trials=1, seed=1)
    first = nights.record
    nights.night(1_500, trials=8, seed=1)
    assert [run.study for run in nights.state.runs] == ["daily-1"]
    (decision,) = nights.decisions
    assert decision.model != first  # the study has another model now
    is_promoted = decision.promoted
    assert (nights.record == first) != is_promoted
    _, about = exported_model(nights.store, "daily-1", record=nights.record)
    of_study = nights.store.records.get("models/daily-1", ["about"])["about"]
    assert (about["trial"] == of_study["trial"]) == is_promoted


def test_a_study_resumed_by_its_name_leaves_the_champion_to_a_decision(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.night(1_500, trials=1, seed=1)
    given = {**nights.parameters(frame(1_500)), "series": None, "study": "daily-1", "seed": 1}
    assert tune(**{**given, "trials": 8})["state"] == "complete"
    assert nights.decisions[0].champion == "daily-1"
    assert nights.record in nights.store.records.used_by("series daily")
    with closing(LockedSeries(nights.store, "daily")) as locked:  # which is free again
        assert tune(**{**given, "trials": 9})["state"] == "complete"
        locked.delete()
    assert tune(**{**given, "trials": 10})["state"] == "complete"


@pytest.mark.parametrize(("rule", "champions"), [("always", [1, 2]), ("never", [None, None])])
def test_the_rule_can_replace_the_test(tmp_path: Path, rule: str, champions: list[Any]) -> None:
    nights = Nights(tmp_path, rule)
    for n, number in zip((1_500, 1_900), champions, strict=True):
        nights.night(n, promotion=rule)
        assert nights.champions[:1] == ([f"{rule}-{number}"] if number else [])
    assert nights.state.n_tests == 0
    if rule == "never":
        with pytest.raises(BadInput, match="no champion"):
            champion_of(nights.store, rule)


KILLED = """
import os, signal, sys
from prefect_tune.flows.tune import tune
from prefect_tune.storage.series import SeriesTable

save = SeriesTable.save

def killed(self, *arguments, **options):
    if sys.argv[1] == "after":
        save(self, *arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    SeriesTable.save = killed
    tune(**eval(sys.argv[2]))
"""


@pytest.mark.full
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_decision_is_made_exactly_once(tmp_path: Path, server: str, when: str) -> None:
    nights = Nights(tmp_path)
    nights.night(N_NOISE)
    given = nights.parameters(frame(4_000))
    (tmp_path / "killed.py").write_text(KILLED)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py"), when, repr(given)],
        env=environment(tmp_path, server),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2_000:]
    n_decided = 1 + (when == "after")
    assert len(nights.outcomes) == n_decided
    assert nights.champions[0] == f"daily-{n_decided}"  # both or neither
    tune(**given)
    assert nights.outcomes == ["first", "better"]
    assert nights.champions == ["daily-2", "daily-1"]
    assert len(nights.store.records.used_by("series daily")) == 2


def test_what_cannot_be_promoted_is_named(nights: Nights) -> None:
    store = nights.store
    with pytest.raises(UnknownName, match="nope"):
        promote_study(store, "nope")
    with pytest.raises(UnknownName, match="nope"):
        promote_study(store, "nightly", "nope")
    with closing(LockedSeries(store, "nightly")):
        for change in (promote_study, roll_back):
            with pytest.raises(SeriesBusy, match="in use"):
                change(store, "nightly")


def test_a_study_of_another_series_or_without_a_model_is_not_promoted(
    tmp_path: Path,
) -> None:
    nights, others = Nights(tmp_path), Nights(tmp_path, "other")
    nights.night(N_NOISE)
    others.night(900)
    with pytest.raises(UnknownName, match="other-1"):
        promote_study(nights.store, "daily", "other-1")
    nights.store.records.release("daily-1", ["models/daily-1"])
    with pytest.raises(BadInput, match="no model"):
        promote_study(nights.store, "daily", "daily-1")
    with pytest.raises(BadInput, match="no study"):
        promote_study(nights.store, "daily")
    assert nights.record in nights.store.records.ids()  # the champion itself stays
