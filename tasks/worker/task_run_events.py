"""Fewer events per task run: one that ends within half a second sends its end alone.

Prefect sends its server every state of a task run, Pending, Running and the last one, which is most
of the cost of short steps, here and on the server. Each event holds all that is shown. So the first
two are held back for half a second, and dropped if the last one comes in that time; a longer step
is seen running, half a second late.

Prefect has no switch for this. The function of its engine that sends the events is wrapped in
worker processes; where a version of Prefect does not have it, nothing changes.
"""

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from prefect import task_engine

__all__ = ["HOLD_SECONDS", "hold_events_of_short_runs"]

HOLD_SECONDS = 0.5
_SENDER = "emit_task_run_state_change_event"


@dataclass(frozen=True, slots=True)
class _Held:
    since: float
    context: Context
    send: Callable[[], Any]


class _Holder:
    """Sender of task runs' events, which holds those of states that are not final."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._held: dict[Any, _Held] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._release, daemon=True, name="held task run events").start()

    def __call__(
        self, task_run: Any, initial_state: Any, validated_state: Any, follows: Any = None
    ) -> Any:
        def send() -> Any:
            return self._send(task_run, initial_state, validated_state, follows)

        if validated_state.is_final():
            with self._lock:
                self._held.pop(task_run.id, None)
            return send()
        held = _Held(monotonic(), copy_context(), send)  # the context names the flow run
        with self._lock:
            self._held[task_run.id] = held
        return None

    def _release(self) -> None:
        while True:
            sleep(HOLD_SECONDS / 4)
            before = monotonic() - HOLD_SECONDS
            with self._lock:
                due = [i for i, held in self._held.items() if held.since < before]
                # Sent under the lock, so that a last event never overtakes them.
                for task_run_id in due:
                    held = self._held.pop(task_run_id)
                    held.context.run(held.send)


def hold_events_of_short_runs() -> bool:
    """Hold events back in this process from now on; return whether that is possible."""
    send = getattr(task_engine, _SENDER, None)
    if send is None:
        return False
    if not isinstance(send, _Holder):
        setattr(task_engine, _SENDER, _Holder(send))
    return True
