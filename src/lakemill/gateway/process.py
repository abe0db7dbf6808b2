"""The gateway's side of its executors: the nursery that forks them, and one of them from birth to end.

An executor is forked ahead of its query and prepares itself; it parses, runs one query and is gone. Stopping it is
always possible: first by a word, then by a signal that the nursery sends, which alone knows that the number is still
that process's. Nothing here decides what runs or when.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakemill.core.reading import check_kinds, tree_of
from lakemill.errors import EngineLost, LakemillError
from lakemill.gateway import wire
from lakemill.gateway.failure import explained
from lakemill.gateway.wire import Kind

_KEPT = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_FEW_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MALLOC_ARENA_MAX": "2",
}
"""A process that forks should not have others at work, and libraries start some just by being imported."""
_START_SECONDS = 60
_ROOM = 1 << 20
"""How far an executor may be ahead of whoever reads, in bytes; the kernel may allow less."""


class Nursery:
    """The process that forks executors; started when first needed, and again when it is gone."""

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self._config, self._folder = config, folder
        self.roots = frozenset(config["roots"])
        """Folders that executors born from now on can read from, before they know which files."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self) -> Executor:
        """A new executor; it prepares itself while the caller does something else."""
        temp = Path(tempfile.mkdtemp(prefix="query-", dir=self._folder))
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        roots = frozenset(root for root in self.roots if Path(root).is_dir())  # a rule needs a folder that is there
        order = {"fork": {**self._config, "temp": str(temp), "roots": sorted(roots)}}
        with self._lock, theirs:
            try:
                pid = self._born(order, theirs)
            except OSError:
                self._end()  # it is gone: start another, once
                pid = self._born(order, theirs)
        return Executor(ours, pid, temp, roots, self)

    def kill(self, pid: int) -> None:
        with self._lock, suppress(OSError):
            if self._control is not None:
                self._control.sendall(json.dumps({"kill": pid}).encode())

    def close(self) -> None:
        with self._lock:
            self._end()

    def _born(self, order: Mapping[str, Any], handed: socket.socket) -> int:
        control = self._control or self._start()
        socket.send_fds(control, [json.dumps(order).encode()], [handed.fileno()])
        return int(self._told(control)["born"])

    def _start(self) -> socket.socket:
        self._folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | _FEW_THREADS
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lakemill.gateway.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(_START_SECONDS)
        self._control = ours
        self._told(ours)
        return ours

    def _told(self, control: socket.socket) -> dict[str, Any]:
        message = control.recv(1 << 16)
        if not message:
            raise ConnectionResetError("the nursery is gone")
        found: dict[str, Any] = json.loads(message)
        return found

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process.kill()
            self._process.wait()
        self._process = self._control = None


class Executor:
    """One process, one query."""

    def __init__(self, sock: socket.socket, pid: int, temp: Path, roots: frozenset[str], nursery: Nursery) -> None:
        self.pid, self.roots = pid, roots
        self.why: LakemillError | None = None
        """Why it was told to stop."""
        self._sock, self._temp, self._nursery = sock, temp, nursery
        self._sending = threading.Lock()

    def parse(self, text: str, data_path: str) -> dict[str, Any]:
        """DuckDB's tree of one SELECT; anything else is refused."""
        self._send(Kind.PARSE, text.encode())
        kind, payload = self.receive()
        told = wire.decode(payload)
        if kind is Kind.FAILED:
            raise explained(told, text, data_path)
        check_kinds(told["kinds"])
        return tree_of(told["tree"] or "{}")

    def run(self, job: Mapping[str, Any]) -> None:
        self._send(Kind.RUN, wire.encode(job))

    def receive(self) -> tuple[Kind, bytearray]:
        try:
            while True:
                kind, payload = wire.receive(self._sock)
                if kind is not Kind.READY:
                    return kind, payload
        except (wire.Closed, OSError, ValueError) as error:
            raise self.lost() from error

    def lost(self) -> LakemillError:
        """What it means that it answers no more."""
        return self.why or EngineLost(
            "the process that ran the query is gone", remedy="try again; if it happens again, the query needs too much"
        )

    def stop(self, why: LakemillError) -> None:
        """Ask it to stop; the first reason counts."""
        self.why = self.why or why
        with suppress(LakemillError):
            self._send(Kind.CANCEL, b"", wait=0.2)

    def kill(self) -> None:
        """Whatever it is doing, it is gone; whoever reads from it learns so."""
        self._nursery.kill(self.pid)  # also one that has said all: whether it ends by itself is not for it to say
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._sock.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    def _send(self, kind: Kind, payload: bytes, wait: float = -1) -> None:
        if not self._sending.acquire(timeout=wait):
            return  # somebody else is still talking to it: it will be killed
        try:
            wire.send(self._sock, kind, payload)
        except (wire.Closed, OSError) as error:
            raise self.lost() from error
        finally:
            self._sending.release()
