"""The command line `prefect-tune`.

Nothing heavy is imported before a command runs, so that help comes at once. With `--json` standard
output holds the result and nothing else; what is said along the way goes to standard error.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefect_tune.deployments.settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.options import OPTIONS, Option

if TYPE_CHECKING:
    from prefect_tune.flows.preparing import Prepared
    from prefect_tune.storage.store import ArtifactStore

__all__ = ["main"]

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable fields.")
STORE = click.option("--store", metavar="URL", help=OPTIONS["store"].help)
DATABASE = click.option("--database", metavar="URL", help=OPTIONS["database"].help)
_TYPES: dict[str, Any] = {"whole": int, "number": float}


class _Grouped(click.Command):
    """A command whose help shows options under their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        headings: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                name = parameter.name or ""
                heading = OPTIONS[name].group if name in OPTIONS else "Output"
                headings.setdefault(heading, []).append(row)
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="prefect-tune")
def main() -> None:
    """Tune whole data-analytic pipelines on Prefect: which algorithm at each step, and how set.

    Start with `prefect-tune run cohort:demo`, then `prefect-tune run table.csv --target COLUMN`.
    """
    set_defaults(QUIET_CONSOLE)


def _study_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a study, from the one place that states them."""
    for option in reversed(tuple(OPTIONS.values())):
        if option.kind == "argument":
            command = click.argument(option.name, metavar=option.metavar)(command)
        else:
            command = _click_option(option)(command)
    return command


def _click_option(option: Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    if option.kind == "switch":
        return click.option(option.flag, option.name, is_flag=True, help=option.help)
    return click.option(
        option.flag,
        option.name,
        type=_TYPES.get(option.kind, str),
        multiple=option.kind in ("texts", "assignments"),
        metavar=option.metavar,
        help=option.help,
    )


@main.command(cls=_Grouped)
@_study_options
@JSON
@click.option("--json-lines", is_flag=True, help="Print each trial as a line of JSON as it ends.")
@click.option("--quiet", is_flag=True, help="Say nothing along the way.")
@click.option("--keep-server", is_flag=True, help="Leave the embedded Prefect server up.")
def run(
    *, as_json: bool, json_lines: bool, quiet: bool, keep_server: bool, **parameters: Any
) -> None:
    r"""Tune a pipeline on DATA, or continue a study.

    DATA is a table as CSV(.gz) or Parquet (name the column to predict with --target), a table of
    patient events or a MEDS folder (name the labels with --labels), or cohort:demo.

    \b
    prefect-tune run cohort:demo
    prefect-tune run patients.csv --target responder --trials 50
    prefect-tune run /data/meds --labels labels/responder --budget 1h --study responders

    Shown as it goes: the best trial, trials done and failed, the budget left, and what the cache
    saved. Interrupt it at any time; the same command with the same --study goes on where it was.
    """

    def prepare_study() -> "Prepared":
        from prefect_tune.flows.preparing import prepare
        from prefect_tune.flows.settings import TuneSettings

        parameters["option"] = _assignments(parameters["option"])
        for name in ("drop", "categorical"):
            parameters[name] = list(parameters[name]) or None
        return prepare(TuneSettings.parse(parameters))

    def tune_study(preparation: "Prepared") -> dict[str, Any]:
        from prefect_tune.flows.tuning import tune

        summary: dict[str, Any] = tune(**{**parameters, "study": preparation.study})
        return summary

    summary = _run_flow(
        prepare_study, tune_study, quiet=quiet, json_lines=json_lines, keep_server=keep_server
    )
    _print_summary(summary, as_json=as_json, silent=json_lines)


@main.command()
@click.argument("study")
@JSON
@STORE
@DATABASE
def show(study: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show what came of STUDY: its best pipeline, its trials, and what the cache saved."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.flows.summary import summarize

        _print_summary(summarize(opened, study), as_json=as_json)


@main.command()
@click.argument("study")
@click.option("--failed", is_flag=True, help="Only failed trials, with their reasons.")
@JSON
@STORE
@DATABASE
def trials(
    study: str, *, failed: bool, as_json: bool, store: str | None, database: str | None
) -> None:
    """List the trials of STUDY."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.deployments.views import print_trials
        from prefect_tune.flows.summary import list_trials

        rows = list_trials(opened, study, failed_only=failed)
        _print_json(rows) if as_json else print_trials(rows)


