"""Random SQL for one table, from a model of its columns.

``Model`` is what the writer believes about the table; every function draws one statement from it and, for schema
changes, the model as it will be. No statement is run here, and DuckLake appears only by its function names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.fuzz.values import (
    POOLS,
    PROMOTIONS,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Type,
    expression,
    quote,
    random_scalar,
    random_type,
    sql_type,
)


@dataclass(frozen=True, slots=True)
class Model:
    """``columns`` in order; the key column is an integer that predicates use. ``name`` is the one it was made with."""

    name: str
    key: str
    columns: tuple[tuple[str, Type], ...]
    partitioned: str = ""
    inlined: bool = False
    renamed: str | None = None

    @property
    def sql_name(self) -> str:
        return self.renamed or self.name

    @property
    def table(self) -> str:
        return quote(self.sql_name)

    def type_of(self, name: str) -> Type:
        return dict(self.columns)[name]

    def others(self) -> list[str]:
        return [name for name, _ in self.columns if name != self.key]


@dataclass(frozen=True, slots=True)
class Statement:
    """``kind`` is counted in the report; ``model`` is the table afterwards."""

    kind: str
    sql: str
    model: Model
    deletes: bool = False


@dataclass(slots=True)
class Numbers:
    """The next key of a table, shared by all its writers so that most keys are new."""

    next: int = 0

    def take(self, count: int) -> tuple[int, int]:
        start = self.next
        self.next += count
        return start, self.next


def create(name: str, rng: Random, inlined: bool) -> Statement:
    columns: list[tuple[str, Type]] = [("id", Scalar(rng.choice(("INTEGER", "INTEGER", "BIGINT", "SMALLINT"))))]
    for index in range(rng.randint(2, 6)):
        odd = rng.random() < 0.15
        columns.append((f"c{index} {'é' if odd else 'x'}" if odd else f"c{index}", random_type(rng, inlined)))
    if rng.random() < 0.5:
        columns.insert(rng.randint(0, len(columns)), ("ts", Scalar(rng.choice(("TIMESTAMP", "DATE", "TIMESTAMPTZ")))))
    if rng.random() < 0.3:
        rng.shuffle(columns)
    body = ", ".join(f"{quote(n)} {sql_type(t)}{_maybe_default(t, rng, 0.1) if n != 'id' else ''}" for n, t in columns)
    model = Model(name, "id", tuple(columns), inlined=inlined)
    return Statement("create", f"CREATE TABLE {quote(name)} ({body})", model)


def rows(model: Model, rng: Random, start: int, end: int) -> str:
    """A SELECT of new rows in the table's columns."""
    items = ", ".join(
        f"{'i::' + sql_type(t) if n == model.key else expression(t, rng)} AS {quote(n)}" for n, t in model.columns
    )
    return f"SELECT {items} FROM range({start}, {end}) r(i)"


def condition(model: Model, rng: Random, numbers: Numbers) -> str:
    key, top = quote(model.key), max(1, numbers.next)
    match rng.randint(0, 5):
        case 0:
            return f"{key} % {rng.randint(3, 9)} = {rng.randint(0, 2)}"
        case 1:
            low = rng.randrange(top)
            return f"{key} BETWEEN {low} AND {low + rng.randint(0, 15)}"
        case 2:
            return f"{key} IN ({', '.join(str(rng.randrange(top)) for _ in range(rng.randint(1, 4)))})"
        case 3:
            return f"{key} >= {rng.randrange(top)}"
        case 4 if model.others():
            return f"{quote(rng.choice(model.others()))} IS {rng.choice(('', 'NOT '))}NULL AND {key} % 2 = 0"
        case _:
            return f"{key} = {rng.randrange(top)}"


