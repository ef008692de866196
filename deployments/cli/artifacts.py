"""`prefect-tune artifacts`: list, show, export, verify and prune the artifacts of a store."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from prefect_tune.deployments.cli.completing import complete_files, complete_studies
from prefect_tune.deployments.cli.options import reading_store
from prefect_tune.deployments.cli.output import atomic_output, emit

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore
    from prefect_tune.storage.index import Entry


@click.group()
def artifacts() -> None:
    """Inspect, verify and prune the cached steps of a store."""


@artifacts.command("ls")
@click.option(
    "--study",
    help="List only steps that this study made or used.",
    shell_complete=complete_studies,
)
@click.option("--step", help='List only this step, such as "fit model".')
@click.option("--limit", type=click.IntRange(1), metavar="N", help="List at most N steps.")
@reading_store
def artifacts_ls(
    opened: "ArtifactStore",
    *,
    study: str | None,
    step: str | None,
    limit: int | None,
) -> None:
    """List cached steps, newest first."""
    from prefect_tune.deployments.views.artifact import print_artifacts
    from prefect_tune.storage.inspection import listed

    found = opened.index.select(step=step, limit=None if study else limit)
    if study is not None:
        from prefect_tune.flows.reading.lookup import keys_of

        keys = set(keys_of(opened, study))
        found = [entry for entry in found if entry.key in keys][:limit]
    emit(lambda: [listed(entry) for entry in found], lambda: print_artifacts(found))


@artifacts.command("show")
@click.argument("key")
@reading_store
def artifacts_show(opened: "ArtifactStore", key: str) -> None:
    """Show a cached step: contents, origin and trials. KEY may be the start of a key."""
    from prefect_tune.deployments.views.artifact import print_artifact
    from prefect_tune.flows.reading.lookup import load_code_of, trials_using
    from prefect_tune.storage.inspection import describe

    entry = _the_artifact(opened, key)
    load_code_of(opened, entry)
    detail, users = describe(opened, entry), trials_using(opened, entry.key)
    trials = [{"study": study, "number": number} for study, number in users]
    names = [f"{study} {number}" for study, number in users]
    emit(lambda: {**detail, "trials": trials}, lambda: print_artifact(entry, detail, names))


@artifacts.command("export")
@click.argument("key")
@click.argument("file", shell_complete=complete_files)
@click.option("--part", default="train", show_default=True, help="train, held_out or estimator.")
@reading_store
def artifacts_export(opened: "ArtifactStore", key: str, file: str, *, part: str) -> None:
    """Write a part of a cached step to FILE, as Parquet or as a pickled estimator."""
    from prefect_tune.flows.reading.lookup import load_code_of, trials_using
    from prefect_tune.flows.starting.output_files import check_output
    from prefect_tune.storage.codec import decode
    from prefect_tune.storage.files import Damaged
    from prefect_tune.storage.keys import artifact_folder
    from prefect_tune.tasks.bad_input import BadInput
    from prefect_tune.tasks.user_code import portable_pickle

    entry = _the_artifact(opened, key)
    users = [entry.study, *(study for study, _ in trials_using(opened, entry.key))]
    check_output(file, store=opened, studies=set(users))
    if not entry.is_present:
        raise BadInput(f"step {entry.key[:12]} was evicted; only its summary remains")
    if part not in entry.parts:
        raise BadInput(
            f"step {entry.key[:12]} has no part {part!r}; it has {', '.join(entry.parts)}"
        )
    try:
        data = opened.files.read(artifact_folder(entry.key), part, entry.parts[part])
    except Damaged as error:
        raise BadInput(f"the part cannot be exported: {error}") from error
    load_code_of(opened, entry)
    # The user's code is included, so that FILE loads without the user's files.
    if entry.parts[part].codec == "pickle":
        data = portable_pickle(decode("pickle", data))
    with atomic_output(file) as path:
        path.write_bytes(data)
    emit(
        lambda: {"out": file, "key": entry.key, "part": part},
        f"wrote {part} of {entry.step} ({entry.algorithm}) to {file}",
    )


@artifacts.command("stats")
@reading_store
def artifacts_stats(opened: "ArtifactStore") -> None:
    """Show the size and the hits of the cache."""
    from prefect_tune.deployments.views.artifact import print_totals

    totals, records_bytes = opened.index.totals(), opened.records.size_bytes()
    emit(
        lambda: {**asdict(totals), "records_bytes": records_bytes},
        lambda: print_totals(totals, records_bytes),
    )


@artifacts.command("verify")
@click.option(
    "--repair", "is_repair", is_flag=True, help="Forget damaged steps, and delete unknown files."
)
@reading_store
def artifacts_verify(opened: "ArtifactStore", *, is_repair: bool) -> None:
    """Check every file of the store against its digest. Exit with 1 if any file is wrong.

    --repair removes damaged and incomplete steps from the cache and deletes files that are not in
    the index. Removed steps are recomputed on demand. Damaged records are only reported.
    """
    from prefect_tune.deployments.views.artifact import print_verification
    from prefect_tune.storage.inspection import repair, verify

    found = verify(opened)
    if is_repair:
        repair(opened, found)
    after = verify(opened) if is_repair else found
    is_repaired = is_repair and after.is_sound
    emit(lambda: asdict(found), lambda: print_verification(found, is_repaired=is_repaired))
    if not after.is_sound:
        sys.exit(1)


@artifacts.command("prune")
@click.option("--to", "size", required=True, metavar="SIZE", help="Target size, such as 5GB.")
@reading_store
def artifacts_prune(opened: "ArtifactStore", *, size: str) -> None:
    """Evict the least recently used steps until the cache is at most SIZE. Records stay."""
    from prefect_tune.flows.wording.text import format_bytes, parse_bytes

    evicted = opened.prune(parse_bytes(size, "to"))
    size_bytes = opened.index.totals().size_bytes
    emit(
        lambda: {"evicted": evicted, "size_bytes": size_bytes},
        f"{evicted} evicted; the cache holds {format_bytes(size_bytes)}",
    )


def _the_artifact(opened: "ArtifactStore", key: str) -> "Entry":
    """Return the only artifact whose key begins with `key`. May raise `BadInput`."""
    found = opened.index.select(beginning=key, present_only=False)
    if len(found) != 1:
        from prefect_tune.tasks.bad_input import BadInput

        raise BadInput(
            f"{len(found) or 'no'} cached steps have a key that begins with {key!r}; "
            "`prefect-tune artifacts ls` lists all keys"
        )
    return found[0]
