"""Partitions of the patients of a data set, kept while the data changes from run to run.

The next version of the data keeps the partitions of the last one: a patient whose events and
prediction times are unchanged stays where it was, so the blocks made for its partition still
serve it. Patients that are new or changed form partitions of their own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from blake3 import blake3
from numpy.typing import NDArray

from prefect_tune.storage.keys import content_digest
from prefect_tune.tasks.catalogue.event_blocks import PARENTS, Vocabulary
from prefect_tune.tasks.data.events import EventRows, positions

EVENTS_PER_PARTITION = 1 << 21
"""Most events of a partition on average; at least half of it."""
_MOST_PARTS = 4
"""Partitions end after this multiple of `EVENTS_PER_PARTITION`, whatever the patient ids."""
MOST_LOOSE_EVENTS = 1 << 18
"""Most events of new and changed patients whose blocks each worker makes for itself."""
_LOOSE_SHARE = 16
"""New and changed patients with more than 1/16 of the events get stored blocks."""
_LEAST_LIVE = 0.5
"""Share of the rows of a partition that must be unchanged for its blocks to be worth reading."""
_MOST_SMALL = 8
"""Most kept partitions with less than 1/8 of the events; more are made anew as one."""
_MOST_VERSIONS = 6
"""Most versions of a partition: the first and the last ones."""
_EVENTS_AT_ONCE = 1 << 20

Digests = NDArray[np.uint64]
"""Digests of 128 bits, shape (n, 2)."""


@dataclass(frozen=True)
class Patients:
    """The patients of all rows, in order of their events.

    `start` and `stop` bound the events that any row of a patient sees. `order` are the rows by
    patient and time, `offsets` each patient's first row in it and, at the end, n. `ids` are hashes.
    """

    X: EventRows
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    order: NDArray[np.intp]
    offsets: NDArray[np.int64]
    ids: NDArray[np.uint64]

    @classmethod
    def of(cls, X: EventRows) -> Self:
        """Find the patients of the rows."""
        start, patient = np.unique(X.start, return_inverse=True)
        stop = np.zeros_like(start)
        np.maximum.at(stop, patient, X.stop)
        order = np.lexsort((X.stop, X.rows["prediction_time"].to_numpy(), X.start))
        offsets = np.append(0, np.cumsum(np.bincount(patient, minlength=len(start))))
        ids = X.events["subject_id"].iloc[start].astype(str)
        hashes = pd.util.hash_pandas_object(ids, index=False).to_numpy()
        return cls(X, start, stop, order, offsets, hashes.astype(np.uint64))

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def n_events(self) -> NDArray[np.int64]:
        """Events of each patient, counted once for each row that sees them."""
        seen = np.append(0, np.cumsum((self.X.stop - self.X.start)[self.order]))
        return np.diff(seen[self.offsets])

    @cached_property
    def n_rows(self) -> NDArray[np.int64]:
        """Rows of each patient."""
        return np.diff(self.offsets)

    @cached_property
    def digests(self) -> Digests:
        """Digest of all that the blocks of a patient depend on, by the names of its codes."""
        X, events = self.X, self.X.events
        made = np.empty((len(self), 2), dtype=np.uint64)
        digests = b"".join(blake3(code.encode()).digest(length=16) for code in X.codes)
        names, codes = np.frombuffer(digests, "<u8").reshape(-1, 2), events["code"].cat.codes
        times = events["time"].to_numpy().astype("datetime64[us]", copy=False)
        time, value = _bytes(times), _bytes(events["value"].to_numpy().astype("<f8", copy=False))
        # Patients begin with their rows, which tell the number of events that follow.
        fields = [("id", "<u8"), ("n_all", "<i8"), ("until", "<i8"), ("n_events", "<i8")]
        rows = np.empty(len(X), dtype=fields)
        rows["id"] = np.repeat(self.ids, self.n_rows)
        rows["n_all"] = np.repeat(self.stop - self.start, self.n_rows)
        rows["until"] = X.rows["prediction_time"].to_numpy()[self.order]
        rows["n_events"] = (X.stop - X.start)[self.order]
        of_rows, offsets = _bytes(rows), self.offsets.tolist()
        piece = self.start // _EVENTS_AT_ONCE
        for part in np.split(np.arange(len(self)), np.flatnonzero(np.diff(piece)) + 1):
            zero = int(self.start[part[0]]) if len(part) else 0
            stop = int(self.stop[part].max(initial=0))
            name = _bytes(names[codes.to_numpy()[zero:stop]])
            bounds = zip(self.start[part].tolist(), self.stop[part].tolist(), strict=True)
            for patient, (a, b) in enumerate(bounds, part[0]):
                hasher = blake3(of_rows[32 * offsets[patient] : 32 * offsets[patient + 1]])
                hasher.update(name[16 * (a - zero) : 16 * (b - zero)])
                hasher.update(time[8 * a : 8 * b])
                hasher.update(value[8 * a : 8 * b])
                made[patient] = np.frombuffer(hasher.digest(length=16), "<u8")
        return made

    def partition(self, chosen: NDArray[np.intp], **known: Any) -> "Partition":
        """Return the partition of some patients, in the given order."""
        rows = self.order[positions(self.offsets[chosen], self.offsets[chosen + 1])]
        return Partition(self.X.take(rows), rows, self, chosen, **known)

    def cut(self, chosen: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """Yield patients in parts that end by their ids, so that few parts change with the data."""
        n_events, hashes = self.n_events[chosen], self.ids[chosen]
        mean = max(1.0, n_events.mean()) if len(chosen) else 1.0
        n_patients = 2 ** max(0, int(np.log2(EVENTS_PER_PARTITION / mean)))
        is_last = hashes % np.uint64(n_patients) == 0
        number = np.cumsum(is_last) - is_last
        before = np.cumsum(n_events) - n_events
        within = before - before[np.searchsorted(number, number)]
        part = within // (_MOST_PARTS * EVENTS_PER_PARTITION)
        is_first = np.diff(number, prepend=-1) + np.abs(np.diff(part, prepend=0)) > 0
        for one in np.split(chosen, np.flatnonzero(is_first)[1:]):
            if len(one):
                yield one


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1).data


class Version(NamedTuple):
    """A version of a partition; its blocks have all present rows, at `rows` (None: all in order).

    `codes` are positions in the vocabulary; `unknown` are codes that the data has no more.
    """

    digest: str
    rows: NDArray[np.int64] | None
    codes: NDArray[np.intp]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """Some patients with all rows, in order of patient and time; positions are in the data set.

    `former` are earlier versions, the last one first. Loose patients are too few to store: the
    process holds their blocks in `held`.
    """

    X: EventRows
    positions: NDArray[np.intp]
    patients: Patients
    chosen: NDArray[np.intp]
    former: tuple[Version, ...] = ()
    is_loose: bool = False
    held: dict[Any, Any] = field(default_factory=dict, repr=False)
    _columns: dict[tuple[str, int], NDArray[np.int32]] = field(default_factory=dict, repr=False)

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """Codes that occur, as sorted positions in the data set's vocabulary."""
        patients, codes = self.patients, self.X.events["code"].cat.codes.to_numpy()
        events = positions(patients.start[self.chosen], patients.stop[self.chosen])
        return np.flatnonzero(np.bincount(codes[events], minlength=len(self.X.codes)))

    @cached_property
    def digest(self) -> str:
        """Digest of everything its blocks depend on, independent of other patients."""
        return digest_of(self.patients.digests[self.chosen])

    @cached_property
    def versions(self) -> tuple[Version, ...]:
        """This version and the earlier ones, the last one first."""
        return Version(self.digest, None, self.codes), *self.former

    def columns(self, level: int, version: Version) -> NDArray[np.int32]:
        """Return the names of a version's codes by position in the vocabulary; -1 if unknown."""
        known = self._columns.get((version.digest, level))
        if known is not None:
            return known
        found = Vocabulary.of(self.X).level(level)
        start, stop = found.offsets[version.codes], found.offsets[version.codes + 1]
        made = np.unique(found.columns[positions(start, stop)])
        if version.unknown:
            others = Vocabulary(version.unknown, {}).level(level).names
            places = [found.position.get(name, -1) for name in others]
            new = [name for name, place in zip(others, places, strict=True) if place < 0]
            made = np.union1d(made, [place for place in places if place >= 0]).astype(np.int32)
            before = np.searchsorted(np.array(found.names, dtype=object), new) - 0.5
            order = np.argsort(np.append(made, before), kind="stable")
            made = np.append(made, np.full(len(new), -1, dtype=np.int32))[order]
        self._columns[version.digest, level] = made
        return made

    def parents_digest(self, version: Version) -> str | None:
        """Return the digest of its codes' parents with columns; None if a code is unknown."""
        if version.unknown:
            return None
        level = Vocabulary.of(self.X).level(PARENTS)
        parents = [level.names_of(i) for i in version.codes.tolist()]
        return content_digest("parents of codes", [json.dumps(parents).encode()])


