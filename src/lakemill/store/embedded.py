"""A PostgreSQL of the lake's own, for everybody who has none: started when needed, left running, reused, stopped.

It lives in one folder (`<lake>/.lakemill/postgres`), listens on a Unix socket in a private folder and, where asked, on
loopback TCP with a password. A server that a command started stays up for the next command and for any DuckDB client
that attached the lake, and outlives its starter's death; `stop()` ends it. Starting and stopping hold a lock on the
folder; the server itself holds a second one for its life, which is how a dead one is told from a living one. Nothing
outside its own folders is touched.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import conninfo, sql

from lakemill.errors import ForeignLock, NoLake, StoreUnavailable, Unwritable
from lakemill.store.binaries import (
    Account,
    account_for,
    find_binaries,
    new_place,
    old_places,
    private_folder,
    reachable,
)

if TYPE_CHECKING:
    from lakemill.settings import Settings

ROLE = "lakemill"
DATABASE = "lakemill"
LOCK_SECONDS = 60.0
START_SECONDS = 120.0
OPTIONS = {"max_connections": "200", "lc_messages": "C", "timezone": "UTC", "log_timezone": "UTC"}
FAST_OPTIONS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """What `doctor` shows of the embedded server."""

    running: bool
    data: Path
    version: str | None = None
    pid: int | None = None
    socket_dir: str | None = None
    port: int = 5432
    tcp: bool = False


def store_dsn(settings: Settings) -> str:
    """The DSN in the settings, or that of the lake's embedded server, started where it does not run."""
    if settings.lake.postgres:
        return settings.lake.postgres
    if not settings.embedded_dir.is_dir():  # `lakemill init` makes it; a wrong folder must not get a server
        raise NoLake(f"there is no lake in {settings.root}")
    return EmbeddedPostgres(settings.embedded_dir).start()


