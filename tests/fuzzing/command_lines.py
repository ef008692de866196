"""Commands with options at random, up to the point where a flow would start."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import click
import pytest
from hypothesis import strategies as st

from fuzzing.ground import Ground, check_message, files_in, studies_in
from fuzzing.values import SECRET, texts
from prefect_tune.deployments import serve
from prefect_tune.deployments.cli import compare, run
from prefect_tune.deployments.cli.command import main
from prefect_tune.deployments.cli.errors import reported_errors

_EXPECTED = (0, 1, 2)
_USUAL: Mapping[str, tuple[str, ...]] = {
    "study": ("flashed", "picky", "flashd"),
    "name": ("flashed", "picky", "demo", "small", "healthcare", "flash", "tpe"),
    "data": ("table.csv", "table.csv", "events.csv", "sklearn:iris"),
    "target": ("target", "count"),
    "labels": ("labels.csv",),
    "test": ("table.csv",),
    "splits": ("ignore",),
    "test_size": ("0.3",),
    "folds": ("2",),
    "holdout": ("0.3",),
    "group": ("count",),
    "time": ("count",),
    "gap": ("1d",),
    "drop": ("a",),
    "categorical": ("count",),
    "space": ("small", "flash", "regression"),
    "method": ("random", "tpe", "admm"),
    "methods": ("random,tpe", "flash:r=5,flash"),
    "metric": ("auroc", "f1"),
    "positive": ("yes",),
    "constraint": ("latency_us<=50", "disparate_impact(count, bins=3:6)<=60"),
    "ensemble": ("3", "auto"),
    "option": ("r=5", "variant=paper"),
    "epochs": ("10",),
    "repeats": ("2",),
    "trials": ("3",),
    "trial": ("1",),
    "budget": ("30m",),
    "trial_timeout": ("5s",),
    "trial_memory": ("1GB",),
    "workers": ("2",),
    "cache_budget": ("1GB",),
    "task_runs": ("misses",),
    "input": ("stored",),
    "format": ("table", "events"),
    "out": ("out.csv", "out.parquet", "no/such/folder/out.csv", "folder"),
    "file": ("model.pkl", "folder"),
    "curves": ("table.csv",),
    "key": ("0", "a", ""),
    "part": ("train", "estimator"),
    "size": ("1GB", "0B", "100KB"),
    "shell": ("bash", "zsh"),
    "step": ("fit model",),
    "sort": ("size",),
    "limit": ("1",),
}
"""By the name of a parameter: values of some sense."""
_NEEDED = {"data": ("--target", "target", "--space", "small")}
"""Options that go with an argument more often than not."""


def _commands() -> dict[tuple[str, ...], click.Command]:
    """Every command by the words that call it."""
    found: dict[tuple[str, ...], click.Command] = {}

    def look(group: click.Group, words: tuple[str, ...]) -> None:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                look(command, (*words, name))
            else:
                found[*words, name] = command

    look(main, ())
    return found


_COMMANDS = _commands()


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, ...]:
    """The words of a command, its options before and after its arguments."""
    words = draw(st.sampled_from(sorted(_COMMANDS)))
    parameters = _COMMANDS[words].params
    line = []
    for parameter in parameters:
        if isinstance(parameter, click.Argument) or parameter.required:
            line.append(_given(draw, parameter))
            line.append(draw(st.sampled_from((_NEEDED.get(parameter.name or "", ()), ()))))
    free = [p for p in parameters if isinstance(p, click.Option) and not p.required]
    chosen = draw(st.lists(st.sampled_from(free), max_size=4)) if free else ()
    line += [_given(draw, option) for option in chosen]
    junk = draw(st.lists(texts(), max_size=1)) if draw(st.integers(0, 7)) == 7 else []
    line = [*draw(st.permutations(line)), junk]
    return (*words, *(word for given in line for word in given))


def _given(draw: st.DrawFn, parameter: click.Parameter) -> tuple[str, ...]:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return (parameter.opts[0],)
    usual = st.sampled_from(_USUAL.get(parameter.name or "", ("x",)))
    value = draw(usual | usual | texts())
    if isinstance(parameter, click.Argument):
        return (value,)
    return draw(st.sampled_from(((parameter.opts[0], value), (f"{parameter.opts[0]}={value}",))))


def check(ground: Ground, line: tuple[str, ...]) -> bool:
    """Run a command; whether it was accepted."""
    with ground.case() as folder, without_flows(), pytest.MonkeyPatch.context() as patched:
        for name in ("table.csv", "events.csv", "labels.csv"):
            (folder / name).symlink_to(ground.folder / name)
        (folder / "folder").mkdir()
        command = ground.shared_home()
        store = command.home / "store"
        before, studies = files_in(store), studies_in(store)
        patched.setenv("PREFECT_TUNE_OUTAGE_SECONDS", "1")
        done = command(*line)
        assert done.exit_code in _EXPECTED, done.exit_code
        said = done.stdout + done.stderr
        assert "Traceback" not in said
        assert SECRET not in said, "a password is shown"
        parts = [name for name in files_in(folder) if name.endswith(".part")]
        assert not parts, parts
        if done.exit_code == 0:
            if (files_in(store), studies_in(store)) != (before, studies):
                ground.renew_home()
            return True
        check_message(done.stderr or done.stdout)
        if line[:2] != ("artifacts", "verify"):
            assert files_in(store) == before, "refused, and yet the store has changed"
            assert studies_in(store) == studies
        return False


@contextmanager
def without_flows() -> Iterator[None]:
    """Let commands prepare a flow, and end where it would start."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (run, compare):
            patched.setattr(module, "run_flow", _prepared_only)
        patched.setattr(serve, "serve_deployments", _served)
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _prepared_only(prepare: Any, *_: Any, **__: Any) -> NoReturn:
    with reported_errors():
        prepare()
    raise SystemExit(0)


def _served(**_: Any) -> None:
    """Serve nothing."""