# ---------------------------------------------------------------- data
def insert(model: Model, rng: Random, numbers: Numbers) -> Statement:
    count = rng.choice((rng.randint(1, 6), rng.randint(5, 12), rng.randint(20, 60)))
    start, end = numbers.take(count)
    if rng.random() < 0.1:  # the same keys once more: bags, not sets
        start, end = max(0, start - count // 2), end - count // 2
    if len(model.columns) > 2 and rng.random() < 0.2:  # the left-out column takes its default
        left_out = rng.choice(model.others())
        kept = replace(model, columns=tuple(c for c in model.columns if c[0] != left_out))
        names = ", ".join(quote(n) for n, _ in kept.columns)
        return Statement("insert", f"INSERT INTO {model.table} ({names}) {rows(kept, rng, start, end)}", model)
    return Statement("insert", f"INSERT INTO {model.table} {rows(model, rng, start, end)}", model)


def update(model: Model, rng: Random, numbers: Numbers) -> Statement:
    names = model.others() or [model.key]
    chosen = rng.sample(names, rng.randint(1, min(2, len(names))))
    row = f"{quote(model.key)}::BIGINT"
    sets = ", ".join(
        f"{quote(n)} = {expression(model.type_of(n), rng, row) if n != model.key else row + ' + 1'}" for n in chosen
    )
    return Statement("update", f"UPDATE {model.table} SET {sets} WHERE {condition(model, rng, numbers)}", model, True)


def delete(model: Model, rng: Random, numbers: Numbers) -> Statement:
    return Statement("delete", f"DELETE FROM {model.table} WHERE {condition(model, rng, numbers)}", model, True)


def delete_all(model: Model, rng: Random, numbers: Numbers) -> Statement:
    if rng.random() < 0.5:
        return Statement("truncate", f"TRUNCATE {model.table}", model, True)
    return Statement("delete all", f"DELETE FROM {model.table}", model, True)


def merge(model: Model, rng: Random, numbers: Numbers) -> Statement:
    back, ahead = rng.randint(0, min(12, numbers.next)), rng.randint(0, 8)
    start, end = numbers.next - back, numbers.next + ahead
    numbers.next = end
    key = quote(model.key)
    matched = rng.choice(("UPDATE", "DELETE")) if rng.random() < 0.2 else "UPDATE"
    sql = (
        f"MERGE INTO {model.table} t USING ({rows(model, rng, start, max(end, start + 1))}) s ON t.{key} = s.{key} "
        f"WHEN MATCHED THEN {matched} WHEN NOT MATCHED THEN INSERT"
    )
    return Statement("merge", sql, model, True)


# ---------------------------------------------------------------- shape
def add_column(model: Model, rng: Random, numbers: Numbers) -> Statement:
    gone = [f"c{n}" for n in range(8) if f"c{n}" not in dict(model.columns)]
    name = rng.choice(gone or [f"n{len(model.columns)}"])  # often a name that an older column had
    type_ = random_scalar(rng) if rng.random() < 0.7 else random_type(rng, model.inlined)
    sql = f"ALTER TABLE {model.table} ADD COLUMN {quote(name)} {sql_type(type_)}{_maybe_default(type_, rng, 0.6)}"
    return Statement("add column", sql, replace(model, columns=(*model.columns, (name, type_))))


def drop_column(model: Model, rng: Random, numbers: Numbers) -> Statement | None:
    if len(model.columns) < 3:
        return None
    name = rng.choice(model.others())
    left = tuple(c for c in model.columns if c[0] != name)
    return Statement(
        "drop column", f"ALTER TABLE {model.table} DROP COLUMN {quote(name)}", replace(model, columns=left)
    )


def rename_column(model: Model, rng: Random, numbers: Numbers) -> Statement:
    old = rng.choice([n for n, _ in model.columns])
    names = dict(model.columns)
    new = rng.choice([n for n in (*(f"c{i}" for i in range(8)), "key", "Ünï", "a b") if n not in names])
    columns = tuple((new if n == old else n, t) for n, t in model.columns)
    partitioned = model.partitioned.replace(quote(old), quote(new))
    after = replace(model, columns=columns, key=new if old == model.key else model.key, partitioned=partitioned)
    return Statement("rename column", f"ALTER TABLE {model.table} RENAME COLUMN {quote(old)} TO {quote(new)}", after)


def promote(model: Model, rng: Random, numbers: Numbers) -> Statement | None:
    able = [
        (n, new)
        for n, t in model.columns
        if isinstance(t, Scalar)
        for new in PROMOTIONS.get(t.sql, ())
        if (n != model.key or new in ("INTEGER", "BIGINT"))
        and (quote(n) not in model.partitioned or new not in ("FLOAT", "DOUBLE", "HUGEINT"))
    ]
    if not able:
        return None
    name, new = rng.choice(able)
    columns = tuple((n, Scalar(new) if n == name else t) for n, t in model.columns)
    sql = f"ALTER TABLE {model.table} ALTER COLUMN {quote(name)} SET DATA TYPE {new}"
    return Statement("promote", sql, replace(model, columns=columns))


def rename_table(model: Model, rng: Random, numbers: Numbers) -> Statement:
    new = rng.choice([n for n in (model.name, f"{model.name} ü", f"{model.name}.2") if n != model.sql_name])
    sql = f"ALTER TABLE {model.table} RENAME TO {quote(new)}"
    return Statement("rename table", sql, replace(model, renamed=new))


def set_default(model: Model, rng: Random, numbers: Numbers) -> Statement | None:
    able = [(n, t) for n, t in model.columns if isinstance(t, Scalar) and n != model.key]
    if not able:
        return None
    name, type_ = rng.choice(able)
    value = "NULL" if rng.random() < 0.2 else _default(type_, rng)
    return Statement("set default", f"ALTER TABLE {model.table} ALTER COLUMN {quote(name)} SET DEFAULT {value}", model)


def change_nested(model: Model, rng: Random, numbers: Numbers) -> Statement | None:
    """Add, rename or drop a field of a struct, wherever it sits below lists and maps."""
    places = [(n, path) for n, t in model.columns for path in struct_paths(t)]
    if not places:
        return None
    column, path = rng.choice(places)
    type_ = model.type_of(column)
    struct = _at(type_, path)
    dotted = ".".join(quote(part) for part in (column, *path))
    names = [n for n, _ in struct.fields]
    fresh = [n for n in ("a", "b", "c", "d", "e f") if n not in names]
    what = rng.choice(("add", "add", "rename", "drop" if len(names) > 1 else "add"))
    if what == "add":
        name, inner = rng.choice(fresh), random_scalar(rng, model.inlined)
        changed = Struct((*struct.fields, (name, inner)))
        sql = f"ALTER TABLE {model.table} ADD COLUMN {dotted}.{quote(name)} {sql_type(inner)}"
    elif what == "rename":
        old, new = rng.choice(names), rng.choice(fresh)
        changed = Struct(tuple((new if n == old else n, t) for n, t in struct.fields))
        sql = f"ALTER TABLE {model.table} RENAME COLUMN {dotted}.{quote(old)} TO {quote(new)}"
    else:
        old = rng.choice(names)
        changed = Struct(tuple(f for f in struct.fields if f[0] != old))
        sql = f"ALTER TABLE {model.table} DROP COLUMN {dotted}.{quote(old)}"
    columns = tuple((n, _put(t, path, changed) if n == column else t) for n, t in model.columns)
    return Statement(f"{what} nested field", sql, replace(model, columns=columns))


def partition(model: Model, rng: Random, numbers: Numbers) -> Statement | None:
    if model.partitioned and rng.random() < 0.4:
        return Statement(
            "reset partitions", f"ALTER TABLE {model.table} RESET PARTITIONED BY", replace(model, partitioned="")
        )
    parts = [f"bucket({rng.randint(2, 4)}, {quote(model.key)})"]
    for name, type_ in model.columns:
        if not isinstance(type_, Scalar):
            continue
        if type_.sql in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
            parts += [f"year({quote(name)})", f"year({quote(name)}), month({quote(name)})"]
        elif type_.sql in ("VARCHAR", "BOOLEAN", "DECIMAL(4,1)", "UTINYINT", "DATE", "UUID"):
            parts += [quote(name), quote(name)]
    chosen = rng.choice(parts)
    sql = f"ALTER TABLE {model.table} SET PARTITIONED BY ({chosen})"
    return Statement("set partitions", sql, replace(model, partitioned=chosen))


# ---------------------------------------------------------------- files that somebody else wrote
def give_files(model: Model, rng: Random, numbers: Numbers, folder: Path) -> tuple[str, Statement]:
    """A COPY that writes Parquet outside the lake, and the call that adds it."""
    start, end = numbers.take(rng.randint(5, 40))
    columns = list(model.columns)
    call = ""
    if len(columns) > 2 and rng.random() < 0.3:
        columns.remove(rng.choice([c for c in columns if c[0] != model.key]))
        call += ", allow_missing => true"
    if rng.random() < 0.5:
        rng.shuffle(columns)
    given = replace(model, columns=tuple(columns))
    select = rows(given, rng, start, end)
    if rng.random() < 0.15:
        select = select.replace(" FROM range", ", i AS extra_column FROM range")
        call += ", ignore_extra_columns => true"
    hive = [n for n, t in columns if isinstance(t, Scalar) and t.sql in ("INTEGER", "VARCHAR", "UTINYINT", "BOOLEAN")]
    hive = [n for n in hive if n != model.key]
    path = folder / f"{model.name}-{start}"
    table = f"'lake', '{model.sql_name}'"
    if hive and len(columns) > 1 and rng.random() < 0.5:
        copy = f"COPY ({select}) TO '{path}' (FORMAT parquet, PARTITION_BY ({quote(rng.choice(hive))}))"
        add = f"CALL ducklake_add_data_files({table}, '{path}/**/*.parquet', hive_partitioning => true{call})"
        return copy, Statement("add hive files", add, model)
    copy = f"COPY ({select}) TO '{path}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
    return copy, Statement("add files", f"CALL ducklake_add_data_files({table}, '{path}.parquet'{call})", model)


DATA: Mapping[Callable[[Model, Random, Numbers], Statement], int] = {
    insert: 30,
    update: 20,
    delete: 25,
    merge: 10,
    delete_all: 2,
}
SHAPE: Mapping[Callable[[Model, Random, Numbers], Statement | None], int] = {
    add_column: 5,
    drop_column: 3,
    rename_column: 3,
    promote: 4,
    set_default: 1,
    change_nested: 4,
    partition: 4,
    rename_table: 1,
}


# ---------------------------------------------------------------- paths inside a type
def struct_paths(type_: Type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    match type_:
        case Struct(fields):
            yield path
            for name, inner in fields:
                yield from struct_paths(inner, (*path, name))
        case ListOf(element):
            yield from struct_paths(element, (*path, "element"))
        case MapOf(_, value):
            yield from struct_paths(value, (*path, "value"))


def _at(type_: Type, path: tuple[str, ...]) -> Struct:
    for part in path:
        match type_:
            case Struct(fields):
                type_ = dict(fields)[part]
            case ListOf(element):
                type_ = element
            case MapOf(_, value):
                type_ = value
    assert isinstance(type_, Struct)
    return type_


def _put(type_: Type, path: tuple[str, ...], new: Type) -> Type:
    if not path:
        return new
    match type_:
        case Struct(fields):
            return Struct(tuple((n, _put(t, path[1:], new) if n == path[0] else t) for n, t in fields))
        case ListOf(element):
            return ListOf(_put(element, path[1:], new))
        case MapOf(key, value):
            return MapOf(key, _put(value, path[1:], new))
    raise AssertionError(path)


def _maybe_default(type_: Type, rng: Random, chance: float) -> str:
    return f" DEFAULT {_default(type_, rng)}" if isinstance(type_, Scalar) and rng.random() < chance else ""


def _default(type_: Scalar, rng: Random) -> str:
    """Literals only: the extension takes no expression as a default."""
    plain = [item for item in POOLS[type_.sql] if "||" not in item]
    return rng.choice(plain)
