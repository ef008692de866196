"""What a command prepared is taken over by its flow, and by no other."""

import pickle
from concurrent.futures import ThreadPoolExecutor

from prefect_tune.flows.preparation.handover import Handover

GIVEN = {"data": "a.csv", "study": "one", "trials": 3}


def test_it_is_taken_once_by_equal_parameters() -> None:
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN, "prepared"):
        assert handover.take(dict(GIVEN)) == "prepared"
        assert handover.take(dict(GIVEN)) is None


def test_other_parameters_take_nothing() -> None:
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN, "prepared"):
        assert handover.take({**GIVEN, "trials": 4}) is None
        assert handover.take(GIVEN) == "prepared"


def test_nothing_is_left_when_the_flow_was_never_called() -> None:
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN, "prepared"):
        pass
    assert handover.take(GIVEN) is None


def test_threads_have_one_each() -> None:
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN, "mine"), ThreadPoolExecutor(1) as other:
        assert other.submit(handover.take, GIVEN).result() is None
        assert handover.take(GIVEN) == "mine"


def test_it_travels_empty() -> None:
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN, "prepared"):
        assert pickle.loads(pickle.dumps(handover)).take(GIVEN) is None
        assert handover.take(GIVEN) == "prepared"