class EmbeddedPostgres:
    """The server of one data folder. `fast` gives up durability and is for tests only."""

    def __init__(self, data_dir: Path | str, *, tcp: bool = False, fast: bool = False) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self.tcp = tcp
        self.fast = fast

    # ------------------------------------------------------------------ what users call
    def start(self) -> str:
        """Make sure that the server runs and answers; the DSN of its database."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unwritable(f"the embedded PostgreSQL needs the folder {self.data_dir}: {error.strerror}") from error
        if (dsn := self._answering()) is not None:
            return dsn
        with self._lock():
            place = self._place(create=True)
            until = time.monotonic() + START_SECONDS
            while True:
                if (server := self._running(place)) is None:
                    server = self._launch(place)
                if self.tcp and not server.tcp:
                    raise ForeignLock(
                        f"the embedded PostgreSQL in {self.data_dir} runs without TCP",
                        remedy="stop it first with `lakemill stop`; its clients lose their connections",
                    )
                try:
                    return self._prepare(server)
                except psycopg.OperationalError as error:  # its postmaster died, its last processes are leaving
                    if time.monotonic() > until:
                        raise StoreUnavailable(
                            f"the embedded PostgreSQL does not answer: {_last(str(error))}"
                        ) from error
                    time.sleep(0.1)

    def _answering(self) -> str | None:
        """The DSN of a server that runs as it should: nobody has to wait for who has the lock, and may be asleep."""
        server = self.status()
        if server.pid is None or self.tcp:  # a password is set under the lock
            return None
        with suppress(psycopg.OperationalError), psycopg.connect(_local(server), connect_timeout=10):
            return _local(server)
        return None

    def stop(self) -> bool:
        """Stop the server cleanly; False when it did not run."""
        if not self.data_dir.is_dir():
            return False
        with self._lock():
            place = self._place(create=False)
            if self._running(place) is None:
                return False
            account = account_for(place / "cluster")
            pg_ctl = self._binaries(place, account) / "bin" / "pg_ctl"
            command = ("stop", "-D", str(place / "cluster"), "-m", "fast", "-w", "-t", str(int(START_SECONDS)))
            done = account.run(pg_ctl, *command, timeout=START_SECONDS + 10)
            if done.returncode != 0 and self._running(place, wait=False) is not None:
                raise StoreUnavailable(
                    f"the embedded PostgreSQL in {self.data_dir} did not stop: {_last(done.stdout + done.stderr)}",
                    remedy="it may have been started in another container: stop it there",
                )
            return True

    def remove(self) -> None:
        """Stop the server and delete its data, its folder included."""
        if self.data_dir.is_dir():
            self.stop()
            shutil.rmtree(self._place(create=False), ignore_errors=True)
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def status(self) -> EmbeddedStatus:
        """Whether it runs, and where. Starts nothing and waits for nobody."""
        place = self._place(create=False)
        running = self._running(place, wait=False) if self.data_dir.is_dir() else None
        return running or EmbeddedStatus(False, place / "cluster", _version(place / "cluster"))

    # ------------------------------------------------------------------ places
    def _place(self, *, create: bool) -> Path:
        """The data folder, or, where the server's account can't get there, a folder elsewhere, noted in `place`.

        A root user's lake below /root is the usual case: its parents are closed to the account without privileges.
        """
        note = self.data_dir / "place"
        if note.exists():
            return Path(note.read_text("utf-8").strip())
        if (self.data_dir / "cluster").exists() or not create:
            return self.data_dir
        account = account_for(self.data_dir / "cluster")
        if account.switch:
            self.data_dir.chmod(0o711)
        awkward = any(letter in str(self.data_dir) for letter in '"$`\\\n')  # pg_ctl would let a shell read them
        if not awkward and account.can_enter(self.data_dir):
            return self.data_dir
        for old in old_places(self.data_dir, account):
            if (old / "cluster" / "postmaster.pid").exists():  # its lake was deleted under a running server
                pg_ctl = self._binaries(old, account) / "bin" / "pg_ctl"
                account.run(pg_ctl, "stop", "-D", old / "cluster", "-m", "fast", "-w", "-t", "10")
        return Path(self._kept("place", lambda: str(new_place(self.data_dir, account))))

    def _binaries(self, place: Path, account: Account) -> Path:
        store = place if place == self.data_dir else place.parent
        return reachable(find_binaries(_version(place / "cluster")), account, store)

    def _open(self, name: str) -> int:
        """Open one of our lock files, making it for the owner of the folder when root got here first."""
        try:
            handle = os.open(self.data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Unwritable(
                f"the embedded PostgreSQL in {self.data_dir} belongs to somebody else: {error.strerror}",
                remedy="run lakemill as the user who made this lake",
            ) from error
        if os.geteuid() == 0 and (owner := self.data_dir.stat()).st_uid != 0:
            os.fchown(handle, owner.st_uid, owner.st_gid)
        return handle

    @contextmanager
    def _lock(self) -> Iterator[None]:
        handle = self._open("lock")
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _flock(handle, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise ForeignLock(
                        f"another process has been starting or stopping the embedded PostgreSQL in {self.data_dir} "
                        f"for {LOCK_SECONDS:.0f} s",
                        remedy="wait for it, or end it",
                    )
                time.sleep(0.05)
            yield
        finally:
            os.close(handle)  # lets go of the lock

    # ------------------------------------------------------------------ the server
    def _initialise(self, place: Path, account: Account) -> None:
        fresh = place / "cluster.new"  # renamed when complete: a half-made cluster is never taken for one
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if account.switch:
            os.chown(fresh, account.uid, account.gid)
        initdb = self._binaries(place, account) / "bin" / "initdb"
        locale = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8")
        auth = ("--auth-local=trust", "--auth-host=scram-sha-256", f"--username={ROLE}")
        done = account.run(initdb, "-D", fresh, *locale, *auth, *(["--no-sync"] if self.fast else []))
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise StoreUnavailable(
                f"the embedded PostgreSQL could not be set up in {place}: {_last(done.stderr)}",
                remedy="check the free space there, or set lake.postgres to a server of your own",
            )
        fresh.rename(place / "cluster")

    def _launch(self, place: Path) -> EmbeddedStatus:
        cluster = place / "cluster"
        account = account_for(cluster)
        if not (cluster / "PG_VERSION").exists():
            self._initialise(place, account)
        folder = private_folder(place / "run", account)
        # Nobody holds the server's lock, so these are left from a crash; PostgreSQL itself would refuse to start when
        # the number in them belongs to some other program by now (a container that was started again).
        for stale in (cluster / "postmaster.pid", *folder.glob(".s.PGSQL.*")):
            stale.unlink(missing_ok=True)
        options = OPTIONS | (FAST_OPTIONS if self.fast else {}) | {"unix_socket_directories": str(folder)}
        options |= {"unix_socket_permissions": "0700", "listen_addresses": "127.0.0.1" if self.tcp else ""}
        options |= {"port": str(self._port()) if self.tcp else "5432"}
        words = shlex.join(word for name, value in options.items() for word in ("-c", f"{name}={value}"))
        command = ("start", "-D", str(cluster), "-l", str(cluster / "server.log"), "-w", "-t", str(int(START_SECONDS)))
        alive = self._open("alive")
        try:
            while not _flock(alive, fcntl.LOCK_EX):  # a `status` of somebody else may hold it for an instant
                time.sleep(0.01)
            pg_ctl = self._binaries(place, account) / "bin" / "pg_ctl"
            done = account.run(pg_ctl, *command, "-o", words, timeout=START_SECONDS + 10, keep=(alive,))
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = "it did not answer in time"
        finally:
            os.close(alive)  # the server has inherited it
        if (running := self._running(place)) is None:
            raise StoreUnavailable(
                f"the embedded PostgreSQL in {self.data_dir} did not start: {_reason(cluster) or _last(said)}",
                remedy=f"look into {cluster / 'server.log'}",
            )
        return running

    def _running(self, place: Path, *, wait: bool = True) -> EmbeddedStatus | None:
        """None when nobody holds the server's lock; else what its postmaster.pid says, once it is ready."""
        cluster = place / "cluster"
        until = time.monotonic() + (START_SECONDS if wait else 0)
        while True:
            alive = self._open("alive")
            try:
                if _flock(alive, fcntl.LOCK_SH):
                    return None
            finally:
                os.close(alive)
            with suppress(FileNotFoundError):
                lines = [line.strip() for line in (cluster / "postmaster.pid").read_text("utf-8").splitlines()]
                if len(lines) >= 8 and lines[7] == "ready":
                    pid, port, folder, address = int(lines[0]), int(lines[3]), lines[4], lines[5]
                    return EmbeddedStatus(True, cluster, _version(cluster), pid, folder, port, bool(address))
            if time.monotonic() >= until:
                if wait:
                    raise StoreUnavailable(f"the embedded PostgreSQL in {self.data_dir} does not get ready")
                return EmbeddedStatus(True, cluster, _version(cluster))
            time.sleep(0.05)

    def _prepare(self, server: EmbeddedStatus) -> str:
        """Our database and, for TCP, the password; the DSN."""
        local = _local(server)
        admin = conninfo.make_conninfo(local, dbname="postgres")
        with psycopg.connect(admin, autocommit=True, connect_timeout=10) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
            if not self.tcp:
                return local
            password = self._kept("password", lambda: secrets.token_urlsafe(24))
            hashed = connection.pgconn.encrypt_password(password.encode(), ROLE.encode(), b"scram-sha-256")
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(ROLE), hashed.decode()))
            return conninfo.make_conninfo(local, host="127.0.0.1", password=password)

    def _port(self) -> int:
        """The port that clients know from last time, unless somebody else has taken it meanwhile."""
        port = int(self._kept("port", lambda: str(_free_port(0))))
        if _free_port(port) != port:
            (self.data_dir / "port").unlink()
            port = int(self._kept("port", lambda: str(_free_port(0))))
        return port

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        """A word kept in a file that only its owner reads; made the first time."""
        file = self.data_dir / name
        if not file.exists():
            fresh = file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            handle = self._open(fresh.name)
            with os.fdopen(handle, "w") as out:
                out.write(make())
            fresh.rename(file)
        return file.read_text("utf-8").strip()


def _local(server: EmbeddedStatus) -> str:
    return conninfo.make_conninfo("", host=server.socket_dir, port=server.port, user=ROLE, dbname=DATABASE)


def _flock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free_port(wanted: int) -> int:
    """`wanted` when it is free, else any free port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _version(cluster: Path) -> str | None:
    try:
        return (cluster / "PG_VERSION").read_text("utf-8").strip()
    except OSError:
        return None


def _reason(cluster: Path) -> str:
    """The last complaint in the server's log."""
    try:
        lines = (cluster / "server.log").read_text("utf-8", "replace").splitlines()[-50:]
    except OSError:
        return ""
    return next(
        (line.partition(": ")[2].strip() for line in reversed(lines) if "FATAL:" in line or "PANIC:" in line), ""
    )


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
