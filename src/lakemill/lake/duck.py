"""DuckDB connections: extensions, limits, the S3 secret, the lake attached as `lake`; and what its errors mean.

The only module that imports duckdb. `connect` gives a connection of the caller's own, in UTC, that meets concurrent
writers with patience; `explained` turns an error of DuckDB into one of ours, in one line and without a password. It
knows nothing of tables, files or snapshots.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from psycopg.conninfo import make_conninfo

from lakemill import errors
from lakemill.errors import LakemillError
from lakemill.lake import s3_errors
from lakemill.lake.gone import gone_for_duckdb
from lakemill.settings import Settings, without_password
from lakemill.store import db

LAKE = "lake"
EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs", "sqlite_scanner")
COMMIT_RETRIES = 100  # stock DuckDB gives up after 10, which a busy lake needs in a second

Connection = duckdb.DuckDBPyConnection
DuckError = duckdb.Error


@dataclass(frozen=True, slots=True)
class ExtensionStatus:
    """One extension as `doctor` shows it; `source` is wheel, installed or missing."""

    name: str
    source: str
    version: str = ""
    problem: str = ""


def connect(
    settings: Settings,
    dsn: str,
    *,
    attach: bool = True,
    read_only: bool = False,
    at: int | None = None,
    data_path: str | None = None,
    create: bool = False,
    inline: int | None = None,
) -> Connection:
    """A DuckDB connection with the lake attached as `lake` and in use.

    `create` makes the lake where there is none, at `data_path` (default: the settings'), with rows inlined below
    `inline`; otherwise a missing lake is an error. `at` attaches it as it was at that snapshot. With `attach=False` the
    connection can read Parquet and S3 but knows no lake.
    """
    connection = _open(settings)
    try:
        needed = [*(("ducklake", "postgres_scanner") if attach else ()), *(("httpfs",) if settings.on_s3 else ())]
        _load(connection, needed)
        if settings.on_s3:
            connection.execute(
                s3_secret(settings, chain=not settings.s3.access_key_id and finds_credentials(connection))
            )
            for statement in http_statements(settings):
                connection.execute(statement)
        if attach:
            connection.execute(f"SET ducklake_max_retry_count = {COMMIT_RETRIES}")
            path = (data_path or settings.data_path) if create else data_path
            with explained():
                connection.execute(
                    attach_statement(
                        dsn,
                        settings.lake.catalog_schema,
                        path,
                        at=at,
                        read_only=read_only,
                        create=create,
                        inline=inline,
                    )
                )
                connection.execute(f"USE {LAKE}")
    except BaseException:
        connection.close()
        raise
    return connection


def attach_statement(
    dsn: str,
    catalog_schema: str,
    data_path: str | None = None,
    *,
    at: int | None = None,
    read_only: bool = False,
    create: bool = False,
    inline: int | None = None,
) -> str:
    """The ATTACH with which any DuckDB client opens this lake."""
    options = [f"METADATA_SCHEMA {literal(catalog_schema)}"]
    if data_path is not None:
        options.append(f"DATA_PATH {literal(data_path)}")
    if not create:
        options.append("CREATE_IF_NOT_EXISTS false")
    if inline is not None:
        options.append(f"DATA_INLINING_ROW_LIMIT {int(inline)}")
    if at is not None:
        options.append(f"SNAPSHOT_VERSION {int(at)}")
    if read_only or at is not None:
        options.append("READ_ONLY")
    return f"ATTACH {literal('ducklake:postgres:' + _conninfo(dsn))} AS {LAKE} ({', '.join(options)})"


def attach_postgres_statement(dsn: str, schema: str, name: str) -> str:
    """The ATTACH of a schema of the same PostgreSQL, as tables."""
    return f"ATTACH {literal(_conninfo(dsn))} AS {name} (TYPE postgres, SCHEMA {literal(schema)})"


def _conninfo(dsn: str) -> str:
    """With what a DSN leaves open: which of several hosts, and how long to wait for one that is gone."""
    return make_conninfo("", **db.parameters_of(dsn))


def literal(value: str) -> str:
    """A text as SQL, for the statements that take no parameters."""
    return "'" + value.replace("'", "''") + "'"


def s3_secret(settings: Settings, *, chain: bool = False) -> str:
    """CREATE SECRET for the lake's S3, from the settings; `chain`: with the machine's own credentials."""
    s3 = settings.s3
    words: dict[str, str] = {"TYPE": "s3", "REGION": literal(s3.region), "USE_SSL": "true" if s3.use_ssl else "false"}
    if chain:
        words["PROVIDER"] = "credential_chain"
    words["URL_STYLE"] = literal("path" if s3.path_style else "vhost")
    if s3.endpoint:
        words["ENDPOINT"] = literal(s3.endpoint_host)
    if s3.access_key_id:
        words |= {"KEY_ID": literal(s3.access_key_id), "SECRET": literal(s3.secret_access_key.get_secret_value())}
    if s3.session_token.get_secret_value():
        words["SESSION_TOKEN"] = literal(s3.session_token.get_secret_value())
    if s3.kms_key_id:
        words["KMS_KEY_ID"] = literal(s3.kms_key_id)
    return f"CREATE OR REPLACE SECRET lakemill_s3 ({', '.join(f'{key} {value}' for key, value in words.items())})"


def http_statements(settings: Settings) -> tuple[str, ...]:
    """How patient a connection is with S3."""
    return (
        f"SET http_timeout = {max(1, round(settings.s3.read_timeout.total_seconds()))}",
        f"SET http_retries = {settings.s3.retries}",
        "SET http_retry_backoff = 2",  # the pauses of five retries: 3 s in all, not 34
    )


def _open(settings: Settings) -> Connection:
    config: dict[str, str | bool | int | float | list[str]] = {"allow_unsigned_extensions": True}  # see _load
    if settings.duck.memory_limit:
        config["memory_limit"] = settings.duck.memory_limit
    if settings.duck.threads:
        config["threads"] = settings.duck.threads
    try:
        connection = duckdb.connect(config=config)
    except duckdb.Error as error:
        raise errors.BadSettings(one_line(error), place="duck") from error
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # it would be written into what a command prints
    spill = Path(tempfile.gettempdir()) / f"lakemill-duckdb-{os.geteuid()}"  # else `.tmp` in whatever folder we are in
    connection.execute(f"SET temp_directory = {literal(str(spill))}")
    return connection


# ---------------------------------------------------------------- extensions
def _load(connection: Connection, names: Sequence[str]) -> None:
    """Load the extensions that a connection needs; from here on it takes signed ones only.

    Those from wheels are trusted as DuckDB itself is, which came the same way: to check their signatures would cost
    every connection a quarter of a second.
    """
    wheels = [name for name in names if wheel_file(name) is not None]
    for name in wheels:
        load_extension(connection, name)
    connection.execute("SET allow_unsigned_extensions = false")
    for name in names:
        if name not in wheels:
            load_extension(connection, name)


def load_extension(connection: Connection, name: str) -> str:
    """Load an extension from its wheel, else from what DuckDB has or can fetch; where it came from."""
    file = wheel_file(name)
    if file is not None:
        with explained():
            connection.execute(f"LOAD {literal(str(file))}")
        return "wheel"
    try:
        try:
            connection.execute(f"LOAD {name}")
        except duckdb.Error:
            connection.execute(f"INSTALL {name}")
            connection.execute(f"LOAD {name}")
    except duckdb.Error as error:
        wheel = "duckdb-extension-" + name.replace("_", "-")
        raise errors.MissingPart(
            f"DuckDB's extension {name} is not there: {one_line(error)}",
            remedy=f"install the wheel {wheel}=={duckdb.__version__}, or let DuckDB reach the network to INSTALL it",
        ) from error
    return "installed"


def finds_credentials(connection: Connection) -> bool:
    """Whether DuckDB can use the machine's own credentials (an instance's role); without, it asks as nobody."""
    try:
        load_extension(connection, "aws")
    except errors.MissingPart:
        return False
    return True


def extension_status() -> tuple[ExtensionStatus, ...]:
    """Every extension that Lakemill uses: where it comes from, or why it does not."""
    found = []
    versions = "SELECT extension_name, extension_version FROM duckdb_extensions() WHERE loaded"
    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            try:
                source = load_extension(connection, name)
            except LakemillError as error:
                found.append(ExtensionStatus(name, "missing", problem=error.message))
            else:
                version = dict(connection.execute(versions).fetchall()).get(name, "")
                found.append(ExtensionStatus(name, source, version))
    return tuple(found)


def duckdb_version() -> str:
    return str(duckdb.__version__)


def wheel_file(name: str) -> Path | None:
    """The extension's file where it came as a wheel."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for place in (spec.submodule_search_locations or []) if spec else []:
        file = Path(place) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    return None


