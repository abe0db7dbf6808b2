"""A PostgreSQL wire that can be cut: a proxy on the loopback that loses a COMMIT, or the answer to it, or delays it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Fault = Literal["none", "lose commit", "lose answer", "delay commit"]
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
DELAY = 1.5


class Wire:
    """Set ``fault`` and the next COMMIT meets it; connections after that work again."""

    def __init__(self, dsn: str) -> None:
        parts = conninfo_to_dict(dsn)
        self._host, self._port = str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432)
        self.fault: Fault = "none"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up accept, which a mere close would not
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            server = socket.create_connection((self._host, self._port))
        threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
        with suppress(OSError), client, server:
            while data := client.recv(65536):
                if data == COMMIT and self.fault != "none":
                    self._fail(client, server)
                    break
                server.sendall(data)

    def _fail(self, client: socket.socket, server: socket.socket) -> None:
        fault, self.fault = self.fault, "none"
        client.shutdown(socket.SHUT_RDWR)
        client.close()
        if fault == "delay commit":  # the client is gone, its transaction is still in flight
            time.sleep(DELAY)
        if fault in ("lose answer", "delay commit"):
            server.sendall(COMMIT)
            time.sleep(0.2)

    def _pump(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut_wire(dsn: str) -> Iterator[Wire]:
    wire = Wire(dsn)
    try:
        yield wire
    finally:
        wire.close()
