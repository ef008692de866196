"""The loop of a sandbox: a process that runs one call after another and reports on each.

It knows neither Prefect nor Dask. It keeps the data set, the split and the store open between
calls, in the caches of the functions that load them.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from select import POLLHUP, poll
from typing import Any

import psutil

from prefect_tune.storage.notices import noticed_by
from prefect_tune.tasks.sandbox.process_tree import kill_below
from prefect_tune.tasks.sandbox.reports import (
    LOST,
    Loaded,
    Message,
    Noticed,
    Raised,
    Returned,
    reporting_to,
)
from prefect_tune.tasks.sandbox.standard_streams import buffer_lines, flush_streams
from prefect_tune.tasks.sandbox.surroundings import damage, surroundings

Function = Callable[..., Any]
_OURS = ("builtins", "prefect_tune.")
"""Modules whose errors the worker can read."""


def begin(connection: int, output: int) -> None:
    """Become a sandbox: print to a file, run calls, and end with the connection.

    The first message is the worker's folder, import path and environment at this moment.
    """
    with suppress(PermissionError):  # a fresh interpreter leads its session
        os.setsid()  # signals of the terminal are not for calls
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    buffer_lines()
    opened = Connection(connection)
    folder, sys.path[:], environment = pickle.loads(opened.recv_bytes())
    os.environ.clear()
    os.environ.update(environment)
    with suppress(OSError):  # it was deleted
        os.chdir(folder)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    _serve(opened)


def _end_with(connection: int) -> None:
    """End this process, with all that it has started, once its worker is gone."""
    hung_up = poll()
    hung_up.register(connection, POLLHUP)
    while not any(event & POLLHUP for _, event in hung_up.poll()):
        pass
    kill_below(os.getpid())
    os.killpg(0, signal.SIGKILL)


def _serve(connection: Connection) -> None:
    lock, here = threading.Lock(), os.getpid()

    def send(message: Message) -> None:
        if os.getpid() != here:  # a copy that the call has forked
            os._exit(1)
        with lock:
            connection.send_bytes(pickle.dumps(message))

    with noticed_by(lambda notice: send(Noticed(notice))):
        while True:
            try:
                received = connection.recv_bytes()
            except (EOFError, OSError):
                os._exit(LOST)
            ended = _run(received, send)
            flush_streams()
            try:
                if ended is not None:
                    send(ended)
            except OSError:
                os._exit(LOST)
            except Exception as error:  # the value cannot be pickled
                send(Raised(RuntimeError(f"the result cannot be sent: {error}")))


def _run(received: bytes, send: Callable[[Message], None]) -> Returned | Raised | None:
    before = surroundings()

    def reported(message: Message) -> None:
        nonlocal before
        if isinstance(message, Loaded):  # libraries may change the process as they are imported
            before = surroundings()
        send(message)

    try:
        module, name, arguments, is_awaited = pickle.loads(received)
        function: Function = getattr(import_module(module), name)
        if not is_awaited:
            with suppress(Exception):  # the next call meets the same error
                function(**arguments)
            return None
        with reporting_to(reported):
            value = function(**arguments)
    except Exception as error:
        return Raised(_readable(error))
    except BaseException as error:  # user code may raise any
        return Raised(RuntimeError(f"{type(error).__name__}: {error}"))
    try:
        return Returned(value, damage(before, surroundings()))
    except (OSError, psutil.Error):  # no file handle is left
        return Returned(value, "open files")


def _readable(error: Exception) -> Exception:
    """Return an error that the worker can read, which has no module of the user."""
    if type(error).__module__.startswith(_OURS):
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def request(function: Function, arguments: Mapping[str, Any], *, is_awaited: bool = True) -> bytes:
    """Return a call of a module's function as bytes that `_serve` reads.

    A call that nobody awaits reports nothing, not even its end.
    """
    return pickle.dumps((function.__module__, function.__name__, dict(arguments), is_awaited))