# ---------------------------------------------------------------- what errors mean
_MEANINGS: tuple[tuple[str, type[LakemillError], Mapping[str, str]], ...] = (
    (r"Unable to connect to Postgres|server closed the connection|connection to server", errors.StoreUnavailable, {}),
    (
        r"creating a new DuckLake is explicitly disabled",
        errors.NoLake,
        {"message": "there is no lake in this database"},
    ),
    (r"DuckLake catalog version mismatch|Only DuckLake versions", errors.UnsupportedLake, {}),
    (r"does not match existing data path", errors.BadSettings, {"place": "lake.data_path"}),
    (r"No snapshot found", errors.UnknownSnapshot, {}),
    (
        r"Transaction conflict|Failed to commit DuckLake transaction|Exceeded the maximum retry",
        errors.PublishConflict,
        {},
    ),
    (r"Catalog Error: Table with name .* does not exist", errors.UnknownTable, {}),
    (r"Referenced column|does not have a column|column .* does not exist", errors.UnknownColumn, {}),
    (r"Conversion Error|Cannot compare values of type|Unimplemented type for cast", errors.WrongType, {}),
    (r"NoSuchBucket|bucket does not exist", errors.UnknownBucket, {}),
    (r"Permission denied|Read-only file system|HTTP (code )?403", errors.Unwritable, {}),
    (
        r"HTTP|No space left on device|Could not establish connection|Connection error|timed out",
        errors.StorageUnavailable,
        {},
    ),
)