@main.command()
@click.argument("study")
@click.option("--trial", type=int, multiple=True, help="Number of a failed trial (repeatable).")
@click.option("--workers", type=int, metavar="N", help=OPTIONS["workers"].help)
@click.option("--dask", metavar="ADDRESS", help=OPTIONS["dask"].help)
@click.option("--task-runs", metavar="WHICH", help=OPTIONS["task_runs"].help)
@STORE
@DATABASE
@JSON
@click.option("--quiet", is_flag=True, help="Say nothing along the way.")
@click.option("--keep-server", is_flag=True, help="Leave the embedded Prefect server up.")
def retry(
    study: str,
    *,
    trial: tuple[int, ...],
    as_json: bool,
    quiet: bool,
    keep_server: bool,
    **where: Any,
) -> None:
    """Run failed trials of STUDY again; steps that were done before the failure are not redone."""
    numbers = list(trial) or None

    def prepare_study() -> "Prepared":
        from prefect_tune.flows.preparing import prepare_retry

        return prepare_retry(study, numbers, **where)

    def retry_study(_: "Prepared") -> dict[str, Any]:
        from prefect_tune.flows.retrying import retry as retry_flow

        summary: dict[str, Any] = retry_flow(study, numbers, **where)
        return summary

    summary = _run_flow(
        prepare_study, retry_study, quiet=quiet, json_lines=False, keep_server=keep_server
    )
    _print_summary(summary, as_json=as_json)


@main.group()
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
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.deployments.views import print_artifacts
        from prefect_tune.flows.summary import keys_of
        from prefect_tune.storage.inspection import list_artifacts

        keys = None if study is None else keys_of(opened, study)
        rows = list_artifacts(opened, keys)
        _print_json(rows) if as_json else print_artifacts(rows)


