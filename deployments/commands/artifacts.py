"""`prefect-tune artifacts`: list, show, export, verify and prune the artifacts of a store."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from prefect_tune.deployments.commands.completing import complete_files, complete_studies
from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.commands.options import DATABASE, JSON, STORE, existing_store
from prefect_tune.deployments.commands.output import atomic_output, print_json

if TYPE_CHECKING:
    from prefect_tune.storage.cache.entry import Entry
    from prefect_tune.storage.store import ArtifactStore

from prefect_tune.deployments.views.console import echo


@click.group()
def artifacts() -> None:
    """Inspect the store: the artifacts of each step, and their origin."""


@artifacts.command("ls")
@click.option(
    "--study",
    help="List only artifacts that this study made or used.",
    shell_complete=complete_studies,
)
@click.option("--step", help='List only this step, such as "fit model".')
@click.option("--algorithm", help="List only this algorithm.")
@click.option(
    "--sort",
    type=click.Choice(["age", "size", "use", "cost"]),
    default="age",
    show_default=True,
    help="Sort order: newest, largest, last used or costliest first.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="List at most N artifacts.")
@JSON
@STORE
@DATABASE
def artifacts_ls(
    study: str | None,
    *,
    step: str | None,
    algorithm: str | None,
    sort: str,
    limit: int | None,
    as_json: bool,
    store: str | None,
    database: str | None,
) -> None:
    """List cached artifacts, newest first."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.artifact import print_artifacts
        from prefect_tune.storage.cache.entry import Selection
        from prefect_tune.storage.inspection import list_artifacts, listed

        keys = None
        if study is not None:
            from prefect_tune.flows.reading.lookup import keys_of

            keys = keys_of(opened, study)
        selection = Selection(step=step, algorithm=algorithm, sort=sort, limit=limit)
        found = list_artifacts(opened, selection, keys)
        print_json([listed(entry) for entry in found]) if as_json else print_artifacts(found)


@artifacts.command("show")
@click.argument("key")
@JSON
@STORE
@DATABASE
def artifacts_show(key: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show the contents, origin and users of an artifact. KEY may be the beginning of a key."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.artifact import print_artifact
        from prefect_tune.flows.reading.lookup import load_code_of, trials_using
        from prefect_tune.storage.inspection import describe
        from prefect_tune.tasks.data.split import REFIT

        entry = _the_artifact(opened, key)
        load_code_of(opened, entry)
        detail, users = describe(opened, entry), trials_using(opened, entry.key)
        if as_json:
            trials = [{"study": study, "number": number} for study, number in users]
            print_json({**detail.to_json(), "trials": trials})
        else:
            names = [f"{study} {number}" for study, number in users]
            print_artifact(detail, names, final_fold=REFIT)


@artifacts.command("export")
@click.argument("key")
@click.argument("file", shell_complete=complete_files)
@click.option("--part", default="train", show_default=True, help="train, held_out or estimator.")
@JSON
@STORE
@DATABASE
def artifacts_export(
    key: str, file: str, *, part: str, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write one part of an artifact to FILE, as Parquet or as a pickled estimator."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.output_files import check_output
        from prefect_tune.flows.reading.lookup import load_code_of, trials_using
        from prefect_tune.storage.codec import decode
        from prefect_tune.storage.files import Damaged
        from prefect_tune.storage.inspection import part_of
        from prefect_tune.tasks.bad_input import BadInput
        from prefect_tune.tasks.user_code import portable_pickle

        entry = _the_artifact(opened, key)
        users = [entry.study, *(study for study, _ in trials_using(opened, entry.key))]
        check_output(file, store=opened, studies=set(users))
        if not entry.is_present:
            raise BadInput(f"artifact {entry.key[:12]} was evicted; only its summary remains")
        if part not in entry.parts:
            raise BadInput(
                f"artifact {entry.key[:12]} has no part {part!r}; it has {', '.join(entry.parts)}"
            )
        try:
            data = part_of(opened, entry, part)
        except Damaged as error:
            raise BadInput(f"the part cannot be exported: {error}") from error
        load_code_of(opened, entry)
        if entry.parts[part].codec == "pickle":  # FILE must load without the user's code
            data = portable_pickle(decode("pickle", data))
        with atomic_output(file) as path:
            path.write_bytes(data)
        if as_json:
            print_json({"out": file, "key": entry.key, "part": part})
        else:
            echo(f"{part} of {entry.step} ({entry.algorithm}) is in {file}")


@artifacts.command("stats")
@JSON
@STORE
@DATABASE
def artifacts_stats(*, as_json: bool, store: str | None, database: str | None) -> None:
    """Show the size of the cache and its hits."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views.artifact import print_stats
        from prefect_tune.storage.inspection import stats

        found = stats(opened)
        print_json(asdict(found)) if as_json else print_stats(found)


@artifacts.command("verify")
@click.option(
    "--repair", "is_repair", is_flag=True, help="Forget damaged artifacts, delete unknown files."
)
@JSON
@STORE
@DATABASE
def artifacts_verify(
    *, is_repair: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """Compare every file of the store with its digest; exit with 1 if one is wrong.

    --repair forgets damaged and missing artifacts, which are recomputed on demand, and deletes
    files that the index does not know. Damaged records are only reported.
    """
    with reported_errors(), existing_store(store, database) as opened:
        from dataclasses import asdict

        from prefect_tune.deployments.views.artifact import print_verification
        from prefect_tune.storage.inspection import repair, verify

        found = verify(opened)
        if is_repair:
            repair(opened, found)
        after = verify(opened) if is_repair else found
        if as_json:
            print_json(asdict(found))
        else:
            print_verification(found, is_repaired=is_repair and after.is_sound)
        is_sound = after.is_sound
    if not is_sound:
        sys.exit(1)


@artifacts.command("prune")
@click.option("--to", "size", required=True, metavar="SIZE", help="Target size, such as 5GB.")
@JSON
@STORE
@DATABASE
def artifacts_prune(size: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Evict the least recently used artifacts until the cache is at most SIZE. Records stay."""
    with reported_errors(), existing_store(store, database) as opened:
        from prefect_tune.flows.text import format_bytes, parse_bytes
        from prefect_tune.storage.inspection import stats

        evicted = opened.prune(parse_bytes(size, "to"))
        size_bytes = stats(opened).size_bytes
        if as_json:
            print_json({"evicted": evicted, "size_bytes": size_bytes})
        else:
            echo(f"{evicted} evicted; the cache holds {format_bytes(size_bytes)}")


def _the_artifact(opened: "ArtifactStore", key: str) -> "Entry":
    """Return the artifact with this key prefix; raises BadInput for none or several."""
    from prefect_tune.storage.inspection import find_artifacts
    from prefect_tune.tasks.bad_input import BadInput

    found = find_artifacts(opened, key)
    if len(found) != 1:
        how_many = f"{len(found)} artifacts have" if found else "no artifact has"
        raise BadInput(
            f"{how_many} a key that begins with {key!r}; `prefect-tune artifacts ls` lists them"
        )
    return found[0]
