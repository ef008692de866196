"""Checks that an output file does not replace a file that the command or the study reads."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os.path import expanduser
from pathlib import Path
from typing import Any

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.local_files import check_writable
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.location import SUFFIXES

_INPUTS = ("data", "labels", "test", "space", "start")
"""Options that may name files."""
_OF_STORE = ("cache", "records", "tmp", "store.json", "index.sqlite")
"""Names of the folders and files in a store."""


def check_output(
    out: str,
    read: Iterable[str | None] = (),
    store: ArtifactStore | None = None,
    studies: Iterable[str] = (),
) -> Path:
    """Check an output file before any work starts, and return its path.

    Args:
        out: Path of the file to write.
        read: Input files and folders of the command.
        store: Store that the command reads; None if the command reads no store.
        studies: Names of studies in the store whose files also count as inputs.

    Raises:
        BadInput: If the file cannot be written, or if the path is an input or links to an input.
    """
    path = Path(expanduser(out)).absolute()  # noqa: PTH111 - pathlib raises for unknown users
    try:
        check_writable(path)
    except OSError as error:
        raise BadInput(
            f"{out} cannot be written: {error.strerror or error}; name another file"
        ) from error
    inputs = {name: "an input of this command" for name in read if name}
    if store is not None:
        parts = [f"{store.address.url}/{name}" for name in _OF_STORE]
        parts += filter(None, [store.address.database.partition(":///")[2]])
        inputs |= dict.fromkeys(parts, "a part of the store")
        found = filter(None, map(Ledger(store.database).study, studies))
        for plan in map(StudyPlan.from_stored, found):
            of_study, behind = f"an input of study {plan.options.study}", plan.problem.behind
            files = [*input_files(vars(plan.options)), *(one.file for one in behind.files)]
            files += [module.file for module in behind.modules if module.file]
            if plan.problem.space_code:
                name = Path(plan.space.rpartition(":")[0]).name
                files.append(str(Path(behind.folder) / name))
            inputs |= dict.fromkeys(files, of_study)
            # A stored relative path may refer to another working folder.
            relative = {file for file in plan.source.files if not Path(file).is_absolute()}
            if path.name in {Path(file).name for file in relative}:
                inputs[str(path)] = f"named like {of_study}"
    for name, what in inputs.items():
        if _would_change(path, Path(name.rpartition("::")[2].removeprefix("file://"))):
            raise BadInput(f"{out} is {what}; name another file")
    return path


def input_files(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files and folders that a study's options name."""
    for name in (str(options[name]) for name in _INPUTS if options.get(name)):
        yield name.rpartition(":")[0] if ".py:" in name else name
    if labels := options.get("labels"):
        yield f"{options['data']}/{labels}"


def _would_change(path: Path, kept: Path) -> bool:
    """Return whether writing `path` would change the file or folder `kept`."""
    kept = kept.expanduser()
    with suppress(OSError):
        if kept.is_dir():
            is_below = path.resolve().is_relative_to(kept.resolve())
            if is_below and (kept.name in _OF_STORE or path.name.lower().endswith(SUFFIXES)):
                return True
            # A file in the folder may be a link to a file elsewhere.
            files = (file for file in kept.rglob("*") if file.name.lower().endswith(SUFFIXES))
            return path.exists() and any(file.exists() and file.samefile(path) for file in files)
        return path.exists() and kept.exists() and kept.samefile(path)
    return False
