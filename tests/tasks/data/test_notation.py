"""Numbers that were written for people are found by their values, and later rows read alike."""

import numpy as np
import pandas as pd
import pytest
from inputs import table, written

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.notation import Notation, WrittenNumbers, written_numbers
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.schema import features_of, like_training, read_rows
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import checked_frame, frame_dataset


def of_texts(texts: list[str], **options) -> Dataset:
    """A data set whose column `a` has these texts, each in several rows."""
    n = 40 * len(texts)
    frame = pd.DataFrame(
        {"a": texts * 40, "word": ["x", "y"] * (n // 2), "target": [0, 1] * (n // 2)}
    )
    return frame_dataset(Source("", target="target", **options), frame)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$4,382.40", "-$5", "($7.5)", "12"], [4382.4, -5, -7.5, 12]),
        (["R$ 1.234,50", "R$ 5,00"], [1234.5, 5]),
        (["12,34,567.5", "1,200"], [1234567.5, 1200]),
        (["1 234,5 €", "99 €"], [1234.5, 99]),
        (["CHF 1’234.50", "CHF -3"], [1234.5, -3]),
        (["21.57%", "-3 %", "0"], [21.57, -3, 0]),
        (["4382.4 mg/dL", "7 mg/dL"], [4382.4, 7]),
        (["12.5-", "\u22123", "+4"], [-12.5, -3, 4]),
        (["0,123", "1,234"], [0.123, 1.234]),
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["1.5E3", "2"], [1500, 2]),
    ],
)
def test_numbers_for_people_are_numbers(texts, numbers) -> None:
    found = written_numbers(texts)
    assert isinstance(found, WrittenNumbers)
    assert [found.notation.number(text) for text in texts] == numbers
    read = of_texts(texts)
    assert read.X["a"].tolist() == numbers * 40
    assert any("read as numbers" in note for note in read.notes)


@pytest.mark.parametrize(
    "texts",
    [
        ["A12", "A13"], ["1-5", "6-9"], ["1.9", "1.10"], ["007", "12"], ["1st", "2nd", "3rd"],
        ["555 123 456", "555 123 457"], ["10:30", "11:45"], ["1/2", "3/4"], ["12A", "13B", "14C"],
        ["1.2.3", "1.2.4"], ["--5", "3"], ["12345678901234567890", "1"], ["1_000", "2"],
        ["0x10", "12", "7"],
    ],
)  # fmt: skip
def test_codes_ranges_versions_and_telephone_numbers_stay_texts(texts) -> None:
    assert written_numbers(texts) is None
    assert next(c.kind for c in of_texts(texts).row_reader.columns) in {"category", "duration"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([f"{'$€'[i % 2]}{i}.5" for i in range(20)], r"several units \('\$', '€'\).*row 2"),
        ([f"{i}.5" + "%" * (i % 2) for i in range(20)], "percent.*'0.5' in row 1"),
        (["1.5", "2.5", "3,5"], "points and with decimal commas.*'3,5' in row 3"),
        (["1,234", "5,678"], "--decimal.*'1,234' in row 1"),
    ],
)
def test_two_readings_leave_texts_and_a_note_with_value_and_row(texts, words) -> None:
    read = of_texts(texts)
    assert read.row_reader.columns[0].kind == "category"
    assert pd.Series(read.notes).str.contains(words).sum() == 1


def test_a_column_that_changes_its_notation_is_left_out_with_the_row() -> None:
    texts = [f"{i},5" if i < 200 else f"{i}.5" for i in range(300)]
    frame = pd.DataFrame({"a": texts, "b": np.arange(300) % 7, "target": [0, 1] * 150})
    notes = frame_dataset(Source("", target="target"), frame).notes
    assert pd.Series(notes).str.contains("left out: a .*'200.5' in row 201").sum() == 1


