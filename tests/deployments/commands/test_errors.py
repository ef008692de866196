"""Mistakes are told in one message, with exit code 2."""

import httpx
import pytest

from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.server.embedded import ServerFailed
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.storage import StoreRefused
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.usefixtures("server")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing"), "unknown study in the store"),
        (("show", "S"), "Did you mean 's'"),
        (("trials", "nothing"), "unknown study"),
        (("artifacts", "show", "xyz"), "no artifact has a key that begins with 'xyz'"),
        (("artifacts", "prune", "--to", "5"), "a size is a number with its unit"),
        (("artifacts", "ls", "--study", "t"), "unknown study"),
        (("predict", "s", "nowhere.csv"), "there is no file or folder nowhere.csv"),
        (("predict", "s", "DATA", "--out", "no/where.csv"), "no/where.csv cannot be written"),
        (("predict", "s", "OTHER"), "has no column 'a'"),
        (("export", "s", "FOLDER"), "this is a folder; the file must end in .pkl"),
        (("show", "s", "--store", "/no/such/store"), "there is no store at /no/such/store"),
        (("study", "rm", "nothing"), "unknown study"),
        (("retry", "s", "--trial", "0"), "trial 0 of study 's' has not failed"),
        (
            ("run", "DATA", "--target", "target", "--study", "s", "--metric", "auroc"),
            "has --metric error",
        ),
    ],
)
def test_a_mistake_is_told_in_one_message_with_exit_code_2(studied, arguments, message) -> None:
    other = studied.folder / "other.csv"
    other.write_text("x,y\n1,2\n")
    named = {"DATA": studied.data, "OTHER": other, "FOLDER": studied.folder}
    done = studied.run(*(named.get(a, a) for a in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("no such column"), 2, "Error: no such column"),
        (StoreRefused("of another index"), 2, "Error: of another index"),
        (StudyFailed("no trial completed"), 1, "Failed: no trial completed"),
        (ServerFailed("it did not start"), 1, "Failed: it did not start"),
        (httpx.ConnectError("refused"), 1, "Failed: the Prefect server does not answer"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_becomes_a_message_and_an_exit_code(error, code, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended, reported_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(said)


def test_a_server_that_prefect_cannot_reach_is_told_without_its_traceback(capsys) -> None:
    error = RuntimeError("Failed to reach API at http://127.0.0.1:1/api/")
    error.__cause__ = httpx.ConnectError("refused")
    with pytest.raises(SystemExit), reported_errors():
        raise error
    said = capsys.readouterr().err
    assert said.startswith("Failed: the Prefect server does not answer: RuntimeError('Failed to re")


def test_an_error_of_our_own_making_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), reported_errors():
        raise ZeroDivisionError
