"""One query in a process of its own: DuckDB over an excerpt of the catalog, then the process is gone.

It is forked by ``gateway/nursery.py`` and told everything over a socket. It never holds the catalog's address: the
excerpt (``gateway/excerpt.py``) becomes a DuckLake in memory that has the tables of this query and nothing else. User
SQL runs only after the operating system, then DuckDB, have taken everything else away. Imports DuckDB, Arrow and three
modules beside it, so that little is in reach.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from lakemill.gateway import confine, crossing, wire
from lakemill.gateway.wire import Kind

CATALOG = "lake"
_META = f"__ducklake_metadata_{CATALOG}"
_BATCH_ROWS = 8_192  # wide rows must fit into memory so many at a time
_ROWS_AS_SQL = 200
_ASIDE = 1 << 30
"""Beyond what DuckDB counts: Arrow's copies of a batch, what allocators keep, stacks of threads."""


class Refused(Exception):
    """What the executor itself finds wrong; the word before the colon says which error it becomes."""


def serve(sock: socket.socket, config: Mapping[str, Any]) -> None:
    """Wait for one query, answer it, return."""
    try:
        confine.limit(config["memory"] * 3 // 2 + _ASIDE, 4096, 2 * config["temp_bytes"])
        connection = prepare(config)
        # not even the parser sees a user's text before this; what is lacking is told when there is something to run
        confine.confine(config["roots"], [config["temp"]], network=config["network"])
        wire.send(sock, Kind.READY)
        while True:
            kind, payload = wire.receive(sock)
            if kind is Kind.PARSE:
                with _told(sock):
                    wire.send_json(sock, Kind.PARSED, parse(connection, payload.decode()))
            elif kind is Kind.RUN:
                with _told(sock):
                    run(sock, connection, config, wire.decode(payload))
                return
    except wire.Closed:
        return


@contextlib.contextmanager
def _told(sock: socket.socket) -> Any:
    """What goes wrong is told, not raised: nobody reads this process's stderr."""
    try:
        yield
    except (duckdb.Error, Refused, pa.ArrowException, MemoryError, RuntimeError, ValueError, OSError) as error:
        wire.send_json(sock, Kind.FAILED, {"kind": type(error).__name__, "message": str(error)})


# ---------------------------------------------------------------- before any user's SQL
def prepare(config: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """DuckDB with an empty lake in memory; one thread, because those to come must be born confined."""
    connection = duckdb.connect(
        config={
            "allow_unsigned_extensions": True,
            "threads": 1,
            "memory_limit": f"{config['memory']}B",
            "temp_directory": config["temp"],
            "secret_directory": config["temp"],
            "max_temp_directory_size": f"{config['temp_bytes']}B",
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "allow_persistent_secrets": False,
        }
    )
    for name in config["extensions"]:
        connection.execute(f"LOAD {_literal(name)}" if os.sep in name else f"LOAD {name}")
    for statement in config["statements"]:
        connection.execute(statement)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET python_enable_replacements = false")
    connection.execute(f"ATTACH 'ducklake::memory:' AS {CATALOG} (DATA_PATH {_literal(config['temp'] + '/')})")
    connection.execute(f"DELETE FROM {_META}.ducklake_snapshot")
    connection.execute(f"DELETE FROM {_META}.ducklake_schema")
    connection.execute("SET allow_unsigned_extensions = false")
    connection.execute("SET allow_community_extensions = false")
    return connection


def parse(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """What DuckDB's own parser makes of a text: the kinds of its statements, and the tree of a SELECT."""
    kinds = [statement.type.name for statement in connection.extract_statements(text)]
    tree = None
    if kinds == ["SELECT"]:
        options = "skip_null := true, skip_empty := true, skip_default := true"
        row = connection.execute(f"SELECT json_serialize_sql($1, {options})", [text]).fetchone()
        tree = row[0] if row else None
    return {"kinds": kinds, "tree": tree}


def fill(connection: duckdb.DuckDBPyConnection, excerpt: Mapping[str, Any]) -> None:
    """The excerpt's rows into the catalog in memory, and where positions are dated wrongly, the right ones."""
    connection.execute("BEGIN")
    for statement in excerpt["tables"]:
        connection.execute(statement)
    for name, columns in excerpt["rows"].items():
        _insert(connection, f"{_META}.{_quoted(name)}", columns)
    for statement, columns in excerpt["inlined"]:
        arrays = {c: pa.array(values, pa.binary() if kind == "blob" else None) for c, (kind, values) in columns.items()}
        connection.register("inlined_text", pa.table(arrays))
        connection.execute(statement)
        connection.unregister("inlined_text")
    for statement, values in excerpt["positions"]:
        connection.execute(statement, values)
    connection.execute("COMMIT")
    connection.execute(f"USE {CATALOG}")  # loads the catalog, which one thread does faster than two


def _insert(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, list[Any]]) -> None:
    """Few rows are quickest as SQL, many as Arrow."""
    if len(next(iter(columns.values()))) > _ROWS_AS_SQL:
        connection.register("given", pa.table({name: pa.array(values) for name, values in columns.items()}))
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        connection.unregister("given")
        return
    rows = ", ".join(f"({', '.join(map(_value, row))})" for row in zip(*columns.values(), strict=True))
    connection.execute(f"INSERT INTO {table} ({', '.join(map(_quoted, columns))}) VALUES {rows}")


def _value(value: str | int | bool | None) -> str:
    if value is None:
        return "NULL"
    return _literal(value) if isinstance(value, str) else str(value)


# ---------------------------------------------------------------- the user's SQL
def run(
    sock: socket.socket, connection: duckdb.DuckDBPyConnection, config: Mapping[str, Any], job: Mapping[str, Any]
) -> None:
    fill(connection, job["excerpt"])
    lock(connection, config, job)
    threading.Thread(target=_obey, args=(sock, connection), daemon=True).start()
    answer(sock, connection, job)


def lock(connection: duckdb.DuckDBPyConnection, config: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """From here on nothing is in reach but the query's files; first by the operating system, then by DuckDB itself."""
    files: list[str] = job["files"]
    local = [file for file in files if "://" not in file]
    lacking = confine.confine(local, [config["temp"]], network=config["network"] and len(local) < len(files))
    if lacking and config["require"]:
        raise Refused(f"confinement: {'; '.join(lacking)}")
    # threads that start now are born confined
    connection.execute(f"SET threads = {int(config['threads'])}")
    for statement in (
        f"SET disabled_optimizers = {_literal(job['without'])}",
        f"SET allowed_paths = [{', '.join(map(_literal, files))}]",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
        "BEGIN TRANSACTION READ ONLY",
    ):
        connection.execute(statement)


def answer(sock: socket.socket, connection: duckdb.DuckDBPyConnection, job: Mapping[str, Any]) -> None:
    """The rows as they come, cut or refused at their limits."""
    columns = _execute(connection, job["sql"], job["params"])
    described = [(name, str(kind)) for name, kind in columns]
    if (other := crossing.instead(job["bare"], columns)) is not None:
        _execute(connection, other, job["params"])
    reader = connection.to_arrow_reader(_BATCH_ROWS)
    wire.send_json(sock, Kind.COLUMNS, described)
    rows = size = 0
    truncated = False
    for batch in reader:
        if job["cut"] is not None and rows + batch.num_rows > job["cut"]:
            batch, truncated = batch.slice(0, job["cut"] - rows), True
        rows += batch.num_rows
        size += batch.nbytes
        if rows > job["rows"]:
            raise Refused(f"rows: more than {job['rows']} rows")
        if size > job["bytes"]:
            raise Refused(f"bytes: more than {job['bytes']} bytes")
        wire.send(sock, Kind.BATCH, _stream(batch))
        if truncated:
            break
    else:
        if not rows:  # the schema is told in any case
            wire.send(sock, Kind.BATCH, _stream(pa.RecordBatch.from_pylist([], schema=reader.schema)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"rows": rows, "bytes": size, "truncated": truncated, "memory": used.ru_maxrss * 1024}
    wire.send_json(sock, Kind.DONE, told | {"cpu": used.ru_utime + used.ru_stime})


def _execute(connection: duckdb.DuckDBPyConnection, text: str, params: Any) -> list[tuple[str, Any]]:
    """Begin a query; its columns, with DuckDB's types."""
    (statement,) = connection.extract_statements(text)
    if statement.type.name != "SELECT":
        raise Refused(f"statement: {statement.type.name}")
    connection.execute(statement, params) if params else connection.execute(statement)
    return [(name, kind) for name, kind, *_ in connection.description or ()]


def _stream(batch: pa.RecordBatch) -> memoryview:
    """A whole Arrow stream of one batch: dictionaries (ENUM) travel with it."""
    if any(pa.types.is_dictionary(field.type) or field.type.num_fields for field in batch.schema):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return memoryview(sink.getvalue())
    # what it takes is known: no buffer that grows and is copied
    size = pa.ipc.get_record_batch_size(batch) + batch.schema.serialize().size + 64
    room = pa.allocate_buffer(size)
    with pa.FixedSizeBufferWriter(room) as fixed, pa.ipc.new_stream(fixed, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(room)


def _obey(sock: socket.socket, connection: duckdb.DuckDBPyConnection) -> None:
    """Stop when told to; end when nobody is left who could."""
    while True:
        try:
            kind, _ = wire.receive(sock)
        except (wire.Closed, OSError):
            os._exit(0)
        if kind is Kind.CANCEL:
            connection.interrupt()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
