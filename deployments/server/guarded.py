"""The program of the private server: Prefect's application, which ends when no process uses it.

    python -m prefect_tune.deployments.server.guarded FOLDER PORT

The server must end by itself, because the processes that used the server may have been killed.
"""

import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep

from prefect_tune.deployments.server.process import exclusive, is_unused, kept_file, users_file

_LOOK_SECONDS = 1.0
_STOP_SECONDS = 20.0
"""Seconds that Prefect may take to finish running requests."""


def main() -> None:
    """Run the Prefect server in this process."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    Thread(target=_end_when_unused, args=(folder,), daemon=True, name="users").start()
    gc.disable()  # garbage collection takes a sixth of the start time
    # `prefect server start` does the same after loading Prefect's whole command line.
    import uvicorn  # noqa: PLC0415 - after gc.disable()
    from prefect.server.api.server import create_app  # noqa: PLC0415 - after gc.disable()
    from prefect.settings import get_current_settings  # noqa: PLC0415 - after gc.disable()

    # Prefect may build the UI inside the installation, which other users share.
    app = create_app()
    gc.freeze()
    gc.enable()
    os.umask(0o077)  # private, because the database holds parameters of runs
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level=get_current_settings().server.logging_level.lower(),
    )


def _end_when_unused(folder: Path) -> None:
    while True:
        sleep(_LOOK_SECONDS)
        if not folder.exists():
            _end()
        with (
            suppress(Exception),  # the thread must survive any error
            exclusive(folder),  # no other server starts until this server has ended
            users_file(folder) as users,
        ):
            if not kept_file(folder).exists() and is_unused(users):
                _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(_STOP_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
