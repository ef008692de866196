"""Requests that people make in Prefect by changing the state of a running study's flow run.

If the flow run is suspended or paused, the study ends and can be resumed in Prefect, which starts
the flow run again. If the flow run is cancelled, the study ends. A flow run of a deployment is
cancelled by a signal from its runner or worker, so the study need not react to the cancellation.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import Abort, Pause
from prefect.settings import get_current_settings
from prefect.states import Cancelled

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 3.0
"""Pause between two queries for the state of the flow run."""
_LEAVE_SECONDS = 1.0
_MOVED_ON = frozenset({StateType.SCHEDULED, StateType.PENDING, StateType.CANCELLED})
"""States that show that a flow run no longer belongs to this process."""


class RunRequests:
    """Latest known state of a flow run. If the server does not answer, the study continues."""

    def __init__(self) -> None:
        self._state: State[Any] | None = None
        self._is_deployed = True
        self.is_suspended = self.is_ended = False
        self._left = Event()

    @classmethod
    @contextmanager
    def watched(cls, flow_run_id: UUID) -> Iterator[Self]:
        """Follow the state of a flow run in the background during the `with` block."""
        requests = cls()
        if get_current_settings().api.url is None:
            yield requests
            return
        run = copy_context().run
        thread = Thread(
            target=run, args=(requests._watch, flow_run_id), daemon=True, name="run requests"
        )
        thread.start()
        try:
            yield requests
        finally:
            requests._left.set()
            thread.join(_LEAVE_SECONDS)  # do not wait for an unresponsive server

    @property
    def may_ask(self) -> bool:
        """Whether the search may start further trials."""
        return not (self.is_suspended or self.is_ended)

    def obey(self) -> None:
        """Raise `Pause` if the run was suspended, or `Abort` if it was cancelled or ended.

        Call this method only when no trial is running.
        """
        if self.may_ask:
            return
        if not self._is_deployed and self._state is not None:
            # Without a deployment, nothing else sets the final state of the run.
            flow_run_id = self._state.state_details.flow_run_id
            message = "ended in Prefect; the same command resumes the study"
            try:
                with get_client(sync_client=True) as client:
                    if flow_run_id is not None and not self._state.is_final():
                        client.set_flow_run_state(
                            flow_run_id, Cancelled(message=message), force=True
                        )
            except Exception as error:
                _LOGGER.warning(f"the flow run could not be set to Cancelled: {error}")
        elif not self.is_ended:
            raise Pause("the flow run was suspended", state=self._state)
        raise Abort("the flow run was ended in Prefect")

    def note(self, run: FlowRun) -> None:
        """Derive requests from the state of the flow run on the server."""
        state = run.state
        if state is None:
            return
        self._state, self._is_deployed = state, run.deployment_id is not None
        is_cancelling = state.is_cancelling() and not self._is_deployed
        if state.is_paused():
            self.is_suspended = True
        elif self.is_suspended or is_cancelling or state.type in _MOVED_ON:
            self.is_ended = True

    def _watch(self, flow_run_id: UUID) -> None:
        while not self._left.is_set():
            try:
                with get_client(sync_client=True) as client:
                    while not self._left.is_set():
                        self.note(client.read_flow_run(flow_run_id))
                        self._left.wait(_LOOK_SECONDS)
            except Exception as error:  # a study does not depend on its server
                _LOGGER.debug(f"the state of flow run {flow_run_id} is unknown: {error}")
                self._left.wait(_LOOK_SECONDS)
