"""Looks at every part that Lakemill stands on, and says what it found, what is wrong and what to do.

Each check is a small function that returns findings and never raises; a part that another one needs is still looked at
when that one is broken. It changes nothing, except that a lake's own embedded PostgreSQL is started to be asked, and
that Spark is started when `deep`.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from lakemill.errors import LakemillError, NoLake
from lakemill.lake import duck
from lakemill.lake.catalog import reading
from lakemill.lake.storage import open_storage
from lakemill.settings import FILE_NAME, Settings, find_file
from lakemill.spark import jars, java
from lakemill.store import binaries, db
from lakemill.store.embedded import store_dsn

OLDEST_PYTHON = (3, 11)
LITTLE_SPACE = 2 * 10**9


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    part: str
    state: State
    found: str
    remedy: str = ""


def examine(folder: Path | None, flags: dict[str, object], *, deep: bool = False) -> Iterator[Finding]:
    """All findings, in the order in which parts need each other."""
    yield _ok("lakemill", f"{metadata.version('lakemill')}, on {platform.platform(terse=True)}")
    yield from _guarded("python", _python)
    settings: Settings | None = None
    try:
        settings = Settings.load(folder, flags)
        file = find_file((folder or Path.cwd()).resolve())
        yield _ok("settings", str(file) if file else f"no {FILE_NAME} here or above; the defaults hold")
    except LakemillError as error:
        yield _wrong("settings", error)
    yield from _guarded("duckdb", _duckdb)
    yield from _guarded("java", _java)
    yield from _guarded("spark", _spark)
    if settings is None:
        return
    known = settings
    if deep:
        yield from _guarded("spark session", lambda: _spark_session(known))
    yield from _guarded("postgresql", lambda: _postgres(known))
    yield from _guarded("s3 jars", lambda: _s3_jars(known))
    yield from _guarded("data path", lambda: _data_path(known))


def _guarded(part: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except LakemillError as error:
        yield _wrong(part, error)
    except Exception as error:  # a doctor who dies of the illness is of no use
        told = " ".join(str(error).split())[:300]
        yield Finding(part, State.WRONG, f"{type(error).__name__}: {told}", "please report this with the message")


def _ok(part: str, found: str) -> Finding:
    return Finding(part, State.OK, found)


def _wrong(part: str, error: LakemillError) -> Finding:
    where = f"{error.place}: " if error.place else ""
    return Finding(part, State.WRONG, f"{where}{error.message.strip()} [{error.code}]", error.remedy)


# ---------------------------------------------------------------- programs
def _python() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        yield Finding("python", State.WRONG, version, "use Python 3.11 or newer")
    else:
        yield _ok("python", f"{version} ({sys.executable})")


def _duckdb() -> Iterator[Finding]:
    yield _ok("duckdb", duck.duckdb_version())
    for extension in duck.extension_status():
        part = f"duckdb {extension.name}"
        if extension.source == "missing":
            wheel = f"duckdb-extension-{extension.name.replace('_', '-')}=={duck.duckdb_version()}"
            cure = f"pip install {wheel}; with a network, DuckDB can INSTALL it by itself"
            yield Finding(part, State.WRONG, extension.problem, cure)
        else:
            yield _ok(part, f"{extension.version or 'loaded'}, from {_SOURCES[extension.source]}")


_SOURCES = {"wheel": "its wheel", "installed": "DuckDB's own folder"}


def _java() -> Iterator[Finding]:
    found = java.find()
    yield _ok("java", f"{found.version}, from {found.source} ({found.program})")


def _spark() -> Iterator[Finding]:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        yield Finding("spark", State.WRONG, "pyspark is not installed", "pip install pyspark==4.1.4")
        return
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < (4, 1) or numbers >= (5, 0):
        yield Finding("spark", State.WRONG, f"pyspark {version}", "install pyspark 4.1 or a later 4.x")
    else:
        yield _ok("spark", f"pyspark {version}")


def _spark_session(settings: Settings) -> Iterator[Finding]:
    from lakemill.spark import session

    spark = session.start(settings)
    count = spark.range(1000).count()
    place = settings.spark.remote or settings.spark.master
    if count == 1000:
        yield _ok("spark session", f"Spark {spark.version} on {place} answers")
    else:
        yield Finding(
            "spark session", State.WRONG, f"Spark on {place} counted {count} of 1000 rows", "check the cluster"
        )


# ---------------------------------------------------------------- the lake
def _postgres(settings: Settings) -> Iterator[Finding]:
    if settings.lake.postgres:
        kind = f"at {db.where(settings.lake.postgres)}"
    else:
        folder = binaries.find_binaries(None)
        kind = f"embedded, binaries in {folder}"
        if other := shutil.which("postgres") or shutil.which("pg_ctl"):
            kind += f" (this machine also has {other}; lake.postgres would point to it)"
        if not settings.embedded_dir.is_dir():
            yield _ok("postgresql", kind)
            yield Finding("lake", State.WARN, f"there is no lake in {settings.root}", NoLake.default_remedy)
            return
    with closing(db.connect(store_dsn(settings), connect_timeout=settings.lake.connect_seconds)) as conn:
        yield _ok("postgresql", f"{conn.info.parameter_status('server_version')}, {kind}")
        try:
            with reading(conn, settings.lake.catalog_schema) as catalog:
                snapshot, data_path = catalog.head().id, catalog.data_path
        except NoLake as error:
            yield Finding("lake", State.WARN, error.message, error.remedy)
            return
    yield _ok("lake", f"DuckLake 1.0 at snapshot {snapshot}, data in {data_path}")
    if data_path != settings.data_path:
        found = f"the settings name the data path {settings.data_path}"
        yield Finding("lake", State.WARN, found, f'set lake.data_path = "{data_path}"')


def _data_path(settings: Settings) -> Iterator[Finding]:
    storage = open_storage(settings.data_path, settings.s3)
    if not settings.on_s3 and not Path(storage.root).is_dir():
        yield Finding("data path", State.WARN, f"{storage.root} is not there yet", "`lakemill init` makes it")
        return
    storage.check_writable()
    if settings.on_s3:
        yield _ok("data path", f"{storage.root} can be written, through {settings.s3.endpoint_url or 'Amazon S3'}")
        return
    free = shutil.disk_usage(storage.root).free
    found = f"{storage.root} can be written, {free / 1e9:.1f} GB free"
    if free < LITTLE_SPACE:
        yield Finding("data path", State.WARN, found, "free some space, or move the lake")
    else:
        yield _ok("data path", found)


def _s3_jars(settings: Settings) -> Iterator[Finding]:
    if settings.spark.remote.startswith("sc://"):
        if settings.on_s3:
            told = "the Spark Connect server must have: " + " ".join(jars.packages())
            yield Finding("s3 jars", State.WARN, told, "start the server with --packages and these names")
        return
    found = jars.located(settings)
    if found is not None:
        where = settings.spark.packages_dir or (jars.cache() if found else "pyspark's own folder")
        yield _ok("s3 jars", f"in {where}")
    elif settings.on_s3:
        yield Finding(
            "s3 jars", State.WARN, f"not here yet: {', '.join(jars.missing(jars.cache()))}", _how_to_get_jars()
        )
    else:
        yield _ok("s3 jars", "not here, and not needed: the data path is not on S3")


def _how_to_get_jars() -> str:
    return (
        "Spark fetches them from Maven at the first use. Without a network: run `lakemill doctor --fetch-s3-jars` on a "
        f"machine that has one, copy {jars.cache()} from there, and set spark.packages_dir to the copy"
    )
