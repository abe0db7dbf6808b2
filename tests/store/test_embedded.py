"""The embedded PostgreSQL: starts, is reused, survives its starter, stops; as root and as nobody."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakemill.errors import ForeignLock, MissingPart, StoreUnavailable, Unwritable
from lakemill.store import binaries, embedded
from lakemill.store.embedded import EmbeddedPostgres

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the server to another account")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder; whatever was started in it is gone after the test, its data too."""
    yield tmp_path / "postgres"
    EmbeddedPostgres(tmp_path / "postgres").remove()


@pytest.fixture
def server(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder, fast=True)


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        return row[0] if row else None


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Our code in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run_as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Our code as the user `nobody`, by a Python that this user may run; our own may be closed to it."""
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{own}", f"/usr/local/bin/{own}"):
        for words in ("import psycopg, lakemill.settings", code):
            try:
                done = subprocess.run(
                    [program, "-c", textwrap.dedent(words), *arguments],
                    env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "HOME": "/nonexistent"},
                    user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
                    capture_output=True, text=True, timeout=120, check=False,
                )  # fmt: skip
            except OSError:
                break
            if done.returncode != 0 and words is not code:
                break
        else:
            return done
    pytest.skip("no Python of this version that the user nobody may run")


def test_starts_is_reused_and_stops(server: EmbeddedPostgres) -> None:
    assert not server.status().running
    dsn = server.start()
    assert int(str(ask(dsn, "SHOW server_version_num"))) >= 150000
    assert ask(dsn, "SELECT current_database()") == "lakemill"
    assert ask(dsn, "SHOW lc_messages") == "C"
    first = server.status()
    assert first.running
    assert server.start() == dsn
    assert server.status().pid == first.pid
    assert server.stop()
    assert not server.stop()
    assert not server.status().running


def test_data_survives_a_restart(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.start()) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS a")
    server.stop()
    assert ask(server.start(), "SELECT a FROM t") == 42


def test_many_starters_get_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        dsns = set(pool.map(lambda _: EmbeddedPostgres(folder, fast=True).start(), range(6)))
    assert len(dsns) == 1


def test_is_durable_unless_told_otherwise(folder: Path) -> None:
    assert ask(EmbeddedPostgres(folder).start(), "SHOW fsync") == "on"


def test_outlives_a_starter_that_is_killed(server: EmbeddedPostgres, folder: Path) -> None:
    code = """
        import os, signal, sys
        from lakemill.store.embedded import EmbeddedPostgres
        print(EmbeddedPostgres(sys.argv[1], fast=True).start(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    dead = run_python(code, str(folder))
    assert dead.returncode == -signal.SIGKILL
    assert server.status().running
    assert server.start() == dead.stdout.strip()


def test_starts_again_after_the_server_was_killed(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    dsn = server.start()
    before = server.status().pid
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS a")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert ask(server.start(), "SELECT a FROM t") == 42
    assert server.status().pid != before


def test_a_reused_process_number_is_no_server(server: EmbeddedPostgres) -> None:
    """A container that starts again has the old files, and other programs under the old numbers."""
    server.start()
    file = server.status().data / "postmaster.pid"
    text = file.read_text()
    owner = file.stat()
    server.stop()
    file.write_text(text.replace(text.splitlines()[0], str(os.getpid()), 1))
    os.chown(file, owner.st_uid, owner.st_gid)
    assert not server.status().running
    assert ask(server.start(), "SELECT 1") == 1


def test_a_half_made_cluster_is_made_again(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    cluster = server.status().data
    cluster.rename(cluster.with_name("cluster.new"))
    (cluster.with_name("cluster.new") / "PG_VERSION").unlink()
    assert ask(server.start(), "SELECT 1") == 1


def test_tcp_asks_for_the_password(folder: Path) -> None:
    server = EmbeddedPostgres(folder, tcp=True, fast=True)
    dsn = server.start()
    parts = conninfo_to_dict(dsn)
    assert parts["host"] == "127.0.0.1"
    assert ask(dsn, "SELECT 1") == 1
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(make_conninfo(dsn, password="wrong"))
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    server.stop()
    assert conninfo_to_dict(server.start()) == parts  # clients keep their DSN over a restart


def test_without_tcp_nobody_listens(server: EmbeddedPostgres) -> None:
    dsn = server.start()
    assert ask(dsn, "SHOW listen_addresses") == ""
    socket_dir = Path(str(conninfo_to_dict(dsn)["host"]))
    assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    with pytest.raises(ForeignLock, match="runs without TCP"):
        EmbeddedPostgres(server.data_dir, tcp=True).start()


def test_a_long_path_gets_a_short_socket_folder(tmp_path: Path) -> None:
    account = binaries.account_for(tmp_path / "none")
    folder = binaries.private_folder(tmp_path / ("x" * 100), account)
    assert len(str(folder)) < 90
    assert folder.stat().st_uid == account.uid
    assert binaries.private_folder(tmp_path / ("x" * 100), account) == folder
    folder.chmod(0o755)
    with pytest.raises(Unwritable, match="not a private folder"):
        binaries.private_folder(tmp_path / ("x" * 100), account)
    folder.rmdir()


@pytest.mark.parametrize("name", ["with space", "quote's", "dollar$HOME", "ünïcode", "back`tick"])
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    server = EmbeddedPostgres(tmp_path / name, fast=True)
    try:
        assert ask(server.start(), "SELECT 1") == 1
    finally:
        server.remove()


def test_a_lock_held_for_too_long_is_an_error(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOCK_SECONDS", 0.2)
    server.data_dir.mkdir()
    with server._lock(), pytest.raises(ForeignLock, match="another process has been starting"):
        EmbeddedPostgres(server.data_dir).start()


def test_a_server_that_runs_is_found_while_somebody_has_the_lock_and_sleeps(server: EmbeddedPostgres) -> None:
    """A process that was paused in the middle of a start: all others would wait for it."""
    dsn = server.start()
    with server._lock():
        assert EmbeddedPostgres(server.data_dir).start() == dsn


def test_why_it_did_not_start_is_told(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    with (server.status().data / "postgresql.conf").open("a") as conf:
        conf.write("shared_buffers = 'no size'\n")
    with pytest.raises(StoreUnavailable, match="did not start") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert not server.status().running


def test_a_missing_wheel_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEEL", "no_such_wheel")
    with pytest.raises(MissingPart, match="not installed"):
        EmbeddedPostgres(folder).start()


@pytest.mark.parametrize("stopped_first", [True, False])
def test_a_removed_lake_does_not_come_back(server: EmbeddedPostgres, stopped_first: bool) -> None:
    with psycopg.connect(server.start()) as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS a")
    old = server.status()
    if stopped_first:
        server.stop()
    shutil.rmtree(server.data_dir)
    with psycopg.connect(server.start()) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)
    if old.data.exists() and old.data != server.status().data:
        assert not (old.data / "postmaster.pid").exists()
        shutil.rmtree(old.data.parent)


# ---------------------------------------------------------------- root and others
@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account may enter, unlike pytest's own."""
    folder = Path("/tmp") / f"lakemill-test-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o755)
    yield folder
    EmbeddedPostgres(folder / "pg").remove()
    shutil.rmtree(folder)


@as_root
def test_root_keeps_the_data_in_the_folder_where_it_can(open_folder: Path) -> None:
    server = EmbeddedPostgres(open_folder / "pg", fast=True)
    assert ask(server.start(), "SELECT 1") == 1
    data = server.status().data
    assert data == open_folder / "pg" / "cluster"
    assert data.stat().st_uid != 0


@as_root
def test_root_goes_elsewhere_below_a_closed_folder_and_opens_nothing(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "pg", fast=True)
    assert ask(server.start(), "SELECT 1") == 1
    place = server.status().data.parent
    assert place.parent == Path("/var/lib/lakemill")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    server.remove()
    assert not place.exists()


@as_root
def test_binaries_that_the_account_cannot_reach_are_copied(open_folder: Path) -> None:
    """An environment below /root: the wheel stays as closed as it is."""
    closed = open_folder / "venv"
    closed.mkdir(mode=0o700)
    install = binaries.find_binaries(None)
    shutil.copytree(install, closed / binaries.WHEEL / install.name, symlinks=True)
    shutil.copytree(install.parent.parent / f"{binaries.WHEEL}.libs", closed / f"{binaries.WHEEL}.libs")
    account = binaries.account_for(open_folder / "none")
    copy = binaries.reachable(closed / binaries.WHEEL / install.name, account, open_folder)
    assert copy.is_relative_to(open_folder)
    assert not copy.is_relative_to(closed)
    assert account.run(copy / "bin" / "initdb", "--version").returncode == 0
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert binaries.reachable(closed / binaries.WHEEL / install.name, account, open_folder) == copy


START_AND_STOP = """
    import sys
    from lakemill.store.embedded import EmbeddedPostgres
    server = EmbeddedPostgres(sys.argv[1], fast=True)
    import psycopg
    with psycopg.connect(server.start()) as connection:
        print(connection.execute("SELECT current_database()").fetchone()[0])
    print(server.stop())
"""


@as_root
def test_nobody_can_have_one_too(open_folder: Path) -> None:
    os.chown(open_folder, NOBODY, NOBODY)
    done = run_as_nobody(START_AND_STOP, str(open_folder / "pg"))
    assert done.stdout.split() == ["lakemill", "True"], done.stderr
    # root comes second: the server stays its owner's, and so does everything that root made in the folder
    server = EmbeddedPostgres(open_folder / "pg", fast=True)
    assert ask(server.start(), "SELECT 1") == 1
    assert {path.stat().st_uid for path in (open_folder / "pg").iterdir()} == {NOBODY}
    server.stop()
    again = run_as_nobody(START_AND_STOP, str(open_folder / "pg"))
    assert again.stdout.split() == ["lakemill", "True"], again.stderr


@as_root
def test_another_users_server_is_left_alone(open_folder: Path) -> None:
    EmbeddedPostgres(open_folder / "pg", fast=True).start()
    done = run_as_nobody(START_AND_STOP, str(open_folder / "pg"))
    assert "belongs to somebody else" in done.stderr
