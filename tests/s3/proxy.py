"""A small HTTP proxy in front of the S3 server, which makes it slow, busy or full.

It forwards bytes as they are (the Host header too, so that signatures stay valid) and breaks answers as its current
`Faults` say. Faults are set by the test while clients run; every fault is counted, so that a test can tell that
its client really met it. Shares are spread evenly, not drawn: a run repeats.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}


@dataclass(frozen=True, slots=True)
class Faults:
    delay: float = 0.0
    """Seconds before every answer."""
    busy_share: float = 0.0
    """Share of requests that are answered 503 SlowDown."""
    cut_share: float = 0.0
    """Share of requests whose connection is closed without an answer, after the server did its work."""
    full: bool = False
    """Uploads are answered 507, as a server without disk space does."""


class Proxy:
    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.faults = Faults()
        self.met: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    @contextlib.contextmanager
    def broken(self, faults: Faults) -> Iterator[Counter[str]]:
        """Breaks answers as given inside the block; gives the count of faults met in it."""
        self.met, self._asked, self.faults = Counter(), Counter(), faults
        try:
            yield self.met
        finally:
            self.faults = Faults()

    def falls_on(self, kind: str, share: float) -> bool:
        if share <= 0:
            return False
        with self._lock:
            before = int(self._asked[kind] * share)
            self._asked[kind] += 1
            hit = int(self._asked[kind] * share) > before
            self.met[kind] += hit
            return hit

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _refuse(self, status: int, code: str, message: str) -> None:
                text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
                body = b"" if self.command == "HEAD" else text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _serve(self) -> None:
                body = self._body()
                faults = proxy.faults
                if faults.delay:
                    proxy.met["delay"] += 1
                    time.sleep(faults.delay)
                # creating, filling and completing an upload; a bulk delete is a POST too, and frees space
                upload = self.command == "PUT" or (self.command == "POST" and "upload" in self.path)
                if faults.full and upload:
                    proxy.met["full"] += 1
                    return self._refuse(507, "XMinioStorageFull", "Storage backend is full.")
                if proxy.falls_on("busy", faults.busy_share):
                    return self._refuse(503, "SlowDown", "Please reduce your request rate.")
                upstream = http.client.HTTPConnection(str(proxy.upstream.hostname), proxy.upstream.port, timeout=60)
                try:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP | {"expect"}}
                    upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in headers.items():
                        upstream.putheader(name, value)
                    upstream.putheader("Content-Length", str(len(body)))
                    upstream.endheaders(body)
                    answer = upstream.getresponse()
                    content = answer.read()
                    if proxy.falls_on("cut", faults.cut_share):
                        self.close_connection = True
                        return None
                    self.send_response_only(answer.status, answer.reason)
                    for name, value in answer.getheaders():
                        if name.lower() not in HOP_BY_HOP:
                            self.send_header(name, value)
                    length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                    self.send_header("Content-Length", length)
                    self.end_headers()
                    self.wfile.write(content)
                finally:
                    upstream.close()

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:  # a client that gave up on a slow answer
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

        return Handler
