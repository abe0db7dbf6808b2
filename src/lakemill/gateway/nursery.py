"""Where executors come from: a small process that has imported what they need and forks one whenever it is told to.

A fork takes milliseconds where a new Python takes half a second, so every query can have a process of its own. The
nursery does everything in one thread and opens no DuckDB; it ends, and all its children with it, when the gateway
closes the control socket. Started by ``gateway/process.py`` with an environment that holds nothing.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

_PAUSE = 0.2
"""How often the dead are looked for, seconds."""


def main() -> None:
    import pyarrow.dataset  # noqa: F401 - DuckDB asks for it when it is given a table

    from lakemill.gateway import executor  # duckdb and pyarrow, once for all

    gc.freeze()  # what is here will never be garbage: a collector that looks at it would copy its pages
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the gateway, which ends us
    children: set[int] = set()
    control.sendall(b'{"ready": true}')
    while True:
        readable, _, _ = select.select([control], [], [], _PAUSE)
        _bury(children)
        if not readable:
            continue
        message, given, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            break
        order = json.loads(message)
        if "kill" in order:
            if order["kill"] in children:  # not buried yet, so the number is still its own
                os.kill(order["kill"], signal.SIGKILL)
            continue
        (handed,) = given
        pid = os.fork()
        if not pid:
            control.close()
            try:
                executor.serve(socket.socket(fileno=handed), order["fork"])
            finally:
                os._exit(0)
        os.close(handed)
        children.add(pid)
        control.sendall(json.dumps({"born": pid}).encode())
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _bury(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


if __name__ == "__main__":
    main()