def digest_of(patients: Digests) -> str:
    """Return the digest of patients in order."""
    return content_digest("events of a partition", [np.ascontiguousarray(patients).tobytes()])


@dataclass(frozen=True)
class KeptPartition:
    """A partition as the next version of the data finds it: each version has fewer patients.

    `digests` has the digest of each version, oldest first. `patients` (digests) and `codes` belong
    to the first version; `until` and `codes_until` are the last versions that have them.
    """

    digests: tuple[str, ...]
    patients: Digests
    n_rows: NDArray[np.int32]
    until: NDArray[np.int32]
    codes: tuple[str, ...]
    codes_until: NDArray[np.int32]

    @classmethod
    def first(cls, partition: Partition) -> Self:
        """Return the first version."""
        patients, codes, names = partition.patients, partition.codes, partition.X.codes
        return cls(
            (partition.digest,),
            patients.digests[partition.chosen],
            patients.n_rows[partition.chosen].astype(np.int32),
            np.zeros(len(partition.chosen), dtype=np.int32),
            tuple(names[i] for i in codes.tolist()),
            np.zeros(len(codes), dtype=np.int32),
        )

    @property
    def is_live(self) -> NDArray[np.bool_]:
        """Whether the last version has each patient."""
        return self.until == len(self.digests) - 1

    def find(self, patients: Patients) -> NDArray[np.intp]:
        """Return the position of each patient of the last version in the data set, or -1."""
        order = np.argsort(patients.digests[:, 0], kind="stable")
        low = patients.digests[order, 0]
        place = np.minimum(np.searchsorted(low, self.patients[:, 0]), len(low) - 1)
        found = order[place] if len(low) else np.empty(0, dtype=np.intp)
        is_found = (patients.digests[found] == self.patients).all(axis=1) & self.is_live
        return np.where(is_found, found, -1)

    def next(self, patients: Patients, found: NDArray[np.intp]) -> Self:
        """Return it with a version of the patients found, unless these are all."""
        if np.array_equal(found >= 0, self.is_live):
            return self
        kept = self if len(self.digests) < _MOST_VERSIONS else self._without(1)
        now, partition = len(kept.digests), patients.partition(found[found >= 0])
        codes = {partition.X.codes[i] for i in partition.codes.tolist()}
        has_code = np.fromiter((code in codes for code in kept.codes), bool, len(kept.codes))
        return replace(
            kept,
            digests=(*kept.digests, partition.digest),
            until=np.where(found >= 0, now, kept.until).astype(np.int32),
            codes_until=np.where(has_code, now, kept.codes_until).astype(np.int32),
        )

    def partition(self, patients: Patients, found: NDArray[np.intp]) -> Partition:
        """Return the last version's patients, which are all in the data set, as a partition."""
        position = {code: i for i, code in enumerate(patients.X.codes)}
        is_live, n_rows = self.is_live, self.n_rows.astype(np.int64)
        former = []
        for number, digest in reversed([*enumerate(self.digests[:-1])]):
            in_version = self.until >= number
            first = (np.cumsum(n_rows * in_version) - n_rows)[is_live]
            codes = [c for c, u in zip(self.codes, self.codes_until, strict=True) if u >= number]
            known = [position[code] for code in codes if code in position]
            former.append(
                Version(
                    digest,
                    positions(first, first + n_rows[is_live]),
                    np.array(known, dtype=np.intp),
                    tuple(code for code in codes if code not in position),
                )
            )
        return patients.partition(found[is_live], former=tuple(former))

    def _without(self, version: int) -> Self:
        """Return it without a version in the middle."""
        digests = (*self.digests[:version], *self.digests[version + 1 :])
        until, codes_until = (u - (u >= version) for u in (self.until, self.codes_until))
        return replace(self, digests=digests, until=until, codes_until=codes_until)


