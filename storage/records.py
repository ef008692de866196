"""Records: imported data, held-out predictions and final models, which are never evicted.

The database lists the studies that use a record. A record is deleted with its last study.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from time import time
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.codec import NotPicklable, decode, is_mapped
from prefect_tune.storage.database import Database, as_written, in_chunks, insert_new
from prefect_tune.storage.files import (
    FREE_BYTES_KEPT,
    RAISED,
    RECORDS,
    Damaged,
    EncodedParts,
    Files,
    Part,
    new_place,
    place_of,
)
from prefect_tune.storage.index import Journal, end_publications, note_publications
from prefect_tune.storage.keys import DATA
from prefect_tune.storage.lease import check_held
from prefect_tune.storage.notices import warn
from prefect_tune.storage.schema import record_table, record_user_table
from prefect_tune.storage.waiting import DiskFull, StoreLost


class RecordDamaged(StoreLost):
    """A record is missing or damaged. To restore a record, repeat the work that made it."""


class Records:
    """The records of a store: files in `records/`, rows in the database, and the journal."""

    def __init__(self, files: Files, database: Database, journal: Journal) -> None:
        self._files, self._journal = files, journal
        self._database = database
        self._has_swept = False

    def put(
        self,
        record: str,
        parts: Mapping[str, Any],
        study: str | None = None,
        check: Callable[[Mapping[str, Any]], None] | None = None,
        *,
        private: bool = False,
        mappable: bool = False,
    ) -> None:
        """Store values as a record, replacing any record with the same id.

        Args:
            record: Record id, which is a path inside `records/`.
            parts: Values to store, in canonical form, by name.
            study: Study that uses the record; None if no study uses the record yet.
            check: Function that checks the encoded and decoded parts before anything is written.
            private: Whether only the owner can read local files.
            mappable: Whether frames and vectors can be memory-mapped; see `codec.encode`.

        Raises:
            NotPicklable: If a part cannot be pickled or read back, or fails the check.
            StoreLost, DiskFull, ProcessExhausted: If the store cannot be written.
        """
        encoded = self._files.encode(_folder(record), parts, {"record": record}, mappable=mappable)
        if check is not None:
            try:
                check({name: decode(part.codec, data) for name, (part, data) in encoded.items()})
            except StoreLost:
                raise
            except Exception as error:  # any class: objects define their own unpickling
                reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                raise NotPicklable(f"not usable after pickling and unpickling: {reason}") from error
        self._publish(record, encoded, study, private=private)

    def copy(self, record: str, target: str, study: str) -> None:
        """Copy a record to the id `target` for use by a study, without decoding its parts.

        Raises RecordDamaged if the record is missing or damaged; also raises the errors of `put`.
        """
        encoded: dict[str, tuple[Part, bytes | memoryview]] = {}
        try:
            for name, part in self.parts(record).items():
                data = self._files.read(_folder(record), name, part)
                in_target = replace(part, file=part.file.rsplit("/", 1)[-1])
                encoded[name] = self._files.signed(_folder(target), name, in_target, data), data
        except Damaged as error:
            raise RecordDamaged(f"record {record}: {error}") from error
        self._publish(target, encoded, study)

    def _publish(
        self, record: str, encoded: EncodedParts, study: str | None, *, private: bool = False
    ) -> None:
        folder, place, free_bytes = _folder(record), new_place(), self._files.free_bytes()
        size_bytes = sum(part.size_bytes for part, _ in encoded.values())
        if free_bytes < FREE_BYTES_KEPT + size_bytes:
            raise DiskFull(
                f"the disk of {self._files.url} has {free_bytes / 1e9:.2f} GB left, and "
                f"{FREE_BYTES_KEPT / 1e9:g} GB must stay free; free space, for example with "
                "`prefect-tune artifacts prune`, or name another --store; then repeat the command"
            )
        self._journal.begin(folder, place)
        try:
            published = self._files.publish(folder, place, encoded, private=private)
        except RAISED:
            raise
        except Exception as error:
            raise StoreLost(f"{self._files.path(folder)} cannot be written: {error}") from error
        values = {
            "size_bytes": size_bytes,
            "created": time(),
            "parts": {name: asdict(part) for name, part in published.items()},
        }
        here = record_table.c.id == record

        def enter(connection: Connection) -> dict[str, Part]:
            """Add the record to the database; return the parts of the record that it replaces.

            A call that is repeated after an outage may return no parts.
            """
            insert_new(connection, record_table, [{"id": record, **values}])
            query = select(record_table.c.parts).where(here).with_for_update()
            former = _parts(record, connection.execute(query).scalar_one())
            end_publications(connection, [place])
            if study is not None:
                insert_new(connection, record_user_table, [{"record": record, "study": study}])
            if place_of(former) == place:
                return {}
            connection.execute(update(record_table).where(here).values(values))
            note_publications(connection, [(folder, place_of(former))])
            return former

        if former := self._database.transact(enter):
            self._delete({folder: former})

    def _delete(self, doomed: Mapping[str, Mapping[str, Part]]) -> None:
        """Delete files that no record uses any longer; `sweep` retries failed deletions later."""
        try:
            self._files.delete_parts(doomed)
        except Exception as error:
            text = f"unused files in {self._files.url} could not be deleted: {error}"
            warn("records not deleted", text, self._files.url)
        else:
            self._journal.finish([place_of(parts) for parts in doomed.values()])

    def get(self, record: str, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the named parts of a record, by default all parts.

        Raises RecordDamaged if a part is missing or damaged.
        """
        parts, read = self.parts(record), dict[str, Any]()
        try:
            for name in parts if names is None else names:
                part, copies = parts[name], self._files.copies
                if is_mapped(part.codec) and copies is not None and not self._has_swept:
                    self._has_swept = True  # drops copies of data that the store no longer has
                    is_data = record_table.c.id.startswith(DATA, autoescape=True)
                    query = select(record_table.c.id, record_table.c.parts).where(is_data)
                    known = [_parts(row.id, row.parts) for row in self._database.rows(query)]
                    copies.sweep({one.digest for some in known for one in some.values()})
                data = self._files.read(_folder(record), name, part, from_copy=True)
                read[name] = decode(part.codec, data)
        except (Damaged, KeyError, OSError) as error:
            if self.parts(record) != parts:  # replaced during the read
                return self.get(record, names)
            raise RecordDamaged(f"record {record}: {error}") from error
        return read

    def is_whole(self, record: str) -> bool:
        """Return whether a record exists and every part is undamaged.

        If this host has a copy of a remote file, the digest of the copy and the size of the remote
        file are checked.
        """
        try:
            for name, part in self.parts(record).items():
                if self._files.size_bytes(_folder(record), part) != part.size_bytes:
                    return False
                self._files.read(_folder(record), name, part, from_copy=True)
        except (Damaged, RecordDamaged, FileNotFoundError):
            return False
        return True

    def exists(self, record: str) -> bool:
        """Return whether a record exists, without reading its files."""
        query = select(record_table.c.id).where(record_table.c.id == record)
        return self._database.scalar(query) is not None

    def link(self, records: Sequence[str], study: str) -> None:
        """Mark `records` as used by a study. The records may be stored later."""
        if records:
            self._database.transact(partial(_linked, sorted(set(records)), study))

    def release(
        self, study: str, records: Sequence[str] | None = None, lease: str | None = None
    ) -> list[str]:
        """Mark `records`, by default all records of a study, as no longer used by the study.

        Records that no study uses are deleted. Returns the ids of the deleted records. Raises
        LeaseLost if `lease` is given and this process does not hold the lease.
        """
        if records is None:
            records = self.used_by(study)
        gone: list[str] = []
        for some in in_chunks(records):
            doomed = self._database.transact(partial(_released, study, some, lease))
            self._delete(doomed)
            gone += [folder.removeprefix(f"{RECORDS}/") for folder in doomed]
        return gone

    def used_by(self, study: str, beginning: str = "") -> list[str]:
        """Return the ids of a study's records that begin with `beginning`, by default all."""
        users = record_user_table.c
        query = select(users.record).where(users.study == study).order_by(users.record)
        if beginning:
            query = query.where(users.record.startswith(beginning, autoescape=True))
        return self._database.scalars(query)

    def ids(self) -> list[str]:
        """Return the ids of all records."""
        return self._database.scalars(select(record_table.c.id))

    def size_bytes(self) -> int:
        """Return the total size of all records in bytes."""
        return int(self._database.scalar(select(func.sum(record_table.c.size_bytes))) or 0)

    def parts(self, record: str) -> dict[str, Part]:
        """Return the parts of a record by name; raises RecordDamaged if there is no such record."""
        query = select(record_table.c.parts).where(record_table.c.id == record)
        for (parts,) in self._database.rows(query):
            return _parts(record, parts)
        raise RecordDamaged(f"record {record} is not in the store")


