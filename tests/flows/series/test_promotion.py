"""Champion and challenger: the decision of a series after each run, and its effects.

Runs are whole studies on growing data, in this process. The targets of the first rows are noise, so
the model of the first run is useless, and later models are better.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine
from finished.searched import Here, searched
from observing import Heard
from user_spaces import PRELUDE

from prefect_tune import load_champion
from prefect_tune.flows.flow_run_page import RunArtifact
from prefect_tune.flows.reading.lookup import champion_of, find_series
from prefect_tune.flows.results.exported import exported_model
from prefect_tune.flows.results.predict import predict
from prefect_tune.flows.series import champion
from prefect_tune.flows.series.champion import promote, promote_study, roll_back
from prefect_tune.flows.series.locked import LockedSeries, SeriesBusy
from prefect_tune.flows.series.promotion import decide_promotion
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.series import Decision, Series, SeriesTable, series_lease
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

N_NOISE = 700
TREES = f"{PRELUDE}\nspace = models(one('tree', DecisionTreeClassifier, DEPTH, seeded=True))"


def frame(n: int) -> pd.DataFrame:
    """Return the first n rows of a table whose first targets are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 3))
    is_yes = X[:, 0] + X[:, 1] > 0
    is_yes[:N_NOISE] = rng.random(N_NOISE) < 0.5
    return pd.DataFrame(X, columns=list("abc")).assign(target=np.where(is_yes, "yes", "no"))[:n]


class Runs:
    """The runs of a series in a store."""

    def __init__(self, folder: Path, name: str = "daily") -> None:
        self.folder, self.name, self.heard = folder, name, Heard()
        self.store = ArtifactStore(StoreAddress(str(folder / "store")))
        self.address = ("--store", self.store.address.url)

    def run(self, n: int, **options: Any) -> str:
        """Run a study to its end, and decide about its promotion."""
        study = self.undecided(n, **options)
        self.decide(study)
        return study

    def undecided(self, n: int, **options: Any) -> str:
        data = self.folder / "table.csv"
        frame(n).to_csv(data, index=False)
        (self.folder / "own.py").write_text(TREES)
        given: Mapping[str, Any] = {
            "data": str(data), "target": "target", "series": self.name, "study": None, "trials": 2,
            "folds": 3, "space": f"{self.folder}/own.py:space", **options,
        }  # fmt: skip
        found = searched(self.folder, **given)
        self.store.leases.release(series_lease(self.name))
        return found.name

    def decide(self, study: str) -> None:
        with Study.opened(self.store, study) as opened:
            context = StudyContext(study, opened.problem, self.store.address)
            workers: Any = Here()
            with pytest.MonkeyPatch.context() as patched:  # Prefect would start a server
                patched.setattr(RunArtifact, "publish", lambda *_: None)
                decide_promotion(opened, workers, context, self.heard, None)

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

    def kept(self) -> list[str]:
        """Return the models that the series keeps."""
        return self.store.records.used_by(f"series {self.name}")


