"""A machine without Landlock and seccomp, as far as this process and its children can tell; then a query there.

`python -m tests.gateway.bare FOLDER require|try`: a filter answers the calls as an old kernel would, for good. Prints
the lines of the log, then the rows or the error.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import sys
from pathlib import Path

from lakemill.errors import LakemillError
from lakemill.gateway import confine
from lakemill.gateway.gate import Gateway
from lakemill.gateway.question import Question
from lakemill.settings import Settings
from lakemill.telemetry.log import configure

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_PERMIT, _ANSWER = 0x7FFF0000, 0x00050000
_PRCTL = {"x86_64": 157, "aarch64": 167}


def old_kernel(machine: str) -> None:
    """No Landlock (ENOSYS), no seccomp (EINVAL) from here on."""
    program = [(_LOAD, 0, 0, 0)]
    for number in (444, 445, 446):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ANSWER | errno.ENOSYS)]
    program += [(_EQUAL, 0, 4, _PRCTL[machine]), (_LOAD, 0, 0, 16)]
    program += [(_EQUAL, 1, 0, 21), (_EQUAL, 0, 1, 22), (_RETURN, 0, 0, _ANSWER | errno.EINVAL)]
    program += [(_RETURN, 0, 0, _PERMIT)]
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(code, len(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    given = struct.pack("@HP", len(program), ctypes.addressof(held))
    assert libc.prctl(22, 2, given, 0, 0) == 0, ctypes.get_errno()


def main() -> None:
    import platform

    folder, wanted = sys.argv[1:]
    old_kernel(platform.machine())
    assert len(confine.lacking()) == 2, confine.lacking()
    configure("console", "info", sys.stdout)
    settings = Settings.load(Path(folder), {"query.confinement": wanted, "duck.threads": 1})
    assert settings.lake.postgres
    try:
        with Gateway(settings, settings.lake.postgres) as gateway:
            with gateway.query(Question("SELECT count(*) AS n FROM t")) as answer:
                print("rows:", answer.table().to_pylist())
            with gateway.query(Question("SELECT * FROM read_text('/etc/hostname')")) as answer:
                print("rows:", answer.table().to_pylist())
    except LakemillError as error:
        print("error:", error.code, error.message)


if __name__ == "__main__":
    main()
