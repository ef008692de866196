"""State of the files that an input is read from, so that a changed input is noticed.

Cheap to import, because plans record states and every command that shows a study reads its plan.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from prefect_tune.storage.key import content_digest, file_digest
from prefect_tune.tasks.data.source import Source

if TYPE_CHECKING:
    from prefect_tune.tasks.data.location import Location

NO_FILES = ("cohort:", "sklearn:", "dataframe:")
"""Prefixes of inputs that are not files."""
_WHOLE_BYTES = 1_000_000_000
"""Most bytes of a file or folder that are all digested; of larger ones, samples are digested."""
_SAMPLE_BYTES = 1 << 16
_SAMPLES, _LEAST_SAMPLES = 256, 3
"""Samples of a large file or folder, and the minimum per file."""
_VERSIONS = (
    "etag", "checksum", "content-md5", "md5", "md5hash", "digest", "sha", "blob_id", "crc32c",
    "generation", "version_id", "versionid", "crc",
)  # fmt: skip
"""Names under which file systems report the version or content of a file."""
_TIMES = (
    "last-modified", "last_modified", "lastmodified", "updated", "mtime", "modified", "date_time",
    "created",
)  # fmt: skip
"""Names under which file systems report the time of a file's last change."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a file, or of all files in a folder.

    Attributes:
        content: Digest of contents, or of the versions or times that a remote file system reports.
        stamp: Digest of sizes and times of local files; files with the same stamp are not reread.
    """

    content: str
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class SourceStates:
    """States of the data, labels and test rows; None if there is no file or no access."""

    data: SourceState | None = None
    labels: SourceState | None = None
    test: SourceState | None = None

    def changed_since(self, known: Self) -> list[str]:
        """Return the options whose files have changed since the `known` states."""
        return [
            name
            for name, old, new in self._beside(known)
            if old is not None and new is not None and old.content != new.content
        ]

    def lost_since(self, known: Self) -> list[str]:
        """Return the options whose files have a `known` state but cannot be reached now."""
        return [name for name, old, new in self._beside(known) if old is not None and new is None]

    def completed_by(self, known: Self) -> Self:
        """Return the states, with the `known` ones for files that cannot be reached now."""
        return type(self)(**{name: new or old for name, old, new in self._beside(known)})

    def _beside(self, known: Self) -> Iterator[tuple[str, SourceState | None, SourceState | None]]:
        for one in fields(self):
            yield one.name, getattr(known, one.name), getattr(self, one.name)


NOTHING_KNOWN = SourceStates()
"""States of an input without files, and of studies by earlier versions."""


def source_states(source: Source, known: SourceStates = NOTHING_KNOWN) -> SourceStates:
    """Return the states of the files of an input.

    Local files whose size and times equal those in `known` are not reread.
    """
    found = {one.name: _state(source, one.name, known) for one in fields(known)}
    return SourceStates(**found)


def _state(source: Source, name: str, known: SourceStates) -> SourceState | None:
    url: str | None = getattr(source, name)
    if url is None or url.startswith(NO_FILES):
        return None
    with suppress(Exception):  # any kind: file systems come from many libraries
        location = _located(url, source.data)
        if _is_local(location):
            return _local_state(location, getattr(known, name))
        location.filesystem.invalidate_cache()
        return SourceState(content_digest("source", _remote_parts(location)))
    return None


def _located(url: str, data: str) -> "Location":
    """Find a file or folder by its name, or else below the data's folder, like labels."""
    from prefect_tune.tasks.data.location import Location  # noqa: PLC0415 - heavy

    named = Location.at(url)
    return named if named.exists() else Location.at(data).below(url)


def _is_local(location: "Location") -> bool:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - heavy

    return isinstance(location.filesystem, LocalFileSystem)


def _files(location: "Location") -> dict[str, Any]:
    """Return the file system's information on each file, by path; hidden files are skipped."""
    from prefect_tune.tasks.data.location import is_hidden  # noqa: PLC0415 - heavy

    if not location.is_folder():
        return {location.path: location.filesystem.info(location.path)}
    found = location.filesystem.find(location.path, detail=True)
    names = {path: path.removeprefix(location.path) for path in sorted(found)}
    return {path: found[path] for path, name in names.items() if not is_hidden(name)}


def _local_state(location: "Location", known: SourceState | None) -> SourceState:
    stats = {path: Path(path).stat() for path in _files(location)}
    names = {path: path.removeprefix(location.path) for path in stats}
    stamp = content_digest(
        "source stamp",
        (
            f"{names[path]}\0{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}".encode()
            for path, s in stats.items()
        ),
    )
    if known is not None and known.stamp == stamp:
        return known
    is_whole = sum(s.st_size for s in stats.values()) <= _WHOLE_BYTES
    n_samples = max(_SAMPLES // len(stats), _LEAST_SAMPLES)

    def parts() -> Iterator[bytes]:
        for path, stat in stats.items():
            yield names[path].encode()
            with Path(path).open("rb", buffering=0) as file:
                if is_whole:
                    yield file_digest(file).encode()
                else:
                    yield f"{stat.st_size} {stat.st_mtime_ns}".encode()
                    yield from _samples(file, stat.st_size, n_samples)

    return SourceState(content_digest("source", parts()), stamp)


def _samples(file: FileIO, size_bytes: int, n: int) -> Iterator[bytes]:
    """Yield pieces of a file at equal distances, including the first and the last piece."""
    last = max(size_bytes - _SAMPLE_BYTES, 0)
    for number in range(n):
        file.seek(last * number // (n - 1))
        yield file.read(_SAMPLE_BYTES)


def _remote_parts(location: "Location") -> Iterator[bytes]:
    filesystem = location.filesystem
    for path, listed in _files(location).items():
        yield path.removeprefix(location.path).encode()
        version = _version(listed) or _version(filesystem.info(path))
        if not version:  # a server that reports neither version nor time
            with filesystem.open(path, "rb") as file:
                version = file_digest(cast("FileIO", file))
        yield version.encode()


def _version(info: Mapping[str, Any]) -> str:
    """Return a file's version, or else its size with the time of the last change; may be empty."""
    facts = {name.lower(): value for name, value in info.items() if value}
    versions = [f"{name} {facts[name]}" for name in _VERSIONS if name in facts]
    times = [f"{name} {facts[name]}" for name in _TIMES if name in facts]
    if not versions and times:
        times.append(f"size {facts.get('size')}")
    return "\n".join(versions or times)
