"""Exceptions that end programs are errors of the algorithm, but for signals in the main thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from prefect_tune.tasks.user_code import ProgramExit, exits_as_errors

ENDS = [SystemExit("I quit"), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


def raised(error: BaseException) -> None:
    with exits_as_errors():
        raise error


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_programs_is_an_error_in_a_thread(error) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(raised, error).exception()
    assert isinstance(found, ProgramExit)
    assert f"raised {type(error).__name__}" in str(found)


def test_in_the_main_thread_signals_stay_what_they_are() -> None:
    with pytest.raises(KeyboardInterrupt):
        raised(KeyboardInterrupt())
    with pytest.raises(ProgramExit, match="SystemExit: I quit, which ends programs"):
        raised(SystemExit("I quit"))
    with pytest.raises(ValueError, match="as it is"):
        raised(ValueError("as it is"))
