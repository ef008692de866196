"""Partitions of patients, and what is made again when the data changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from event_histories import (
    END,
    EVERY,
    changed,
    construct,
    construct_all,
    construct_in_process,
    entries,
    fold_of,
    histories,
)
from hammering import run_together
from inputs import event_rows
from services import Postgres
from studies import context_of, store_of

from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import partitions, shared_blocks
from prefect_tune.tasks.trial.partitions import (
    Patients,
    from_parts,
    keep,
    partitions_from,
    to_parts,
)
from prefect_tune.tasks.trial.shared_blocks import PARTITIONS, STEP

N = 60
"""Patients of the first night."""


@pytest.fixture
def context(tmp_path, monkeypatch: pytest.MonkeyPatch) -> StudyContext:
    """A study that keeps partitions of some thirty patients."""
    monkeypatch.setattr(partitions, "EVENTS_PER_PARTITION", 512)
    monkeypatch.setattr(shared_blocks, "LEAST_KEPT_EVENTS", 0)
    return context_of(tmp_path)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Patients whose blocks were made, one entry for each pass over their events."""
    passes, make = list[int](), shared_blocks.make_blocks

    def counted(X: EventRows, wanted: Sequence[Any], vocabulary: Any) -> Any:
        passes.extend([X.rows["subject_id"].nunique()] * bool(wanted))
        return make(X, wanted, vocabulary)

    monkeypatch.setattr(shared_blocks, "make_blocks", counted)
    return passes


def kept_versions(context: StudyContext) -> Sequence[Entry]:
    """Partitions of all versions of the data, the newest first."""
    return store_of(context).index.select(step=PARTITIONS)


