"""What the operating system lets an executor do: read the files of its query, write its own temporary folder, no more.

Linux only: Landlock for files, seccomp for new programs, other processes and the network, rlimits for the rest. Both
hold for the calling thread and those that it starts, so ``confine`` comes before DuckDB starts its threads and before
any user's SQL. It answers what it could not do; whether that is acceptable is for the caller to say.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _VERSION = 1, 1
_NO_NEW_PRIVS, _DEATH_SIGNAL, _DUMPABLE, _SECCOMP = 38, 1, 4, 22
_GET_SECCOMP = 21
_SIGKILL = 9
_CUT_SHORT = "this kernel's Landlock does not keep files from being cut short"

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1  # what the first version of Landlock knows: files and folders, made, written and removed
_BIND, _CONNECT = 1 << 0, 1 << 1
_SCOPED = 0b11  # abstract sockets of others, signals to others

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom")
_NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
)

_libc = ctypes.CDLL(None, use_errno=True)


def limit(memory: int, files: int, size: int) -> None:
    """Ends of the process itself: address space beyond what it has, open files, size of a file, no core."""
    _lower(resource.RLIMIT_AS, _mapped() + memory)
    _lower(resource.RLIMIT_NOFILE, files)
    _lower(resource.RLIMIT_FSIZE, size)
    _lower(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        _libc.prctl(_DEATH_SIGNAL, _SIGKILL, 0, 0, 0)  # it ends with whoever started it
        _libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # others of the same user can't look into its memory, nor it into /proc/self


def _mapped() -> int:
    """How much address space this process has already: libraries, most of it never touched."""
    try:
        with open("/proc/self/statm") as told:  # noqa: PTH123
            return int(told.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 8 << 30


def _lower(what: int, to: int) -> None:
    _, hard = resource.getrlimit(what)
    to = to if hard == resource.RLIM_INFINITY else min(to, hard)
    resource.setrlimit(what, (to, to))


def lacking() -> tuple[str, ...]:
    """What this machine can't do of it, asked without doing it."""
    if sys.platform != "linux":
        return (f"{sys.platform} has no Landlock",)
    found = []
    abi = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if abi < 3:
        found.append("this kernel has no Landlock" if abi < 1 else _CUT_SHORT)
    if platform.machine() not in _CALLS:
        found.append(f"no list of calls for {platform.machine()}")
    elif _libc.prctl(_GET_SECCOMP, 0, 0, 0, 0) < 0:
        found.append("this kernel has no seccomp")
    return tuple(found)


def confine(read: Iterable[str], write: Sequence[str], *, network: bool) -> tuple[str, ...]:
    """Take from this thread, for ever, all but these files; without ``network`` every new socket too."""
    if sys.platform != "linux":
        return (f"{sys.platform} has no Landlock",)
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    return (*_landlock(read, write, network), *_seccomp(network))


# ---------------------------------------------------------------- files
def _landlock(read: Iterable[str], write: Sequence[str], network: bool) -> tuple[str, ...]:
    abi = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if abi < 1:
        return ("this kernel has no Landlock",)
    handled = _FIRST_ABI | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL if abi >= 5 else 0)
    attributes = struct.pack("=Q", handled)
    if abi >= 4:
        attributes += struct.pack("=Q", 0 if network else _BIND | _CONNECT)
    if abi >= 6:
        attributes += struct.pack("=Q", _SCOPED)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return (f"Landlock: {os.strerror(ctypes.get_errno())}",)
    try:
        for path in (*_own(), *(_NETWORK if network else ())):
            _allow(ruleset, path, _READ_FILE | _READ_DIR | _EXECUTE)
        for path in read:
            _allow(ruleset, path, _READ_FILE)
        for path in write:
            _allow(ruleset, path, handled & ~_EXECUTE & ~_REFER)
        if _libc.syscall(_RESTRICT_SELF, ruleset, 0):
            return (f"Landlock: {os.strerror(ctypes.get_errno())}",)
    finally:
        os.close(ruleset)
    return (_CUT_SHORT,) if abi < 3 else ()


def _own() -> set[str]:
    """Where Python, DuckDB and their libraries are: they may still load a part of themselves."""
    return {*_SYSTEM, *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))}


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there can't be read
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - a thousand files a query
            access &= _READ_FILE | _WRITE_FILE | _EXECUTE | _TRUNCATE
        _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, found), 0)
    finally:
        os.close(found)


# ---------------------------------------------------------------- calls
# By machine: AUDIT_ARCH, then the numbers of the calls that are refused.
_CALLS = {
    "x86_64": (0xC000003E, {"socket": 41, "execve": 59, "execveat": 322, "fork": 57, "vfork": 58, "ptrace": 101,
               "kill": 62, "tkill": 200, "pidfd_open": 434, "pidfd_send_signal": 424, "process_vm_readv": 310,
               "process_vm_writev": 311, "io_uring_setup": 425, "bpf": 321, "mount": 165, "unshare": 272, "setns": 308,
               "keyctl": 250, "userfaultfd": 323, "perf_event_open": 298}),
    "aarch64": (0xC00000B7, {"socket": 198, "execve": 221, "execveat": 281, "ptrace": 117, "kill": 129, "tkill": 130,
                "pidfd_open": 434, "pidfd_send_signal": 424, "process_vm_readv": 270, "process_vm_writev": 271,
                "io_uring_setup": 425, "bpf": 280, "mount": 40, "unshare": 97, "setns": 268, "keyctl": 219,
                "userfaultfd": 282, "perf_event_open": 241}),
}  # fmt: skip
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_CLONE_THREAD = 0x00010000
_LOAD, _EQUAL, _AT_LEAST, _ALL_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_PERMITTED, _REFUSED, _UNKNOWN = (
    0x7FFF0000,
    0x00050000 | 1,
    0x00050000 | 38,
)  # EPERM; ENOSYS, after which libc tries clone
_X32 = 0x40000000


def _seccomp(network: bool) -> tuple[str, ...]:
    known = _CALLS.get(platform.machine())
    if known is None:
        return (f"no list of calls for {platform.machine()}",)
    arch, refused = known
    numbers = [number for name, number in refused.items() if not (network and name == "socket")]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _REFUSED), (_LOAD, 0, 0, 0)]
    program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSED)]
    for number in numbers:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSED)]
    program += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    # a new thread is fine, a new process is not: the flags are the first argument of clone
    program += [(_EQUAL, 0, 3, _CLONE[platform.machine()]), (_LOAD, 0, 0, 16), (_ALL_OF, 1, 0, _CLONE_THREAD)]
    program += [(_RETURN, 0, 0, _REFUSED), (_RETURN, 0, 0, _PERMITTED)]
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(code, len(code))
    given = struct.pack("@HP", len(program), ctypes.addressof(held))
    if _libc.prctl(_SECCOMP, 2, given, 0, 0):
        return (f"seccomp: {os.strerror(ctypes.get_errno())}",)
    return ()