def test_the_rest_of_the_table_or_the_user_decides_on_commas(tmp_path) -> None:
    frame = table().assign(a=["1,234", "2,345"] * 75, target=["x", "y"] * 75)
    for option, first in (("point", 1234), ("comma", 1.234)):
        assert of_texts(["1,234", "5,678"], decimal=option).X["a"][0] == first
        other = frame.assign(other=["7.25" if option == "point" else "7,25", "8"] * 75)
        assert (
            frame_dataset(Source("", "target"), other[["a", "other", "target"]]).X["a"][0] == first
        )
    assert read_source(Source(written(frame, tmp_path / "t.csv"), "target")).X["a"][0] == 1234
    lines = ["a|b|target", *["1.234|7,5|x", "12|8,25|y"] * 75]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert read_source(Source(str(tmp_path / "t.csv"), "target")).X["a"][:2].tolist() == [1234, 12]


def test_later_rows_are_read_in_the_notation_of_the_training_rows() -> None:
    dollars = of_texts(["$1.50", "$2"]).row_reader
    frame = pd.DataFrame({"a": ["$1,234.5", "3", "€3", "3%"], "word": "x"})
    read, cells = read_rows(frame, dollars, "new rows")
    assert read["a"].tolist()[:2] == [1234.5, 3]
    assert [(cell.row, cell.value) for cell in cells] == [(2, "€3"), (3, "3%")]
    with pytest.raises(BadInput, match=r"row 3 .*'€3'.*dollars"):
        like_training(frame, dollars)


