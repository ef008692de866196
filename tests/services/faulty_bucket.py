"""A bucket behind a proxy that is slow, refuses requests, cuts connections, or is unreachable."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from time import sleep
from urllib.parse import urlsplit

from services import bucket_at, s3_server


class FaultyProxy(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Passes requests to a server, with the fault named by `fault`.

    Attributes:
        fault: For cache files, `slow` or `errors` (403); `away` answers 503 to everything, `cut`
            ends every connection without an answer, `undeletable` answers 403 to every deletion.
        n_faults: Requests for cache files that met a fault.
        n_requests: All requests so far.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.fault = ""
        self.n_faults = self.n_requests = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing, because clients that give up after a fault cut their connections."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        fault, is_of_cache = self.server.fault, "/cache/" in self.path
        is_delete = self.command == "DELETE" or "delete" in self.path.partition("?")[2]
        self.server.n_requests += 1
        self.server.n_faults += bool(fault) and is_of_cache
        if fault == "cut":
            self.close_connection = True
            return
        if fault == "away":
            self.refuse(503)
            return
        if (fault == "errors" and is_of_cache) or (fault == "undeletable" and is_delete):
            self.refuse(403)
            return
        if fault == "slow" and is_of_cache:
            sleep(0.1)
        target = HTTPConnection(self.server.target.hostname, self.server.target.port)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
        target.request(self.command, self.path, body, headers)
        answer = target.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        target.close()

    def refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextmanager
def faulty_bucket() -> Iterator[FaultyProxy]:
    """Yield an empty bucket `bucket` behind a proxy; environment variables name the proxy."""
    with s3_server() as url, FaultyProxy(url) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        with bucket_at(f"http://127.0.0.1:{proxy.server_address[1]}"):
            yield proxy
        proxy.shutdown()
