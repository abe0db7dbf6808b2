"""Random schemas, rows and changes for the fuzzers, as SQL that plain DuckDB and a lake both take.

Few distinct values, so that keys meet; NULLs and copies everywhere. Doubles are quarters, whose sums are exact in any
order, so that bags can be compared without tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

Columns = dict[str, str]
Schema = dict[str, Columns]
TYPES = ("INTEGER", "BIGINT", "DECIMAL(10,2)", "VARCHAR", "DATE", "BOOLEAN", "TIMESTAMP", "DOUBLE", "BIGINT[]")
WEIGHTS = (5, 5, 3, 4, 2, 1, 2, 1, 2)
KEYS = ("INTEGER", "INTEGER", "BIGINT", "VARCHAR", "DECIMAL(10,2)")


def schema(rng: Random) -> Schema:
    """2 to 4 tables of 2 to 5 columns; each has a key ``k`` to join by, mostly of one type."""
    key = rng.choice(KEYS)
    tables: Schema = {}
    for table in ("r", "s", "u", "w")[: rng.randrange(2, 5)]:
        more = rng.choices(TYPES, WEIGHTS, k=rng.randrange(1, 5))
        columns = {"k": key if rng.random() < 0.8 else rng.choice(KEYS)}
        for number, type_ in enumerate(more):
            own = rng.random() < 0.5  # other names are those of other tables, too
            columns[f"{table}{number}" if own else f"v{number}"] = type_
        tables[table] = columns
    return tables


def literal(rng: Random, type_: str, nulls: float = 0.15) -> str:
    """A value as SQL."""
    if rng.random() < nulls:
        return "NULL"
    match type_:
        case "INTEGER":
            return str(rng.randrange(4))
        case "BIGINT":
            return str(rng.randrange(-1, 6))
        case "DECIMAL(10,2)":
            return f"{rng.randrange(12) / 4:.2f}"
        case "VARCHAR":
            return rng.choice(["'x'", "'y'", "'z'", "'Xy'", "''", "'1'"])
        case "DATE":
            return f"DATE '2026-01-0{rng.randrange(1, 7)}'"
        case "BOOLEAN":
            return rng.choice(["TRUE", "FALSE"])
        case "TIMESTAMP":
            return f"TIMESTAMP '2026-01-0{rng.randrange(1, 7)} {rng.choice(['00', '06', '18'])}:00:00'"
        case "DOUBLE":
            return f"{rng.randrange(16) / 4}::DOUBLE"
    items = ", ".join(literal(rng, "BIGINT") for _ in range(rng.randrange(3)))
    return f"[{items}]::BIGINT[]"


def row(rng: Random, columns: Columns) -> str:
    return f"({', '.join(literal(rng, type_) for type_ in columns.values())})"


def created(schema: Schema, prefix: str = "") -> Iterator[str]:
    for table, columns in schema.items():
        yield f"CREATE TABLE {prefix}{table} ({', '.join(f'{name} {type_}' for name, type_ in columns.items())})"


def inserted(rng: Random, name: str, columns: Columns, count: int) -> str:
    return f"INSERT INTO {name} VALUES {', '.join(row(rng, columns) for _ in range(count))}"


def filled(rng: Random, schema: Schema, prefix: str = "") -> Iterator[str]:
    for table, columns in schema.items():
        if count := rng.choice([0, 4, 7, 7, 10, 10]):
            yield inserted(rng, f"{prefix}{table}", columns, count)


def condition(rng: Random, columns: Columns) -> str:
    """Some rows of a table, by one of its columns."""
    name, type_ = rng.choice([pair for pair in columns.items() if pair[1] != "BIGINT[]"])
    return f"{name} IS NOT DISTINCT FROM {literal(rng, type_)}"


def changes(rng: Random, schema: Schema, prefix: str = "") -> list[str]:
    """The statements of one interval: some of a few tables, or nothing that shows."""
    return [one for _ in range(rng.randrange(1, 4)) for one in change(rng, schema, prefix)]


def change(rng: Random, schema: Schema, prefix: str = "") -> list[str]:
    table = rng.choice(list(schema))
    columns, name = schema[table], f"{prefix}{table}"
    some = condition(rng, columns)
    column, type_ = rng.choice(list(columns.items()))
    kinds = ["insert", "insert", "delete", "update", "update", "rekey", "copy", "one copy", "replace", "same", "clear"]
    match rng.choices(kinds, [3, 2, 3, 3, 2, 2, 2, 2, 2, 1, 0.4])[0]:
        case "insert":
            return [inserted(rng, name, columns, rng.randrange(1, 4))]
        case "delete":
            return [f"DELETE FROM {name} WHERE {some}"]
        case "update":
            return [f"UPDATE {name} SET {column} = {literal(rng, type_)} WHERE {some}"]
        case "rekey":
            return [f"UPDATE {name} SET k = {literal(rng, columns['k'], 0.5)} WHERE {some}"]
        case "copy":
            return [f"INSERT INTO {name} SELECT * FROM {name} WHERE {some}"]
        case "one copy":
            return [f"DELETE FROM {name} WHERE rowid = (SELECT min(rowid) FROM {name} WHERE {some})"]
        case "replace":
            return [f"DELETE FROM {name} WHERE {some}", inserted(rng, name, columns, 1)]
        case "same":
            return [f"UPDATE {name} SET {column} = {column} WHERE {some}"]
    return [f"DELETE FROM {name}"]