def test_equal_numbers_are_one_data_set_whose_reader_knows_all_notations(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    forms = (["1.5", "2"], ["$1.50", "$2"], ["1,5", "2"])
    digests = {import_dataset(of_texts(texts), store) for texts in forms}
    assert len(digests) == 1
    loaded = load_dataset(store, digests.pop())
    frame = pd.DataFrame({"a": ["$7", "7,5", "7.5", "1,234"], "word": "x"})
    read, cells = loaded.row_reader.read(frame)
    assert read["a"].tolist()[:3] == [7, 7.5, 7.5]
    assert [cell.row for cell in cells] == [3]  # another number in each notation
    store.close()


@pytest.mark.parametrize("write", ["{:,.1f}", "${:.1f}", "{:.1f} kg"])
def test_a_target_of_numbers_as_texts_is_a_number_also_in_test_rows(tmp_path, write) -> None:
    numbers = np.random.default_rng(0).normal(2000, 800, 150).round(1)
    plain = table().assign(target=numbers)
    texts = plain.assign(target=[write.format(number) for number in numbers])
    paths = [written(frame, tmp_path / f"{i}.csv") for i, frame in enumerate((texts, plain))]
    for data, test in (paths, paths[::-1]):
        found = read_source(Source(data, "target", test=test))
        assert found.classes == ()
        assert found.y.tolist() == [*numbers, *numbers]
    for stray in ("<1000", "#DIV/0!"):
        slip = texts.assign(target=[stray, *texts["target"][1:]])
        with pytest.raises(BadInput, match=rf"1 other .*{stray}.*row 1.*--na-val"):
            frame_dataset(Source("", target="target"), checked_frame(slip))
    few = texts.assign(target=["$1", "$2"] * 75)
    assert frame_dataset(Source("", target="target"), few).classes == ("$1", "$2")


def test_huge_and_infinite_numbers_are_counted_gaps(caplog) -> None:
    frame = table().drop(columns="target")
    _, reader, _ = features_of(frame, (), (), "the table")
    name = frame.select_dtypes("float").columns[0]
    new = frame.head(5).assign(**{name: [1e300, -3.4028234663852886e38, 3.5e38, np.inf, 0.5]})
    for given in (new, new.astype({name: object})):
        assert like_training(given, reader)[name].isna().tolist() == [True] * 4 + [False]
    assert f"column {name}: infinite numbers" in caplog.text
    X, _, notes = features_of(new, (), (), "the table")
    assert X[name].isna().sum() == 4
    assert any(f"column {name}: infinite numbers" in note for note in notes)


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_a_given_decimal_mark_decides_numbers_that_programs_may_have_written(
    tmp_path, name
) -> None:
    lines = ["a\ttarget", *(f"{i}.{500 + i}\t{i}.250" for i in range(1, 100))]
    (tmp_path / name).write_text("\n".join(lines))
    path = str(tmp_path / name)
    for decimal, values in (
        (None, (1.501, 1.25)),
        ("point", (1.501, 1.25)),
        ("comma", (1501, 1250)),
    ):
        found = read_source(Source(path, "target", test=path, decimal=decimal))
        assert (found.X["a"][0], found.y[0]) == values
        assert (found.X["a"][99], found.y[99]) == values


def test_a_test_file_has_the_decimal_mark_of_the_training_rows(tmp_path) -> None:
    rows = range(1, 100)
    (tmp_path / "t.csv").write_text("\n".join(["a;y", *(f"{i},5;{i}.500" for i in rows)]))
    for line, value in (("{i};{i}.500", 1500), ("{i}.25;{i}.500", 1.5)):
        lines = ["a;y", *(line.format(i=i) for i in rows)]
        (tmp_path / "test.csv").write_text("\n".join(lines))
        source = Source(str(tmp_path / "t.csv"), "y", test=str(tmp_path / "test.csv"))
        assert read_source(source).y[[0, 99]].tolist() == [1500, value]


def test_a_column_with_many_numbers_and_other_texts_gets_a_note() -> None:
    texts = [f"{'<' * (i % 8 == 0)}{i / 7:.3f}" for i in range(1, 200)]
    frame = pd.DataFrame({"lab": texts * 2, "target": [0, 1] * 199})
    notes = frame_dataset(Source("", target="target"), frame).notes
    assert any("column lab " in note and "'<" in note for note in notes)


def test_one_text_for_many_gaps_among_numbers_is_named() -> None:
    numbers = [f"{i / 7:.3f}" for i in range(1, 200)]
    gaps = {"a": ["-"] * 60 + numbers, "target": numbers + ["-"] * 60}
    with pytest.raises(BadInput, match=r"row 1;.*--na-values"):
        frame_dataset(Source("", target="target"), pd.DataFrame({**gaps, "target": numbers[0]}))
    with pytest.raises(BadInput, match=r"60 other.*'-' in row 200"):
        frame_dataset(Source("", target="target"), pd.DataFrame({**gaps, "a": range(259)}))


def test_hexadecimal_codes_stay_texts_in_a_csv_file(tmp_path) -> None:
    frame = pd.DataFrame({"a": ["12", "0x10", "7"] * 40, "target": [0, 1] * 60})
    frame.to_csv(tmp_path / "codes.csv", index=False)
    found = read_source(Source(str(tmp_path / "codes.csv"), target="target"))
    assert sorted(found.X["a"].unique()) == ["0x10", "12", "7"]


def test_a_whole_number_beyond_64_bits_makes_no_codes_of_others() -> None:
    texts = [*map(str, range(100)), "1" + "0" * 40]
    frame = pd.DataFrame({"a": texts * 2, "target": [0, 1] * 101})
    found = frame_dataset(Source("", target="target"), frame)
    assert found.X["a"].isna().sum() == 2
    assert any("column a: infinite numbers" in note for note in found.notes)


def test_classes_that_differ_only_in_capitals_or_blanks_get_a_note() -> None:
    frame = pd.DataFrame({"a": range(90), "target": ["Yes", "yes ", "no"] * 30})
    notes = frame_dataset(Source("", target="target"), frame).notes
    assert any("'Yes' and 'yes '" in note for note in notes)


def test_a_table_without_a_usable_column_says_why_its_numbers_stay_texts() -> None:
    frame = pd.DataFrame({"a": [f"{i},{500 + i}" for i in range(1, 200)], "target": [0] * 199})
    with pytest.raises(BadInput, match=r"a: .*--decimal"):
        frame_dataset(Source("", target="target"), frame)


def test_a_notation_is_described() -> None:
    assert Notation(",", "%", has_groups=True).text == (
        " (percent, decimal commas, thousands separators)"
    )