@artifacts.command("show")
@click.argument("key")
@JSON
@STORE
@DATABASE
def artifacts_show(key: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Show one artifact: its facts, its files, and all that made it. A part of KEY will do."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.deployments.views import print_artifact
        from prefect_tune.storage.inspection import describe, find_artifact
        from prefect_tune.tasks.bad_input import BadInput

        entry = find_artifact(opened, key)
        if entry is None:
            raise BadInput(
                f"no artifact, or more than one, has a key that begins with {key!r}; "
                "`prefect-tune artifacts ls` lists them"
            )
        document = describe(opened, entry)
        _print_json(document) if as_json else print_artifact(document)


@artifacts.command("stats")
@JSON
@STORE
@DATABASE
def artifacts_stats(*, as_json: bool, store: str | None, database: str | None) -> None:
    """Show how full the cache is, and how often it served."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.deployments.views import print_stats
        from prefect_tune.storage.inspection import stats

        document = stats(opened)
        _print_json(document) if as_json else print_stats(document)


@artifacts.command("verify")
@JSON
@STORE
@DATABASE
def artifacts_verify(*, as_json: bool, store: str | None, database: str | None) -> None:
    """Compare every file of the store with its digest. Exit code 1 if something is wrong."""
    with _told_plainly(), _opened(store, database) as opened:
        from dataclasses import asdict

        from prefect_tune.deployments.views import print_verification
        from prefect_tune.storage.inspection import verify

        found = verify(opened)
        _print_json(asdict(found)) if as_json else print_verification(found)
    if not found.is_sound:
        sys.exit(1)


@artifacts.command("prune")
@click.option("--to", "size", required=True, metavar="SIZE", help="What may stay, such as 5GB.")
@JSON
@STORE
@DATABASE
def artifacts_prune(size: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Evict the least recently used artifacts until the cache is at most SIZE; records stay."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.flows.quantities import format_bytes, parse_bytes
        from prefect_tune.storage.inspection import stats

        evicted = opened.prune(parse_bytes(size, "to"))
        document = {"evicted": evicted, "size_bytes": stats(opened)["size_bytes"]}
        if as_json:
            _print_json(document)
        else:
            click.echo(f"{evicted} evicted; the cache holds {format_bytes(document['size_bytes'])}")


@main.group()
def study() -> None:
    """Manage studies."""


@study.command("ls")
@JSON
@STORE
@DATABASE
def study_ls(*, as_json: bool, store: str | None, database: str | None) -> None:
    """List studies, newest first."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.deployments.views import print_studies
        from prefect_tune.flows.summary import summarize
        from prefect_tune.storage.ledger import Ledger

        rows = [summarize(opened, name) for name in Ledger(opened.database).study_names()]
        _print_json(rows) if as_json else print_studies(rows)


@study.command("rm")
@click.argument("name")
@JSON
@STORE
@DATABASE
def study_rm(name: str, *, as_json: bool, store: str | None, database: str | None) -> None:
    """Remove a study: its trials, and the records that no other study uses."""
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.flows.removing import remove_study

        records = remove_study(opened, name)
        if as_json:
            _print_json({"study": name, "records": records})
        else:
            click.echo(f"study {name} is gone, and {len(records)} records that only it used")


@main.command()
@click.argument("study")
@click.argument("data")
@click.option("--labels", metavar="PATH", help="For events: patients and prediction times.")
@click.option("--out", default="predictions.parquet", show_default=True, metavar="FILE")
@JSON
@STORE
@DATABASE
def predict(
    study: str,
    data: str,
    *,
    labels: str | None,
    out: str,
    as_json: bool,
    store: str | None,
    database: str | None,
) -> None:
    """Predict the rows of DATA with the final model of STUDY.

    DATA has the form of the training data; a target column is not needed. FILE (.parquet or .csv)
    gets the columns `prediction` and `probability_<class>`, one row per row.
    """
    with _told_plainly(), _opened(store, database) as opened:
        from prefect_tune.flows.predicting import predict as predict_rows

        frame = predict_rows(opened, study, data, labels)
        with _written(out) as path:
            if out.endswith(".csv"):
                frame.to_csv(path, index=False)
            else:
                frame.to_parquet(path, index=False)
        if as_json:
            _print_json({"rows": len(frame), "columns": list(frame.columns), "out": out})
        else:
            click.echo(f"{len(frame)} predictions in {out}")


@main.command()
@click.argument("study")
@click.argument("file")
@JSON
@STORE
@DATABASE
def export(
    study: str, file: str, *, as_json: bool, store: str | None, database: str | None
) -> None:
    """Write the final model of STUDY to FILE as a pickled scikit-learn Pipeline."""
    with _told_plainly(), _opened(store, database) as opened:
        import pickle

        from prefect_tune.flows.predicting import final_model

        model, about = final_model(opened, study)
        with _written(file) as path:
            path.write_bytes(pickle.dumps(model, protocol=5))
        if as_json:
            _print_json({"out": file, **about})
        else:
            click.echo(f"the model of trial {about['trial']} is in {file}")


@main.command()
@click.option("--limit", default=1, show_default=True, help="Studies at the same time.")
def serve(*, limit: int) -> None:
    """Serve the deployments, so that anyone can start them: prefect deployment run tune/healthcare.

    Runs until interrupted. Schedules keep running or resting as they are set in Prefect.
    """
    with _told_plainly():
        from prefect_tune.deployments.serve import serve_deployments

        serve_deployments(limit=limit, say=lambda text: click.echo(text, err=True))


def _run_flow(
    prepare: Callable[[], "Prepared"],
    run_flow: Callable[["Prepared"], dict[str, Any]],
    *,
    quiet: bool,
    json_lines: bool,
    keep_server: bool,
) -> dict[str, Any]:
    """Check the input while server and workers start, then run a flow and show how it goes."""
    from prefect_tune.flows.local_workers import warm_up

    warm_up()
    with _told_plainly():
        from prefect_tune.deployments.server import launched_server

        with launched_server(keep=keep_server) as server:
            preparation = prepare()
            from prefect_tune.deployments.live import observer_for
            from prefect_tune.flows.dask_trials import workers_started_early
            from prefect_tune.flows.preparing import prepared
            from prefect_tune.flows.progress import observed_by

            with (
                observer_for(quiet=quiet, json_lines=json_lines) as observer,
                workers_started_early(preparation.settings),
                prepared(preparation),
                observed_by(observer),
            ):
                for note in preparation.notes:
                    observer.note(note)
                observer.note(f"Prefect shows it at {server.url.removesuffix('/api')}")
                server.wait()
                return run_flow(preparation)


@contextmanager
def _told_plainly() -> Iterator[None]:
    """A user's own mistakes as one message and exit code 2, failures as one and exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on where it was", err=True)
        sys.exit(130)
    except Exception as error:
        from prefect_tune.deployments.server import ServerFailed
        from prefect_tune.flows.study import StudyFailed
        from prefect_tune.optimizers.naming import UnknownName
        from prefect_tune.storage.records import RecordDamaged
        from prefect_tune.storage.store import StoreRefused
        from prefect_tune.tasks.bad_input import BadInput

        if isinstance(error, BadInput | UnknownName | StoreRefused):
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)
        if isinstance(error, StudyFailed | ServerFailed | RecordDamaged):
            click.echo(f"Failed: {error}", err=True)
            sys.exit(1)
        raise


@contextmanager
def _opened(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """An existing store; looking never makes one."""
    from prefect_tune.flows.settings import store_address
    from prefect_tune.storage.store import ArtifactStore

    opened = ArtifactStore(store_address(store, database))
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def _written(out: str) -> Iterator[Path]:
    """A path to write to, which becomes `out` when all is written."""
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    if not target.parent.is_dir():
        raise BadInput(f"{out} cannot be written: there is no folder {target.parent}")
    temporary = target.with_name(f".{target.name}.part")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _assignments(texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of a method from `NAME=VALUE`; values are JSON where they can be."""
    from prefect_tune.tasks.bad_input import BadInput

    options: dict[str, Any] = {}
    for text in texts:
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text)
        if match is None:
            raise BadInput(f"--option {text}: write NAME=VALUE")
        try:
            options[match[1]] = json.loads(match[2])
        except ValueError:
            options[match[1]] = match[2]
    return options


def _print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2))


def _print_summary(summary: dict[str, Any], *, as_json: bool, silent: bool = False) -> None:
    if as_json:
        _print_json(summary)
    elif not silent:
        from prefect_tune.deployments.views import print_summary

        print_summary(summary)