CHANGES: dict[str, Callable[[EventRows], EventRows]] = {
    "nothing": lambda X: X,
    "one patient": lambda X: changed(X, [7]),
    "some patients": lambda X: changed(X, range(0, N, 20)),
    "a code sorted first": lambda X: changed(X, [7, 50], "0//new"),
    "prefixes": lambda X: changed(X, [7, 50], "B//2/x/y/z"),
    "patients removed": lambda _: histories([*range(3), *range(5, N - 1)]),
    "patients added": lambda _: histories(range(N + 5)),
    "nearly all": lambda X: changed(X, range(N - 5)),
    "order of rows": lambda X: EventRows.build(
        X.events, X.rows.sample(frac=1, random_state=1), X.code_table
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("most_loose_events", [0, 1 << 18])
def test_changed_data_has_the_columns_of_a_cache_turned_off(
    context, monkeypatch, change, most_loose_events
) -> None:
    monkeypatch.setattr(partitions, "MOST_LOOSE_EVENTS", most_loose_events)
    X = histories(range(N))
    construct_all(context, X, **EVERY)
    after = CHANGES[change](X)
    construct_all(context, after, **EVERY)


@pytest.mark.parametrize("seed", range(2))
def test_random_nights_have_the_columns_of_a_cache_turned_off(context, monkeypatch, seed) -> None:
    """Patients come, change and go; on each night, another configuration makes new blocks."""
    monkeypatch.setattr(partitions, "EVENTS_PER_PARTITION", 256)
    monkeypatch.setattr(partitions, "_LOOSE_SHARE", 4 if seed % 2 else 1 << 20)
    rng = np.random.default_rng(seed)
    patients, others = list(range(24)), [*range(24, 40), *range(1000, 1004)]
    changes = list[tuple[int, str]]()
    for _ in range(partitions._MOST_VERSIONS + 2):
        X = histories(sorted(patients))
        for code in {code for _, code in changes}:
            some = [patient for patient, c in changes if c == code and patient in patients]
            X = changed(X, some, code)
        windows, levels = rng.choice(["all", "30", "30_365"]), rng.choice(["both", "all"])
        aggregations = rng.choice(["count", "count_recency", "count_sum_mean"])
        construct_all(context, X, windows=windows, aggregations=aggregations, levels=levels)
        for _ in range(rng.integers(3)):
            others.append(patients.pop(rng.integers(len(patients))))
            patients.append(others.pop(rng.integers(len(others))))
        codes = rng.choice(["A", "0//new", "B//2/x/y", "LAB//k"], 2)
        changes += zip(rng.choice(patients, 2).tolist(), codes.tolist(), strict=True)


def test_codes_that_only_changed_patients_had_leave_the_names_in_place(context) -> None:
    X = histories(range(N))
    construct_all(context, changed(X, [7], "AA//gone"), **EVERY)
    construct_all(context, X, **EVERY)
    construct_all(context, changed(X, [7], "B//gone/1"), **EVERY)


def test_only_changed_patients_are_made_again(context, made) -> None:
    X = histories(range(N))
    construct_all(context, X)
    assert sum(made) == N
    blocks = entries(context).keys()
    made.clear()
    construct_all(context, changed(X, [7, 8]))
    assert made == [2]
    assert entries(context).keys() == blocks  # too few to store


def test_blocks_first_made_on_a_later_night_serve_the_next_one(context, made) -> None:
    """The first patients of a partition change, which moves the rows of all others in it."""
    X = histories(range(N))
    largest = max(partitions.partitions_of(X), key=lambda one: len(one.X))
    first, second = largest.X.rows["subject_id"].unique()[:2].tolist()
    construct_all(context, X)
    X = changed(X, [first])
    construct_all(context, X, levels="code", windows="30")
    blocks = entries(context).keys()
    made.clear()
    construct_all(context, changed(X, [second]), levels="code", windows="30")
    assert made == [2]
    assert entries(context).keys() == blocks


def test_new_patients_become_a_partition_when_they_are_many(context, made, monkeypatch) -> None:
    monkeypatch.setattr(partitions, "_LOOSE_SHARE", 10**9)
    X = histories(range(N))
    construct_all(context, X)
    blocks = len(entries(context))
    made.clear()
    for _ in range(2):  # made, then served
        construct_all(context, histories(range(N + 12)))
        assert made == [12]
    n_blocks = blocks // len(partitions.partitions_of(X))
    assert len(entries(context)) == blocks + n_blocks


def test_another_order_and_split_of_the_rows_keep_all_partitions(context, made) -> None:
    X = histories(range(N))
    construct_all(context, X)
    made.clear()
    other = CHANGES["order of rows"](X)
    construct_all(context, other)
    train, _, _ = fold_of(context, other, np.flatnonzero(np.arange(len(X)) % 4 != 1))
    construct(train)
    assert not made
    assert len(kept_versions(context)) == 1


def test_patients_are_compared_by_the_names_of_their_codes(context) -> None:
    """On the second night, a code has the number that another code had on the first."""
    rows = [(patient, END) for patient in range(40)]
    before = [(patient, "2020-01-01", "AB"[patient % 2], np.nan) for patient in range(40)]
    construct_all(context, event_rows(before, rows))
    after = [(patient, "2020-01-01", "A", np.nan) for patient in range(40)]
    after[0] = (0, "2020-01-01", "0", np.nan)
    construct_all(context, event_rows(after, rows))


def test_of_several_data_sets_the_most_similar_one_is_continued(context, made) -> None:
    X = histories(range(N))
    construct_all(context, X)
    construct_all(context, histories([*range(10), *range(2000, 2050)]))
    made.clear()
    construct_all(context, changed(X, [7]))
    assert made == [1]


def test_small_data_sets_keep_no_partitions(context, monkeypatch) -> None:
    monkeypatch.setattr(shared_blocks, "LEAST_KEPT_EVENTS", 1 << 17)
    construct_all(context, histories(range(N)))
    assert not kept_versions(context)


@pytest.mark.parametrize("loss", ["evicted", "damaged"])
def test_a_lost_version_is_bridged_by_the_one_before(context, made, caplog, loss) -> None:
    X = histories(range(N))
    for patients in ([], [7]):
        X = changed(X, patients)
        construct_all(context, X)
    store = store_of(context)
    last, _ = kept_versions(context)
    if loss == "evicted":
        store.forget(last)
    else:
        files, place = store.files, store.files.path(artifact_folder(last.key), last.place)
        for path in files.filesystem.find(place):
            files.filesystem.pipe_file(path, b"nothing")
        store.memory.drop(last.place)
    made.clear()
    construct_all(context, changed(X, [9]))
    assert made == [2]
    assert ("will be recomputed" in caplog.text) == (loss == "damaged")
    construct_all(context, X)  # the lost version itself


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_two_processes_share_what_the_first_night_made(tmp_path, request, database) -> None:
    address = StoreAddress(str(tmp_path / "store"))
    if database == "postgresql":
        server = Postgres(tmp_path / "postgres")
        request.addfinalizer(server.stop)
        address = replace(address, database=server.new_database())
    context = context_of(tmp_path, address=address)
    run_together(construct_in_process, (context, N, []))
    before = entries(context)
    run_together(construct_in_process, *[(context, N, range(0, N, 6))] * 2)
    after = entries(context)
    assert before.keys() < after.keys()  # changed patients have become a partition
    assert len(after) <= 2 * len(before)
    assert len(kept_versions(context)) == 2
    store = store_of(context)
    assert store.index.totals().steps[STEP].misses == len(after)  # each was made once
    store.close()


@pytest.mark.usefixtures("context")
def test_kept_partitions_are_stored_without_loss() -> None:
    X = histories(range(N))
    kept = keep(Patients.of(changed(X, [7])), keep(Patients.of(X), []))
    again = from_parts(to_parts(kept))
    for one, other in zip(kept, again, strict=True):
        assert (one.digests, one.codes) == (other.digests, other.codes)
        for name in ("patients", "n_rows", "until", "codes_until"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.usefixtures("context")
def test_versions_and_partitions_stay_few_over_a_hundred_nights() -> None:
    X = histories(range(N))
    kept, rng = keep(Patients.of(X), []), np.random.default_rng(0)
    n_partitions = len(kept)
    for _ in range(100):
        X = changed(X, rng.choice(N, 2, replace=False))
        patients = Patients.of(replace(X, of_events={}))
        kept = keep(patients, kept)
        found = partitions_from(patients, kept)
        assert sorted(np.concatenate([p.positions for p in found])) == list(range(len(X)))
        live = [sum(one.n_rows[one.is_live]) / sum(one.n_rows) for one in kept]
        assert min(live) >= partitions._LEAST_LIVE
        assert max(len(one.digests) for one in kept) <= partitions._MOST_VERSIONS
        assert len(kept) <= n_partitions + 2 * partitions._MOST_SMALL
