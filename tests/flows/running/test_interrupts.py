"""Signals in this process; `tests/deployments/test_interrupts.py` sends signals to commands."""

import signal

import pytest

from prefect_tune.flows.running.interrupts import EndedBySignal, interrupts_taken
from prefect_tune.storage.waiting import deferred_signals


def test_signal_waits_for_a_transaction_and_counts_once_if_sent_twice() -> None:
    heard, done = [], []

    def change() -> None:
        with interrupts_taken(lambda: heard.append(1)), deferred_signals():
            for _ in range(2):  # as by a shell, to the process and to its group
                signal.raise_signal(signal.SIGTERM)
                done.append(1)

    with pytest.raises(EndedBySignal):
        change()
    assert (heard, done) == ([1], [1, 1])
