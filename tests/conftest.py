"""What every test may ask for: a PostgreSQL, a fresh database, a lake, a Spark session.

One embedded server (durability off) serves all xdist workers of a run; the first one starts it, the last one removes
it. `LAKEMILL_TEST_POSTGRES` names another server instead. Tests that use `spark` are put into one xdist group, so that
one worker has their JVM; those marked `s3` have a group, and a JVM, of their own, which some long tests share.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakemill.lake import duck
from lakemill.settings import Settings
from lakemill.store.embedded import EmbeddedPostgres
from lakemill.telemetry import log

LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) if sys.platform == "linux" else -1
"""The version of the kernel's Landlock; below 3 it can't confine a query whole (``gateway/confine``)."""
CONFINEMENT = "require" if LANDLOCK >= 3 else "try"
ONE_LAKE = ("accept", "api", "gateway")
"""Folders where the tests of a file share a lake, which takes longer to make than most of them: one worker has it."""
SECOND_JVM = pytest.mark.xdist_group("s3")
"""For long tests that share the JVM of those on S3: the other one's tests take longer than all else together."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook, and would come first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "spark_session"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        on_s3 = item.get_closest_marker("s3")
        if item.get_closest_marker("xdist_group"):
            continue
        if on_s3 or item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("s3" if on_s3 else "spark"))
        elif item.path.parent.name in ONE_LAKE:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """The longest groups first; what needs the jars of S3 before all else in its JVM, which has them from its start."""
    if item.get_closest_marker("s3"):
        return 0
    return 1 if item.get_closest_marker("spark") else 2


# ---------------------------------------------------------------- PostgreSQL
@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """DSN of a PostgreSQL that this run may fill with databases."""
    given = os.environ.get("LAKEMILL_TEST_POSTGRES")
    if given:
        yield given
        return
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    _remove_abandoned(shared)
    users = os.open(shared / "postgres-users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_SH)  # held by every worker; whoever gets it alone is the last
        server = EmbeddedPostgres(shared / "postgres", fast=True)
        yield server.start()
        if _alone(users):
            server.remove()
    finally:
        os.close(users)


def _remove_abandoned(shared: Path) -> None:
    """Servers of earlier runs that were killed before they could stop them."""
    for file in shared.parent.glob("pytest-*/postgres-users.lock"):
        if file.parent.resolve() != shared.resolve():  # `pytest-current` is ourselves
            users = os.open(file, os.O_RDWR)
            try:
                if _alone(users):
                    EmbeddedPostgres(file.parent / "postgres").remove()
            finally:
                os.close(users)


def _alone(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
    """xdist's own fixture, which is not there when xdist is off."""
    return str(getattr(request.config, "workerinput", {}).get("workerid", "master"))


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """DSN of a fresh database, dropped after the test."""
    with new_database(postgres) as dsn:
        yield dsn


@contextmanager
def new_database(server: str) -> Iterator[str]:
    name = f"t_{secrets.token_hex(6)}"
    words = sql.Identifier(name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(words))
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(words))


# ---------------------------------------------------------------- lakes
@dataclass(frozen=True, slots=True)
class TestLake:
    """A lake that exists: its settings, its database, its data path; `duck()` opens a stock DuckDB on it."""

    __test__ = False

    settings: Settings
    dsn: str
    data_path: str

    def duck(self, **options: Any) -> duck.Connection:
        return duck.connect(self.settings, self.dsn, **options)


MakeLake = Callable[..., TestLake]


@pytest.fixture
def lake_root(tmp_path: Path) -> Path:
    """The folder of a lake to be."""
    root = tmp_path / "lake"
    root.mkdir()
    return root


@pytest.fixture
def make_lake(postgres: str, tmp_path: Path) -> Iterator[MakeLake]:
    """Makes lakes: `make_lake(inline=0)`; `flags` are settings, such as ``{"spark.profile": "batch"}``."""
    with make_lakes(postgres, tmp_path) as make:
        yield make


@contextmanager
def make_lakes(server: str, folder: Path) -> Iterator[MakeLake]:
    """The same for fixtures of a wider scope."""
    with ExitStack() as opened:
        numbers = itertools.count(1)

        def make(*, inline: int = 0, flags: dict[str, object] | None = None) -> TestLake:
            dsn = opened.enter_context(new_database(server))
            root = folder / f"lake{next(numbers)}"
            root.mkdir()
            (root / "lakemill.toml").write_text(f"[lake]\npostgres = {dsn!r}\n")
            settings = Settings.load(root, {"duck.threads": 2, "query.confinement": CONFINEMENT, **(flags or {})})
            with duck.connect(settings, dsn, create=True, inline=inline) as connection:
                connection.execute("CALL lake.set_option('data_inlining_row_limit', ?)", [inline])
            return TestLake(settings, dsn, settings.data_path)

        yield make


@pytest.fixture
def lake(make_lake: MakeLake) -> TestLake:
    """A lake without inlining, as Lakemill makes them."""
    return make_lake()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command that ran in this process sent its log to a stream that ends with its test."""
    yield
    root, ours = logging.getLogger(), logging.getLogger(log.LOGGER)
    root.handlers[:] = [found for found in root.handlers if not isinstance(found, log.Handler)]
    ours.setLevel(logging.NOTSET)


# ---------------------------------------------------------------- Spark
@pytest.fixture(scope="session")
def spark_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Any]:
    """The worker's only Spark session."""
    from lakemill.spark import session

    root = tmp_path_factory.mktemp("spark")
    flags = {"spark.master": "local[2]", "spark.conf": {"spark.sql.warehouse.dir": str(root / "warehouse")}}
    if worker_id == "master" and any(item.get_closest_marker("s3") for item in request.session.items):
        flags["lake.data_path"] = "s3://tests/"  # one process for all: the tests on S3 need their jars in this JVM
    yield session.start(Settings.load(root, flags))
    session.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def spark(spark_session: Any) -> Iterator[Any]:
    """The session, with the temporary views that a test made removed after it."""
    yield spark_session
    for table in spark_session.catalog.listTables():
        if table.isTemporary:
            spark_session.catalog.dropTempView(table.name)
