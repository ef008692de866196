"""`prefect-tune artifacts`: looking into the store."""

import sys

import click

from prefect_tune.deployments.command_parts import (
    DATABASE,
    JSON,
    STORE,
    existing_store,
    print_json,
    told_plainly,
)

__all__ = ["artifacts"]


@click.group()
def artifacts() -> None:
    """Look into the store: what each step made, and how it was made."""


@artifacts.command("ls")
@click.option("--study", help="Only what trials of this study used.")
@JSON
@STORE
@DATABASE
def artifacts_ls(
    study: str | None, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """List cached artifacts, newest first."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views import print_artifacts
        from prefect_tune.flows.summary import keys_of
        from prefect_tune.storage.inspection import list_artifacts

        keys = None if study is None else keys_of(opened, study)
        rows = list_artifacts(opened, keys)
        print_json(rows) if as_json else print_artifacts(rows)


@artifacts.command("show")
@click.argument("key")
@JSON
@STORE
@DATABASE
def artifacts_show(key: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show one artifact: its facts, its files, and all that made it. A part of KEY will do."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views import print_artifact
        from prefect_tune.storage.inspection import describe, find_artifacts
        from prefect_tune.tasks.bad_input import BadInput

        found = find_artifacts(opened, key)
        if len(found) != 1:
            how_many = f"{len(found)} artifacts have" if found else "no artifact has"
            raise BadInput(
                f"{how_many} a key that begins with {key!r}; `prefect-tune artifacts ls` lists them"
            )
        document = describe(opened, found[0])
        print_json(document) if as_json else print_artifact(document)


@artifacts.command("stats")
@JSON
@STORE
@DATABASE
def artifacts_stats(*, as_json: bool, store: str | None, database: str | None) -> None:
    """Show how full the cache is, and how often it served."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.deployments.views import print_stats
        from prefect_tune.storage.inspection import stats

        document = stats(opened)
        print_json(document) if as_json else print_stats(document)


@artifacts.command("verify")
@JSON
@STORE
@DATABASE
def artifacts_verify(*, as_json: bool, store: str | None, database: str | None) -> None:
    """Compare every file of the store with its digest. Exit code 1 if something is wrong."""
    with told_plainly(), existing_store(store, database) as opened:
        from dataclasses import asdict

        from prefect_tune.deployments.views import print_verification
        from prefect_tune.storage.inspection import verify

        found = verify(opened)
        print_json(asdict(found)) if as_json else print_verification(found)
    if not found.is_sound:
        sys.exit(1)


@artifacts.command("prune")
@click.option("--to", "size", required=True, metavar="SIZE", help="What may stay, such as 5GB.")
@JSON
@STORE
@DATABASE
def artifacts_prune(size: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Evict the least recently used artifacts until the cache is at most SIZE; records stay."""
    with told_plainly(), existing_store(store, database) as opened:
        from prefect_tune.flows.quantities import format_bytes, parse_bytes
        from prefect_tune.storage.inspection import stats

        evicted = opened.prune(parse_bytes(size, "to"))
        document = {"evicted": evicted, "size_bytes": stats(opened)["size_bytes"]}
        if as_json:
            print_json(document)
        else:
            click.echo(f"{evicted} evicted; the cache holds {format_bytes(document['size_bytes'])}")