def explain(error: duckdb.Error, *, own: bool = False) -> LakemillError:
    """The error of our own tree that an error of DuckDB means; `SqlFailed` for what is wrong with a statement.

    `own`: it was reading files of the lake, which nobody but Lakemill named.
    """
    text = one_line(error)
    if isinstance(error, duckdb.IOException) and (gone := gone_for_duckdb(error, own=own)):
        return gone
    if isinstance(error, duckdb.HTTPException) and ("s3://" in text or "in region '" in text):
        file = re.search(r"(s3|https?)://[^\s'\"]+", text)
        return s3_errors.explain(text, file[0].rstrip(":") if file else "S3")
    infrastructure = isinstance(error, duckdb.IOException | duckdb.HTTPException | duckdb.ConnectionException)
    for pattern, kind, words in _MEANINGS:
        if kind is errors.StorageUnavailable and not infrastructure:
            continue
        if re.search(pattern, str(error)):
            return kind(words.get("message", text), place=words.get("place"))
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return errors.EngineLost(text, remedy="try again, on a new connection where you hold this one yourself")
    return errors.SqlFailed(text)


@contextmanager
def explained(*, own: bool = False) -> Iterator[None]:
    """Raise errors of DuckDB as our own; for `own` see `explain`."""
    try:
        yield
    except duckdb.Error as error:
        raise explain(error, own=own) from error


_OURS = re.compile(r';? *Did you mean "(?:_lakemill\.|__lakemill_|pg_|duckdb_)[^"]*"\?')
"""A hint at what nobody should read: hidden states, and the engines' own tables."""


def one_line(error: BaseException) -> str:
    """A message of DuckDB for people: one line, no password, no stack, no picture of the statement."""
    text = str(error).split("\n\nStack Trace")[0]
    told = []
    for line in text.splitlines():
        line = line.strip()
        if not line or set(line) == {"^"} or line.startswith(("Is the server running", "For more info, visit")):
            continue
        told.append(line)
    joined = "; ".join(told)
    joined = re.sub(r'Failed to attach DuckLake MetaData "[^"]*" at path \+ "[^"]*?"(?=[A-Z])', "", joined)
    joined = re.sub(r'Unable to connect to Postgres at "(?:[^"\\]|\\.)*": ', "PostgreSQL does not answer: ", joined)
    joined = _OURS.sub("", joined)
    return without_password(joined) or type(error).__name__