@pytest.fixture
def fresh(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Four runs; later tests leave the champion unchanged."""
    made = Runs(tmp_path_factory.mktemp("series"), "nightly")
    for n in (N_NOISE, 4_000, 4_300, 6_500):
        made.run(n)
    return made


def test_first_model_becomes_the_champion_and_yields_to_a_better_model(series: Runs) -> None:
    assert series.outcomes[:3] == ["first", "better", "too few rows"]
    assert series.outcomes[3] in {"better", "not better"}
    first, second, third, fourth = series.decisions
    assert (first.promoted, second.promoted, third.promoted) == (True, True, False)
    assert second.champion == "nightly-1"
    assert second.compared["p"] <= second.compared["level"] < 0.02
    assert second.compared["difference"]["low"] > 0
    loss, of_champion = (second.compared[one] for one in ("challenger", "champion"))
    assert loss["low"] < loss["value"] < loss["high"] < of_champion["low"]
    assert second.compared["n_blocks"] == 200
    assert third.compared is None
    assert fourth.test_number == 1  # a decision without a test uses no level
    # Only test rows that have not decided yet decide: the second champion was promoted on a fifth
    # of 4,000 rows, and 2,500 rows came after it.
    assert second.n_rows == pytest.approx(0.2 * 4_000, rel=0.2)
    assert fourth.n_rows == pytest.approx(0.2 * 2_500, rel=0.2)
    assert set(series.kept()) == {champion.record for champion in series.state.champions}


def test_predict_and_export_use_the_champion(series: Runs, tmp_path: Path) -> None:
    cli, new, out = CommandLine(tmp_path), tmp_path / "new.csv", tmp_path / "out.parquet"
    frame(8_000)[-300:].drop(columns="target").to_csv(new, index=False)
    said = cli.json("predict", "--series", "nightly", new, "--out", out, *series.address)
    champion = series.state.champion.study
    assert (said["study"], said["rows"]) == (champion, 300)
    expected = predict(series.store, champion, str(new), None)
    pd.testing.assert_frame_equal(pd.read_parquet(out), expected, check_dtype=False)
    cli.json("export", "--series", "nightly", tmp_path / "model.pkl", *series.address)
    loaded = load_champion("nightly", series.store.address.url)
    assert loaded.name == champion
    for model in (pd.read_pickle(tmp_path / "model.pkl"), loaded.model()):
        assert np.array_equal(model.predict(pd.read_csv(new)), expected["prediction"])
    for arguments in (
        ("predict", "--series", "nightly", "nightly-1", "new.csv"),
        ("predict", "nightly-1"),
        ("export", "--series", "nightly"),
        ("export",),
        ("predict", "--series", "none", "new.csv"),
    ):
        assert cli(*arguments, *series.address).exit_code == 2, arguments


def test_champion_can_be_set_by_hand(fresh: Runs, tmp_path: Path, monkeypatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(champion, "send_event", lambda *_, **payload: sent.append(payload))
    cli = CommandLine(tmp_path)
    fresh.run(N_NOISE)
    fresh.run(2_000, promotion="never")
    assert fresh.outcomes == ["first", "never"]
    assert fresh.decisions[1].compared is not None
    changed = cli.json("promote", "daily", *fresh.address)
    assert changed == {
        "series": "daily", "champion": "daily-2", "former": "daily-1", "by": "promote",
        "is_changed": True,
    }  # fmt: skip
    assert fresh.champions == ["daily-2", "daily-1"]
    assert fresh.state.champion.by != "rule"
    assert len(fresh.kept()) == 2
    assert not cli.json("promote", "daily", "daily-2", *fresh.address)["is_changed"]
    assert cli.json("rollback", "daily", *fresh.address)["champion"] == "daily-1"
    assert fresh.champions == ["daily-1"]
    assert fresh.kept() == [fresh.record]
    assert cli("rollback", "daily", *fresh.address).exit_code == 2  # past the kept champions
    assert [(p["study"], p["former"], p["by"]) for p in sent] == [
        ("daily-1", None, "rule"),
        ("daily-2", "daily-1", "promote"),
        ("daily-1", "daily-2", "rollback"),
    ]
    promote.fn("daily", "daily-2", fresh.store.address.url)  # the flow of the deployment
    assert fresh.champions == ["daily-2", "daily-1"]
    fresh.store.records.release("series daily")  # a person has removed the kept models
    assert cli("rollback", "daily", *fresh.address).exit_code == 2
    assert fresh.champions == ["daily-2", "daily-1"]


def test_champion_of_a_resumed_study_stays_until_the_new_model_is_better(fresh: Runs) -> None:
    fresh.run(1_500, trials=1, seed=1)
    first = fresh.record
    with closing(LockedSeries(fresh.store, "daily")):  # a study that a person resumed by its name
        fresh.decide("daily-1")
    assert "no decision" in fresh.heard.notes[-1]
    assert fresh.run(1_500, trials=8, seed=1) == "daily-1"
    (decision,) = fresh.decisions
    assert decision.model != first  # the study has another model now
    is_promoted = decision.promoted
    assert (fresh.record == first) != is_promoted
    _, about = exported_model(fresh.store, "daily-1", record=fresh.record)
    of_study = fresh.store.records.get("models/daily-1", ["about"])["about"]
    assert (about["trial"] == of_study["trial"]) == is_promoted
    with closing(LockedSeries(fresh.store, "daily")) as locked:
        locked.delete()
    fresh.decide("daily-1")  # no series has it any more


@pytest.mark.parametrize("is_saved", [False, True])
def test_promotion_interrupted_by_a_kill_happens_exactly_once(
    fresh: Runs, monkeypatch, is_saved
) -> None:
    save = SeriesTable.save

    def killed(*arguments: Any, **options: Any) -> None:
        if is_saved:
            save(*arguments, **options)
        raise KeyboardInterrupt

    fresh.run(N_NOISE)
    study = fresh.undecided(4_000)
    with monkeypatch.context() as patched:
        patched.setattr(SeriesTable, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            fresh.decide(study)
    assert len(fresh.outcomes) == 1 + is_saved
    assert fresh.champions[0] == f"daily-{1 + is_saved}"  # both or neither
    fresh.decide(study)
    assert fresh.outcomes == ["first", "better"]
    assert fresh.champions == ["daily-2", "daily-1"]
    assert len(fresh.kept()) == 2


def test_error_names_the_study_that_cannot_be_promoted(fresh: Runs) -> None:
    fresh.run(N_NOISE, promotion="never")
    with pytest.raises(BadInput, match="no champion"):
        champion_of(fresh.store, "daily")
    fresh.run(N_NOISE + 100, promotion="always")
    fresh.run(N_NOISE + 200, promotion="always")
    assert fresh.champions[:2] == ["daily-3", "daily-2"]
    assert fresh.state.n_tests == 0
    other = Runs(fresh.folder, "other").run(900)
    for names in (("nope",), ("daily", "nope"), ("daily", other)):
        with pytest.raises(UnknownName, match=names[-1]):
            promote_study(fresh.store, *names)
    with closing(LockedSeries(fresh.store, "daily")):
        for change in (promote_study, roll_back):
            with pytest.raises(SeriesBusy):
                change(fresh.store, "daily")
    for study in ("daily-1", "daily-2", "daily-3"):
        fresh.store.records.release(study, [f"models/{study}"])
    for names, reason in ((("daily", "daily-1"), "has no"), (("daily",), "no study")):
        with pytest.raises(BadInput, match=reason):
            promote_study(fresh.store, *names)
    assert fresh.record in fresh.store.records.ids()  # the champion itself stays