def _linked(records: Sequence[str], study: str, connection: Connection) -> None:
    """Mark records as used by a study. Concurrent `release` calls wait for the transaction."""
    for some in in_chunks(records):
        query = select(record_table.c.id).where(record_table.c.id.in_(some))
        connection.execute(query.order_by(record_table.c.id).with_for_update(read=True)).all()
    rows = [{"record": record, "study": study} for record in records]
    insert_new(connection, record_user_table, rows)


def _released(
    study: str, records: Sequence[str], lease: str | None, connection: Connection
) -> dict[str, dict[str, Part]]:
    """Mark records as unused by a study; return the parts of records without users, by folder.

    The returned parts are added to the journal of deletions.
    """
    if lease is not None:
        check_held(connection, lease)
    users = record_user_table.c
    # The second of two concurrent releases must see the first, so that the record is deleted.
    named = select(record_table.c.id).where(record_table.c.id.in_(records))
    connection.execute(named.order_by(record_table.c.id).with_for_update()).all()
    mine = delete(record_user_table).where(users.study == study, users.record.in_(records))
    connection.execute(mine)
    is_used = select(users.record).where(users.record == record_table.c.id).exists()
    unused = select(record_table.c.id, record_table.c.parts).where(
        record_table.c.id.in_(records), ~is_used
    )
    rows = connection.execute(unused.with_for_update()).all()
    doomed = [row.id for row in rows]
    connection.execute(delete(record_table).where(record_table.c.id.in_(doomed)))
    parts = {_folder(row.id): _parts(row.id, row.parts) for row in rows}
    note_publications(connection, [(folder, place_of(p)) for folder, p in parts.items()])
    return parts


def _parts(record: str, document: Mapping[str, Any]) -> dict[str, Part]:
    with as_written(f"record {record}"):
        return {name: Part(**part) for name, part in document.items()}


def _folder(record: str) -> str:
    return f"{RECORDS}/{record}"
