"""A program that starts processes with `multiprocessing` after a search."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from processes import environment, wait_for

FUNCTIONS = """
from pathlib import Path
from time import sleep


def say(word):
    print("said", word, flush=True)


def wait(word):
    try:
        Path(word).touch()
        sleep(1000)
    except KeyboardInterrupt:
        print("interrupted", word, flush=True)
"""
PROGRAM = """
import multiprocessing, os, signal
from pathlib import Path
from time import sleep

from own import say, wait

{search}

for method in ("forkserver", "spawn"):
    context = multiprocessing.get_context(method)
    speaker = context.Process(target=say, args=(method,))
    speaker.start()
    speaker.join()
    waiting = context.Process(target=wait, args=(method,))
    waiting.start()
    while not Path(method).exists():
        sleep(0.01)
    os.kill(waiting.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    waiting.join()
    print("ended", speaker.exitcode, waiting.exitcode, flush=True)
    waiting.kill()
"""


def assert_own_processes_work(search: str, folder: Path) -> list[str]:
    """Run a search in a program without a guard, and use `multiprocessing` after the search.

    Return the lines on standard error.
    """
    home = folder / "home"
    (folder / "own.py").write_text(FUNCTIONS)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(search=search)], cwd=folder, env=environment(home),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    methods = ("forkserver", "spawn")
    said = [line for m in methods for line in (f"said {m}", f"interrupted {m}", "ended 0 0")]
    assert done.stdout.splitlines() == said
    wait_for(lambda: not _processes_of(home))
    return done.stderr.splitlines()


def _processes_of(home: Path) -> list[psutil.Process]:
    """Return processes whose environment names this home."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_TUNE_HOME") == str(home):
                found.append(process)
    return found
