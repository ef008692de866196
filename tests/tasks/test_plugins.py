"""Registries list plugins without importing them, and a broken plugin affects nothing else."""

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from command_line import CommandLine
from inputs import table
from plugin_distribution import ENTRY_POINTS, MODULES, install

from prefect_tune.optimizers.registry import METHODS, UnusablePlugin, loaded
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import REGISTRIES, UsedPlugin, check_plugins, used_plugins

NAMES = {"method": "stroll", "metric": "cost", "space": "tiny", "format": "semicolons"}
PACKAGE = "tune_extras"

Installed = Callable[..., None]


def forget() -> None:
    """Forget all imports of the distribution, as in a new process."""
    for name in imported():
        del sys.modules[name]
    loaded.cache_clear()
    check_plugins.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Iterator[Installed]:
    """Install the distribution into a folder of the path, in place of an earlier one."""

    def add(folder: str = "extras", **how: object) -> None:
        monkeypatch.syspath_prepend(str(install(tmp_path / folder, **how)))  # type: ignore[arg-type]
        forget()

    yield add
    forget()


def imported() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == PACKAGE}


def test_plugins_are_listed_without_being_imported(installed) -> None:
    assert {f"{kind}s" for kind in REGISTRIES} == set(ENTRY_POINTS)
    before = {kind: list(registry) for kind, registry in REGISTRIES.items()}
    installed()
    for kind, name in NAMES.items():
        assert list(REGISTRIES[kind]) == [*before[kind], name]
        assert name not in REGISTRIES[kind].own
    assert imported() == set()
    assert METHODS["stroll"].purpose
    assert imported() == {PACKAGE, f"{PACKAGE}.methods"}  # and nothing else of it
    assert all(REGISTRIES[kind][name].name == name for kind, name in NAMES.items())


def test_format_plugin_is_used_for_training_test_and_prediction(installed, tmp_path) -> None:
    installed()
    path = str(tmp_path / "data.semi")
    table().to_csv(path, sep=";", index=False)
    dataset = read_source(Source(path, "target", test=path))
    assert (dataset.format, len(dataset)) == ("semicolons", 300)
    assert read_source(Source(path, "target", test=path, format="semicolons")).kind == "table"
    assert len(read_features(path, None, dataset)) == 150


def test_metric_plugin_needs_only_row_losses(installed) -> None:
    installed()
    metric = metric_named("cost")
    y, predicted = np.array([0, 1, 1, 0]), Predictions(np.array([0, 0, 1, 1]))
    assert metric.loss(y, predicted, 2) == pytest.approx(6 / 4)
    weights = np.array([[0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.5]])
    assert metric.weighted_losses(y, predicted, 2, weights).tolist() == [5.0, 0.5]


@pytest.mark.parametrize("text", ["import nothing_of_that_name", "raise SystemExit(3)"])
def test_broken_plugin_is_an_error_only_if_requested_by_name(installed, tmp_path, text) -> None:
    installed(methods=text)
    with pytest.raises(UnusablePlugin, match="stroll") as error:
        METHODS.named("stroll")
    assert type(error.value.__cause__).__name__ in str(error.value)
    assert METHODS.get("stroll") is None
    assert [m.name for m in METHODS.usable()] == list(METHODS.own)
    run = CommandLine(tmp_path / "home")
    listed = run("methods")
    assert listed.exit_code == 0
    assert "tune-extras 1.0" in listed.stderr
    assert run("methods", "stroll").exit_code == 2
    assert run("methods", "flash").exit_code == 0


@pytest.mark.parametrize("at", ["metrics:COST", "methods:ABSENT", "other:STROLL"])
def test_entry_point_without_a_method_of_the_same_name_is_refused(installed, at) -> None:
    other = MODULES["methods"].replace('name="stroll"', 'name="other"')
    installed(entry_points={"methods": {"stroll": f"tune_extras.{at}"}}, other=other)
    with pytest.raises(UnusablePlugin):
        METHODS.named("stroll")


def test_duplicate_plugin_name_is_refused_and_built_in_names_win(installed) -> None:
    built_in = METHODS["random"]
    installed()
    named = {"stroll": "tune_extras.methods:STROLL", "random": "tune_extras.methods:STROLL"}
    installed("more", name="more-extras", version="2.0", entry_points={"methods": named})
    with pytest.raises(UnusablePlugin, match=r"more-extras 2\.0"):
        METHODS.named("stroll")
    assert list(METHODS).count("stroll") == 1
    assert METHODS["random"] is built_in
    assert METHODS.plugin("random") is None


@pytest.mark.parametrize(
    ("kind", "edited"),
    [("method", "search"), ("metric", "losses"), ("space", "models"), ("format", "formats"),
     ("metric", "__init__")],
)  # fmt: skip
def test_plugin_with_changed_code_is_refused(installed, kind, edited) -> None:
    installed()
    used = used_plugins({kind: NAMES[kind]})
    installed("reworded", **{edited: f'"""About it."""\n{MODULES[edited]}'})
    check_plugins(used)
    forget()
    installed("edited", **{edited: f"{MODULES[edited]}\nedited = True\n"})
    with pytest.raises(BadInput, match=NAMES[kind]):
        check_plugins(used)


def test_study_requires_the_plugins_of_the_first_run(installed) -> None:
    installed()
    (used,) = used_plugins({**dict.fromkeys(NAMES, ""), "method": "stroll", "metric": "error"})
    assert (used.kind, used.name) == ("method", "stroll")
    assert (used.distribution, used.version) == ("tune-extras", "1.0")
    check_plugins((used,))
    installed("newer", version="1.1")
    gone = UsedPlugin("metric", "gone", "gone-extras", "3.1", "0" * 32)
    for plugin, wanted in ((used, "tune-extras==1.0"), (gone, "gone-extras==3.1")):
        with pytest.raises(BadInput) as refused:
            check_plugins((plugin,))
        assert wanted in refused.value.remedy
