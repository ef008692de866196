"""Interrupts that come while a transaction is open: it ends first, and nobody waits for it."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from prefect_tune.storage.database import Database
from prefect_tune.storage.waiting.outage import (
    interruptible,
    is_put_off,
    through_outage,
    uninterrupted,
)


class Interrupted(BaseException):
    pass


def interrupt() -> None:
    raise Interrupted


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Signals raise `Interrupted` as soon as they may."""

    def handle(*_: object) -> None:
        if not is_put_off(interrupt):
            interrupt()

    former = signal.signal(signal.SIGTERM, handle)
    yield
    signal.signal(signal.SIGTERM, former)


def send() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_transaction_that_is_interrupted_is_committed_and_then_the_interrupt_is_raised(
    tmp_path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.sqlite")

    def change() -> None:
        with database.write() as connection:
            connection.execute(text("CREATE TABLE t (x INTEGER)"))
            send()
            connection.execute(text("INSERT INTO t VALUES (1)"))

    with pytest.raises(Interrupted):
        change()
    other = Database(database.url)
    with other.write() as connection:  # nobody holds the lock
        assert connection.execute(text("SELECT x FROM t")).scalar_one() == 1
    for opened in (database, other):
        opened.close()


def test_an_interrupt_outside_is_raised_where_it_comes() -> None:
    went_on = []

    def body() -> None:
        send()
        went_on.append(True)

    with pytest.raises(Interrupted):
        body()
    assert not went_on


def test_the_outermost_body_is_ended_first() -> None:
    done = []

    def body() -> None:
        with uninterrupted():
            with uninterrupted():
                send()
            done.append(True)

    with pytest.raises(Interrupted):
        body()
    assert done
    with uninterrupted():  # and it is raised once
        pass


def waiting_inside() -> None:
    with uninterrupted(), interruptible():
        send()
        pytest.fail("it went on")


def waiting_later() -> None:
    with uninterrupted():
        send()
        with interruptible():
            pytest.fail("it went on")


def waiting_for_a_service() -> None:
    def call() -> None:
        send()
        raise ConnectionError

    with uninterrupted():
        through_outage(call, lambda error: isinstance(error, ConnectionError))


@pytest.mark.parametrize("wait", [waiting_inside, waiting_later, waiting_for_a_service])
def test_a_wait_is_broken_off(wait: Callable[[], None]) -> None:
    with pytest.raises(Interrupted):
        wait()


def test_other_threads_put_nothing_off() -> None:
    inside, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with uninterrupted():
            inside.set()
            may_end.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    with pytest.raises(Interrupted):
        send()
    may_end.set()
    thread.join()