def keep(patients: Patients, before: Sequence[KeptPartition]) -> list[KeptPartition]:
    """Return the stored partitions of the data, given the partitions of an earlier version."""
    is_new = np.ones(len(patients), dtype=bool)
    kept: list[KeptPartition] = []
    n_all = patients.n_events.sum()
    found = [(one, one.find(patients)) for one in before]
    is_small = [8 * patients.n_events[place[place >= 0]].sum() < n_all for _, place in found]
    for (one, place), small in zip(found, is_small, strict=True):
        n_live = one.n_rows[place >= 0].sum()
        if n_live < _LEAST_LIVE * one.n_rows.sum() or (small and sum(is_small) > _MOST_SMALL):
            continue
        kept.append(one.next(patients, place))
        is_new[place[place >= 0]] = False
    n_new = patients.n_events[is_new].sum()
    if not kept or n_new > min(MOST_LOOSE_EVENTS, n_all // _LOOSE_SHARE):
        new = patients.cut(np.flatnonzero(is_new))
        kept.extend(KeptPartition.first(patients.partition(one)) for one in new)
    return kept


def partitions_from(patients: Patients, kept: Sequence[KeptPartition]) -> list[Partition]:
    """Return all partitions: the kept ones, and one of the loose patients if there are any."""
    made, is_loose = [], np.ones(len(patients), dtype=bool)
    for one in kept:
        found = one.find(patients)
        made.append(one.partition(patients, found))
        is_loose[found[found >= 0]] = False
    if is_loose.any():
        made.append(patients.partition(np.flatnonzero(is_loose), is_loose=True))
    return made


def partitions_of(X: EventRows) -> list[Partition]:
    """Split all rows by patient, so that a patient added or removed changes only one partition."""
    patients = Patients.of(X)
    return [patients.partition(one) for one in patients.cut(np.arange(len(patients)))]


def to_parts(kept: Sequence[KeptPartition]) -> dict[str, Any]:
    """Return kept partitions as parts of an artifact."""
    number = np.repeat(np.arange(len(kept)), [len(one.patients) for one in kept])
    about = [
        {"digests": list(one.digests), "codes": list(one.codes), "until": one.codes_until.tolist()}
        for one in kept
    ]
    return {
        "patients": np.concatenate([one.patients.view(np.int64) for one in kept]),
        "versions": np.column_stack(
            (
                number,
                np.concatenate([one.n_rows for one in kept]),
                np.concatenate([one.until for one in kept]),
            )
        ).astype(np.int32),
        "partitions": {"partitions": about},
    }


def from_parts(parts: Mapping[str, Any]) -> list[KeptPartition]:
    """Invert `to_parts`."""
    patients, (number, n_rows, until) = parts["patients"], parts["versions"].T
    made = []
    for i, about in enumerate(parts["partitions"]["partitions"]):
        chosen = number == i
        made.append(
            KeptPartition(
                tuple(about["digests"]),
                patients[chosen].view(np.uint64),
                n_rows[chosen],
                until[chosen],
                tuple(about["codes"]),
                np.array(about["until"], dtype=np.int32),
            )
        )
    return made
