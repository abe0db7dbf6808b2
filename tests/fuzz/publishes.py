"""Lakemill's own writes inside a history, each with its truth and with what stock DuckDB would do instead.

Rows come from the same SELECTs that stock inserts use, cast to the types that Spark shows, through a Parquet file of
their own.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any

from lakemill.core.commit import AddFiles, Intent
from lakemill.lake.tables import build_generation
from lakemill.runtime.upkeep import compact
from lakemill.runtime.write import writing
from tests.fuzz import statements
from tests.fuzz.history import Machine
from tests.fuzz.sandbox import fetch, fetch_by_rows
from tests.fuzz.statements import Model
from tests.fuzz.truth import Bag, State, canonical_rows
from tests.fuzz.values import ListOf, MapOf, Scalar, Struct, Type, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake

_SHOWN = {
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "JSON": "VARCHAR",
    "UUID": "VARCHAR",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Publish:
    """``stock``: the statements of the twin; ``expected``: the table's rows afterwards."""

    kind: str
    table: str
    stock: tuple[str, ...]
    expected: Bag
    run: Callable[[], Any]


def draw(it: Machine, lake: Lake, name: str) -> Publish:
    model, state = it.models[name], it.history.truth.states[it.box.head()][name]
    makers = (append, append, delete, delete, merge, merge, replace, compaction, compaction, swap)
    return it.rng.choice(makers)(it, lake, model, state)


def append(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    start, end = it.numbers[model.name].take(it.rng.randint(3, 30))
    select = statements.rows(model, it.rng, start, end)
    expected = state.rows + canonical_rows(state.columns, fetch(it.reader, select))
    sql = f"INSERT INTO {model.table} {select}"
    return Publish(
        "Lakemill append",
        model.name,
        (sql,),
        expected,
        lambda: table(lake, model).append(frame(it, lake, model, select)),
    )


def replace(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    start, end = it.numbers[model.name].take(it.rng.randint(0, 30))
    select = statements.rows(model, it.rng, start, end)
    expected = canonical_rows(state.columns, fetch(it.reader, select))
    stock = ("BEGIN", f"DELETE FROM {model.table}", f"INSERT INTO {model.table} {select}", "COMMIT")
    return Publish(
        "Lakemill replace",
        model.name,
        stock,
        expected,
        lambda: table(lake, model).replace(frame(it, lake, model, select)),
    )


def delete(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    where = statements.condition(model, it.rng, it.numbers[model.name])
    names = ", ".join(quote(column.name) for column in state.columns)
    kept = fetch_by_rows(it.reader, f"SELECT {names} FROM {model.table} WHERE ({where}) IS NOT TRUE")
    expected = canonical_rows(state.columns, kept)
    for_spark = where.replace('"', "`")
    sql = f"DELETE FROM {model.table} WHERE {where}"
    return Publish("Lakemill delete", model.name, (sql,), expected, lambda: table(lake, model).delete(for_spark))


def merge(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    numbers = it.numbers[model.name]
    back, ahead = it.rng.randint(0, min(12, numbers.next)), it.rng.randint(1, 8)
    start, end = numbers.next - back, numbers.next + ahead
    numbers.next = end
    select = statements.rows(model, it.rng, start, end)
    source = canonical_rows(state.columns, fetch(it.reader, select))
    key = [column.name for column in state.columns].index(model.key)
    by_key = {row[key]: row for row in source}
    expected: Bag = Counter()
    for row, count in state.rows.items():
        expected[by_key.get(row[key], row)] += count
    there = {row[key] for row in state.rows}
    expected.update(row for row in source if row[key] not in there)
    on = quote(model.key)
    sql = (
        f"MERGE INTO {model.table} t USING ({select}) s ON t.{on} = s.{on} "
        "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
    )

    def run() -> None:
        before = row_ids(it, model)
        table(lake, model).merge(frame(it, lake, model, select), on=[model.key])
        after = row_ids(it, model)
        if moved := [key for key in before if before[key] != after.get(key)]:
            it.history.failures.append(f"a merge changed the row ids of {model.key} {moved[:5]} in {model.name}")

    return Publish("Lakemill merge", model.name, (sql,), expected, run)


def row_ids(it: Machine, model: Model) -> dict[Any, list[int]]:
    """Key → row ids, as stock shows them; empty where a merge need not keep them."""
    out: dict[Any, list[int]] = defaultdict(list)
    if not any(has_repeated(type_) for _, type_ in model.columns):
        reader = it.box.connect("rowids")
        for key, row_id in fetch(reader, f"SELECT {quote(model.key)}, rowid FROM {model.table} ORDER BY ALL"):
            out[key].append(row_id)
        reader.close()
    return out


def has_repeated(type_: Type) -> bool:
    return isinstance(type_, ListOf | MapOf) or (
        isinstance(type_, Struct) and any(has_repeated(inner) for _, inner in type_.fields)
    )


def compaction(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    sql = f"CALL ducklake_merge_adjacent_files('lake', '{model.sql_name}')"
    return Publish("Lakemill compact", model.name, (sql,), state.rows, lambda: compact(lake, f"main.{model.table}"))


def swap(it: Machine, lake: Lake, model: Model, state: State) -> Publish:
    """A new generation of the table, with the same columns under new ids, takes its name together with its rows."""
    start, end = it.numbers[model.name].take(it.rng.randint(1, 30))
    select = statements.rows(model, it.rng, start, end)
    expected = canonical_rows(state.columns, fetch(it.reader, select))

    def run() -> None:
        old = table(lake, model).describe()
        generation = build_generation(lake.duck, lake.conn, "main", model.sql_name, old.columns)
        updates, requirements = generation.takes_name(old.id)
        with writing(lake.table(f'main."{generation.table.name}"')) as attempt:
            added = AddFiles(generation.table.id, attempt.files(frame(it, lake, model, select)))
            lake.publisher.publish(Intent(uuid.uuid4(), (added, *updates), requirements, author="fuzz"))
        it.models[model.name] = replace_fields(model, partitioned="")

    sql = f"CREATE OR REPLACE TABLE {model.table} AS {select}"
    return Publish("Lakemill generation", model.name, (sql,), expected, run)


def table(lake: Lake, model: Model) -> Any:
    return lake.table(f"main.{model.table}")


def frame(it: Machine, lake: Lake, model: Model, select: str) -> DataFrame:
    path = it.box.root / "given" / f"{uuid.uuid4()}.parquet"
    casts = ", ".join(f"CAST({quote(n)} AS {shown(t)}) AS {quote(n)}" for n, t in model.columns)
    it.reader.execute(f"COPY (SELECT {casts} FROM ({select})) TO '{path}' (FORMAT parquet)")
    return lake.spark.read.parquet(str(path))


def shown(type_: Type) -> str:
    """The DuckDB type that Spark's form of this type corresponds to."""
    match type_:
        case Scalar(sql, _):
            return _SHOWN.get(sql, sql)
        case Struct(fields):
            return "STRUCT(" + ", ".join(f"{quote(name)} {shown(inner)}" for name, inner in fields) + ")"
        case ListOf(element):
            return f"{shown(element)}[]"
        case MapOf(key, value):
            return f"MAP({shown(key)}, {shown(value)})"
