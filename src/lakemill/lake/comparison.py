"""Whether a moved lake is the lake that it was: every row of its catalog, and what every snapshot reads.

The part of `lake/transfer.py` that judges. It works on one DuckDB connection to which both lakes are attached, asks
DuckDB to compare, and raises at the first difference. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from lakemill.errors import CatalogInconsistent
from lakemill.lake import duck

OLD, NEW, PG = "old_lake", "new_lake", "new_catalog"
OLD_CATALOG = f"__ducklake_metadata_{OLD}"
ROWS_COMPARED = 20_000_000  # reading every old snapshot of a large lake would take days; the newest come first

_READS = """
SELECT p.snapshot_id, s.schema_name, t.table_name,
       coalesce((SELECT sum(f.record_count) FROM {data_file} f
                 WHERE f.table_id = t.table_id AND f.begin_snapshot <= p.snapshot_id
                   AND (f.end_snapshot IS NULL OR f.end_snapshot > p.snapshot_id)), 0)::BIGINT
FROM {snapshot} p
JOIN {table} t ON t.begin_snapshot <= p.snapshot_id AND (t.end_snapshot IS NULL OR t.end_snapshot > p.snapshot_id)
JOIN {schema} s ON s.schema_id = t.schema_id
  AND s.begin_snapshot <= p.snapshot_id AND (s.end_snapshot IS NULL OR s.end_snapshot > p.snapshot_id)
ORDER BY p.snapshot_id DESC, t.table_id
"""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table of the catalog and its columns' DuckDB types; `inlined` ones hold users' values."""

    name: str
    columns: tuple[tuple[str, str], ...]
    inlined: bool = False


def query(text: str, *parts: sql.Composable, **named: sql.Composable) -> str:
    """A statement for DuckDB, whose names are quoted as PostgreSQL's."""
    return sql.SQL(text).format(*parts, **named).as_string(None)


def require_equal_rows(connection: duck.Connection, schema: str, tables: Sequence[CopiedTable]) -> None:
    """The same bag of rows in every table of the catalog."""
    for table in tables:
        ours = sql.Identifier(PG, schema, table.name)
        theirs = sql.Identifier(OLD_CATALOG, table.name)
        kept = sql.SQL("WHERE key IS DISTINCT FROM 'data_path'" if table.name == "ducklake_metadata" else "")
        if table.inlined:
            old = sql.SQL(", ").join(_cast(name, type_) for name, type_ in table.columns)
            new = sql.SQL(", ").join(_loaded(name, type_) for name, type_ in table.columns)
        else:
            described = connection.execute(query("DESCRIBE {}", ours)).fetchall()
            types = {row[0]: row[1] for row in described}
            old = sql.SQL(", ").join(_cast(name, types[name]) for name, _ in table.columns)
            new = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
        statement = query(
            "WITH o AS (SELECT {} FROM {} {}), n AS (SELECT {} FROM {} {}) SELECT"
            " (SELECT count(*) FROM (FROM o EXCEPT ALL FROM n)), (SELECT count(*) FROM (FROM n EXCEPT ALL FROM o))",
            old, theirs, kept, new, ours, kept,
        )  # fmt: skip
        lost, extra = connection.execute(statement).fetchall()[0]
        if lost or extra:
            raise _differs(f"{table.name} has {lost} rows that the copy lacks, and the copy {extra} that it lacks")


def require_equal_reads(connection: duck.Connection) -> tuple[int, int]:
    """The same rows of every table at every snapshot, up to a bound; how many reads there are, and were compared."""
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")  # history is read wrongly with it
    catalog = {
        key: sql.Identifier(OLD_CATALOG, f"ducklake_{key}") for key in ("data_file", "snapshot", "table", "schema")
    }
    reads = connection.execute(query(_READS, **catalog)).fetchall()
    newest = reads[0][0] if reads else 0
    left, compared = ROWS_COMPARED, 0
    for snapshot, schema, name, rows in reads:
        if rows > left and snapshot != newest:
            continue
        left -= rows
        try:
            old = _read(connection, OLD, schema, name, snapshot)
        except duck.DuckError:
            continue  # the extension itself has lost this one: there is nothing to compare with
        new = _read(connection, NEW, schema, name, snapshot)
        if old != new:
            raise _differs(f"{schema}.{name} at snapshot {snapshot} has {old} in the source and {new} in the copy")
        compared += 1
    connection.execute("RESET disabled_optimizers")
    return len(reads), compared


def _read(connection: duck.Connection, lake: str, schema: str, name: str, snapshot: int) -> str:
    """Count and checksum of a table at a snapshot."""
    statement = query(
        "SELECT count(*), sum(hash(r)::HUGEINT) FROM (FROM {} AT (VERSION => {})) r",
        sql.Identifier(lake, schema, name), sql.SQL(str(int(snapshot))),
    )  # fmt: skip
    count, checksum = connection.execute(statement).fetchall()[0]
    return f"{count} rows, checksum {checksum}"


def _cast(name: str, type_: str) -> sql.Composable:
    return sql.SQL("CAST({} AS {})").format(sql.Identifier(name), sql.SQL(type_))


def _loaded(name: str, type_: str) -> sql.Composable:
    """An inlined value of the copy, in its own type again."""
    if type_ in ("VARCHAR", "JSON"):
        return sql.SQL("CAST(decode({}) AS {})").format(sql.Identifier(name), sql.SQL(type_))
    return _cast(name, type_)


def _differs(what: str) -> CatalogInconsistent:
    return CatalogInconsistent(
        f"the copy is not the same: {what}; nothing was moved",
        place="--from",
        remedy="flush the lake's inlined rows first, with DuckDB: CALL ducklake_flush_inlined_data('<lake>')",
    )
