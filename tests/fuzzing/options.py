"""Commands, and parameters of the flow `tune`, up to the point where a flow would start."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from typing import Any, NoReturn

import click
import pytest
from flow_studies import prepare_study
from hypothesis import strategies as st
from prefect.exceptions import ParameterTypeError

from fuzzing.ground import Ground, check_message, files_in, leaves_nothing, studies_in
from fuzzing.values import SECRET, documents, texts
from prefect_tune.deployments import serve
from prefect_tune.deployments.cli import compare, run
from prefect_tune.deployments.cli.command import main
from prefect_tune.deployments.cli.errors import reported_errors
from prefect_tune.flows.tune import tune

_DEFAULTS = {name: p.default for name, p in signature(tune.fn).parameters.items()}
_USUAL: Mapping[str, tuple[Any, ...]] = {
    "study": ("flashed", "picky", "flashd"),
    "name": ("flashed", "demo", "small", "healthcare", "flash"),
    "data": ("table.csv", "table.csv", "events.csv", "sklearn:iris"),
    "target": ("target", "count", "a", "color"),
    "labels": ("labels.csv",),
    "test": ("table.csv",),
    "test_size": (0.1, 0.5),
    "folds": (2, 5),
    "group": ("count",),
    "drop": (["a"], ["a", "b", "c", "count", "color"], ["color", "color"]),
    "categorical": (["count"], ["a"]),
    "space": ("small", "flash", "regression", "healthcare"),
    "method": ("flash", "random", "admm", "smac", "tpe", "fabolas", "hyperband", "bapi"),
    "methods": (["random", "tpe"], ["flash:r=5", "flash"]),
    "metric": ("auroc", "f1", "r2", "neg_log_loss", "average_precision"),
    "constraint": (["latency_us<=50"], ["group_gap(count, bins=3:6)<=60"]),
    "ensemble": ("single", "auto", 3),
    "epochs": (10,),
    "option": ({"variant": "paper"}, {"r": 5}, {"eta": 3}),
    "trials": (3,),
    "trial": (1,),
    "budget": ("30m",),
    "trial_timeout": ("1s",),
    "trial_memory": ("1GB",),
    "cache_budget": ("1GB", "0B"),
    "format": ("table", "events", "omop"),
    "out": ("out.csv", "out.parquet", "no/such/folder/out.csv", "folder"),
    "file": ("model.pkl", "folder"),
    "key": ("0", "a", ""),
    "part": ("train", "estimator"),
    "size": ("1GB", "0B"),
}
"""By the name of a parameter: values of some sense."""


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Return parameters of the flow: some usual values, and some arbitrary JSON."""
    names = draw(st.lists(st.sampled_from(sorted(_DEFAULTS)), max_size=5, unique=True))
    given: dict[str, Any] = {"data": "table.csv", "target": "target", "space": "small"}
    for name in names:
        usual = st.sampled_from(_USUAL.get(name, (None,)))
        given[name] = draw(usual | usual | documents())
    return given


def check_parameters(ground: Ground, given: dict[str, Any]) -> None:
    """Prepare a study."""
    with ground.case() as folder, leaves_nothing(folder / "store"):
        (folder / "table.csv").symlink_to(ground.table)
        given = {"store": str(folder / "store"), **given}
        with suppress(ParameterTypeError):
            prepare_study(_DEFAULTS | tune.validate_parameters(given))


def _commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


_COMMANDS: Mapping[tuple[str, ...], click.Command] = dict(_commands(main))
"""Every command by the words that call it."""


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, ...]:
    """Return the words of a command, with options before and after its arguments."""
    words = draw(st.sampled_from(sorted(_COMMANDS)))
    parameters = _COMMANDS[words].params
    needed = [p for p in parameters if isinstance(p, click.Argument) or p.required]
    line = [_given(draw, parameter) for parameter in needed]
    if any(p.name == "data" for p in needed) and draw(st.booleans()):
        line.append(("--target", "target", "--space", "small"))
    free = [p for p in parameters if p not in needed]
    chosen = draw(st.lists(st.sampled_from(free), max_size=4)) if free else ()
    line += [_given(draw, option) for option in chosen]
    if draw(st.integers(0, 7)) == 7:
        line.append((draw(texts()),))
    return (*words, *(word for given in draw(st.permutations(line)) for word in given))


def _given(draw: st.DrawFn, parameter: click.Parameter) -> tuple[str, ...]:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return (parameter.opts[0],)
    usual = st.sampled_from(_USUAL.get(parameter.name or "", ("x",))).map(_word)
    value = draw(usual | usual | texts())
    if isinstance(parameter, click.Argument):
        return (value,)
    return draw(st.sampled_from(((parameter.opts[0], value), (f"{parameter.opts[0]}={value}",))))


def _word(value: Any) -> str:
    """Return a value as a word of the command line."""
    if isinstance(value, dict):
        return "".join(f"{name}={one}" for name, one in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)


def check_command_line(ground: Ground, line: tuple[str, ...]) -> None:
    """Run a command; if it is refused, the store must be unchanged."""
    with ground.case() as folder, without_flows(), pytest.MonkeyPatch.context() as patched:
        for name in ("table.csv", "events.csv", "labels.csv"):
            (folder / name).symlink_to(ground.folder / name)
        (folder / "folder").mkdir()
        command = ground.shared_home()
        store = command.home / "store"
        before = files_in(store), studies_in(store)
        patched.setenv("PREFECT_TUNE_OUTAGE_SECONDS", "1")
        done = command(*line)
        said = done.stdout + done.stderr
        assert done.exit_code in {0, 1, 2}
        assert "Traceback" not in said
        assert SECRET not in said, "a password is shown"
        assert not [name for name in files_in(folder) if name.endswith(".part")]
        after = files_in(store), studies_in(store)
        if done.exit_code:
            check_message(done.stderr or done.stdout)
            assert after == before or line[:2] == ("artifacts", "verify")
        if after != before:
            ground.renew_home()


@contextmanager
def without_flows() -> Iterator[None]:
    """Let commands prepare a flow, and stop where it would start."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (run, compare):
            patched.setattr(module, "run_flow", _prepared_only)
        patched.setattr(serve, "serve_deployments", lambda **_: None)
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _prepared_only(prepare: Any, *_: Any, **__: Any) -> NoReturn:
    with reported_errors():
        prepare()
    raise SystemExit(0)
