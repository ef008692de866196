"""Words messages for the caller: options on the command line, parameters in Python.

Messages name options, such as `--drop k`, and the command line shows them unchanged. In errors and
notes of a Python call, `for_caller` rewrites options as parameters: `drop=["k"]`. Commands in a
message stay commands.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from prefect_tune.flows.options.declared import COMPARE_OPTIONS, OPTIONS
from prefect_tune.tasks.bad_input import BadInput

_COMMAND = re.compile(r"(`[^`]*`|\bprefect-tune\b[^;,()\n]*)")
"""A command, or text quoted as code."""
_OPTION = re.compile(r"""--([a-z][a-z-]*)(?:[ ]('[^']*'|"[^"]*"|[^\s;,()]*[^\s;,.:()]))?""")
"""An option and the next word, which may be its value."""
_NO_VALUES = re.compile(
    "all|allow|an|and|another|are|as|by|does|each|for|from|gives|goes|has|in|instead|is|its?|keeps|"
    "leaves?|names?|needs|not|of|on|or|says|shows|so|takes?|tha[nt]|the|then|there|to|treats|was|"
    "were|where|which|with|would|--.*"
)
"""Words after an option that are not its value."""
_SWITCHES = frozenset({"drop_missing_target", "no_cache", "race"})
_ALL = {**OPTIONS, **COMPARE_OPTIONS}

_n_commands = 0
"""Number of command-line commands running in this process."""


@contextmanager
def command_line() -> Iterator[None]:
    """Name options in messages as on the command line while the body, a CLI command, runs."""
    global _n_commands  # noqa: PLW0603 - threads of the command are to see it
    _n_commands += 1
    try:
        yield
    finally:
        _n_commands -= 1


def for_caller(text: str) -> str:
    """Return a message in the terms of the caller of this process.

    >>> for_caller("drop the column with --drop k, or take fewer --folds")
    'drop the column with drop=["k"], or take fewer folds'
    """
    if _n_commands:
        return text
    parts = _COMMAND.split(text)
    parts[::2] = [_OPTION.sub(_parameter, part) for part in parts[::2]]
    return "".join(parts)


@contextmanager
def errors_for_caller() -> Iterator[None]:
    """Raise this package's errors from the body in the terms of the caller."""
    try:
        yield
    except Exception as error:
        is_ours = type(error).__module__.startswith(__name__.split(".", 1)[0])
        if is_ours and len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (_error_text(error, error.args[0]),)
        raise


def _error_text(error: Exception, text: str) -> str:
    """Return the text of an error, with the full value of its option."""
    if not isinstance(error, BadInput) or not error.option or _n_commands:
        return for_caller(text)
    given = f"--{error.option}" if error.value is None else f"--{error.option} {error.value}"
    if not text.startswith(f"{given}: "):
        return for_caller(text)
    name = error.option.replace("-", "_")
    written = name if error.value is None else _assignment(name, str(error.value))
    return written + for_caller(text.removeprefix(given))


def _parameter(found: re.Match[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if name.startswith("no_") and name.removeprefix("no_") in _SWITCHES:
        return f"{name.removeprefix('no_')}=False" + (f" {value}" if value else "")
    if name not in _ALL:
        return found[0]  # an option of another program, such as a Dask worker
    if name in _SWITCHES:
        return f"{name}=True" + (f" {value}" if value else "")
    if not value or _NO_VALUES.fullmatch(value):
        after = "" if not value else " " + _OPTION.sub(_parameter, value)
        return name + after
    return _assignment(name, value.strip("'\""))


def _assignment(name: str, value: str) -> str:
    kind, text = _ALL[name].kind, json.dumps(value, ensure_ascii=False)
    if kind in ("whole", "number"):
        return f"{name}={value}"
    if kind == "assignments":
        key, _, assigned = value.partition("=")
        return f"{name}={{{json.dumps(key)}: {assigned}}}"
    return f"{name}=[{text}]" if kind == "texts" else f"{name}={text}"
