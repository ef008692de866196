"""A small process that ends workers whose nanny was killed, with all that they have started.

For workers whose parent is the nanny's own process: those that others started, and those of this
machine where the system tells no process of its parent's death (macOS). It reads on its standard
input which workers there are, until that ends.
"""

import os
import subprocess
import sys
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from threading import Lock

import psutil

from prefect_tune.tasks.worker.process_tree import ProcessTree

__all__ = ["GUARD", "Guard", "main"]

_LOOK_SECONDS = 0.1


class Guard:
    """The guard of this process's workers, which runs as long as somebody uses it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_users = 0
        self._watched: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def enter(self) -> None:
        """Become a user."""
        with self._lock:
            self._n_users += 1

    def leave(self) -> None:
        """Stop being a user; the last one stops the guard, and workers stay."""
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._stop()

    def watch(self, pid: int) -> None:
        """End a process and all below it when this process is killed."""
        with self._lock:
            self._watched.add(pid)
            self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Leave a process alone from now on."""
        with self._lock:
            if pid in self._watched:
                self._watched.discard(pid)
                self._tell(f"-{pid}")

    def _tell(self, word: str) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()
            word = "\n".join(f"+{pid}" for pid in self._watched)
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018
        with suppress(OSError):  # it was killed just now, and starts again with the next word
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def _start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def _stop(self) -> None:
        if self._process is not None:
            self._process.communicate("".join(f"-{pid}\n" for pid in self._watched))
        self._watched.clear()
        self._process = None


GUARD = Guard()
"""That of this process."""


def main() -> None:
    """Guard the processes that standard input names until it ends or the parent does."""
    parent, trees, rest = os.getppid(), dict[int, ProcessTree](), b""
    with DefaultSelector() as selector:
        selector.register(sys.stdin, EVENT_READ)
        while os.getppid() == parent:
            if selector.select(_LOOK_SECONDS):
                if not (read := os.read(sys.stdin.fileno(), 4096)):
                    break
                *words, rest = (rest + read).split(b"\n")
                for word in words:
                    _take(trees, word.decode())
            for tree in trees.values():
                tree.look()
    for tree in trees.values():
        tree.end()


def _take(trees: dict[int, ProcessTree], word: str) -> None:
    """Begin to watch a process, or stop it."""
    pid = int(word[1:])
    trees.pop(pid, None)
    if word[0] == "+":
        with suppress(psutil.NoSuchProcess):
            trees[pid] = ProcessTree(pid)


if __name__ == "__main__":
    main()
