"""A format is one declaration: a toy one, registered here, works everywhere."""

from collections.abc import Iterator

import pandas as pd
import pytest
from command_line import CommandLine
from inputs import table

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.formats import registry
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.formats.registry import FORMATS, recognise, register_format
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source

TOY = Format(
    name="toy",
    description="a table of semicolons",
    kind="table",
    recognises=lambda given: given.location.has_suffix([".toy"]),
    read=lambda location, texts: [
        pd.read_csv(location.path, sep=";", dtype=dict.fromkeys(texts, str))
    ],
)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register_format(TOY)
    yield
    del registry._FORMATS["toy"]


@pytest.fixture
def toys(tmp_path) -> str:
    table().to_csv(tmp_path / "data.toy", sep=";", index=False)
    return str(tmp_path / "data.toy")


def test_a_registered_format_is_recognised_and_read_for_training_test_and_prediction(toys) -> None:
    dataset = read_source(Source(toys, "target"))
    assert (dataset.format, dataset.kind) == ("toy", "table")
    assert read_source(Source(toys, "target", format="toy")).digest() == dataset.digest()
    assert len(read_source(Source(toys, "target", test=toys))) == 2 * len(dataset)
    assert len(read_features(toys, None, dataset)) == len(dataset)


@pytest.mark.usefixtures("server")
def test_a_study_runs_on_a_registered_format(toys, tmp_path) -> None:
    run = CommandLine(tmp_path / "home")
    ran = run(
        "run", toys, "--format", "toy", "--target", "target",
        "--space", "small", "--method", "random", "--trials", 1, "--study", "s",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    assert "as a table of semicolons" in ran.stdout + ran.stderr
    assert run("predict", "s", toys, "--out", tmp_path / "out.csv").exit_code == 0


def test_a_format_asked_for_first_may_claim_what_a_general_one_would_take(tmp_path) -> None:
    table().to_csv(tmp_path / "data.csv")
    given = Given(Location.at(str(tmp_path / "data.csv")), "target")
    assert recognise(given).name == "table"
    greedy = Format(
        name="greedy",
        description="anything",
        kind="table",
        recognises=lambda _: True,
        read=TOY.read,
    )
    register_format(greedy)
    try:
        assert recognise(given).name == "greedy"
        assert recognise(given, "table").name == "table"
    finally:
        del registry._FORMATS["greedy"]


def test_two_formats_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="a format 'toy' already"):
        register_format(TOY)


def test_a_folder_that_no_format_knows_is_told_what_each_would_hold(tmp_path) -> None:
    with pytest.raises(BadInput) as error:
        recognise(Given(Location.at(str(tmp_path))))
    assert all(f.folder_holds in str(error.value) for f in FORMATS.values())
