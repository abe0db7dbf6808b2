"""The statements about dynamic tables: text → values, and a definition → text.

Line 1 of a refresh. A script is split at its semicolons; a statement that is not ours comes back as it was written, for
DuckDB. Ours are read by hand, word by word, and refused with the place, what is wrong and what to write. The query
stays text, with its position in the file: ``core/query`` reads it. Nothing is looked up: whether a table exists, and
whether its query can be kept fresh, is asked later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from lakemill.core.definition import DOWNSTREAM, Definition
from lakemill.core.names import QualifiedName, fold, quote
from lakemill.core.position import Position
from lakemill.core.properties import PROPERTIES, change, read_key, read_value, shown
from lakemill.core.statement import (
    Change,
    Create,
    Describe,
    Drop,
    ExplainRefresh,
    IfExists,
    Own,
    PlainSql,
    Refresh,
    Rename,
    Resume,
    Show,
    Statement,
    Suspend,
)
from lakemill.core.tokens import Kind, Reader, statements
from lakemill.errors import BadStatement

_OUR_WORDS = re.compile(r"\b(DYNAMIC|REFRESH)\b", re.IGNORECASE)
_DROPS = re.compile(r"\bDROP\b", re.IGNORECASE)
_QUERY_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "("})


def may_be_ours(script: str) -> bool:
    """Whether a script can hold a statement of ours at all: a long one of others need not be taken apart."""
    return _OUR_WORDS.search(script) is not None


def parse_script(script: str, file: str | None = None) -> Iterator[Statement]:
    """The statements of a script in order; ``file`` is its name in errors."""
    for reader in statements(script, file):
        yield _statement(reader)


def parse_definition(script: str, file: str | None = None) -> Create:
    """The one CREATE DYNAMIC TABLE that a text holds."""
    found = list(parse_script(script, file))
    if len(found) == 1 and isinstance(found[0], Create):
        return found[0]
    place = (found[1 if isinstance(found[0], Create) else 0].at if found else Position()).place(file)
    raise BadStatement("one CREATE DYNAMIC TABLE statement should stand here", remedy=_USAGE["CREATE"], place=place)


def may_drop(script: str) -> bool:
    """Whether a script can hold a DROP TABLE at all."""
    return _DROPS.search(script) is not None


def dropped_tables(script: str, file: str | None = None) -> Iterator[tuple[QualifiedName, Position]]:
    """What DuckDB's own DROP TABLE names, and where; names with a catalog are left to DuckDB."""
    with suppress(BadStatement):  # what can't be read, DuckDB refuses in its own words
        for reader in statements(script, file):
            if reader.skip("DROP", "TABLE"):
                reader.skip("IF", "EXISTS")
                place = reader.position
                with suppress(BadStatement):
                    yield reader.name(), place


# ---------------------------------------------------------------- the grammar
_USAGE = {
    "CREATE": "write CREATE DYNAMIC TABLE name TARGET_LAG = '5 minutes' AS SELECT …",
    "ALTER": "write ALTER DYNAMIC TABLE name SUSPEND, RESUME, REFRESH [FULL], SET key = value, UNSET key, RENAME TO n",
    "DROP": "write DROP DYNAMIC TABLE [IF EXISTS] name [CASCADE]",
    "SHOW": "write SHOW DYNAMIC TABLES [LIKE 'pattern']",
    "DESCRIBE": "write DESCRIBE DYNAMIC TABLE name",
    "EXPLAIN": "write EXPLAIN REFRESH name",
    "REFRESH": "write ALTER DYNAMIC TABLE name REFRESH [FULL]",
}


def _statement(reader: Reader) -> Statement:
    at = reader.position
    for words, read in _OURS.items():
        if reader.skip(*words):
            return read(reader, at)
    created = _create(reader, at)
    if created is not None:
        return created
    for verb, usage in _ALMOST_OURS.items():  # DuckDB can't read these either, and would not say what is meant
        if reader.sees(verb, "DYNAMIC") and reader.ahead(2).kind is Kind.WORD:
            raise reader.wrong("this is no statement about dynamic tables", remedy=_USAGE[usage])
    return PlainSql(at, reader.rest())


def _create(reader: Reader, at: Position) -> Create | None:
    """None, with nothing read, where it is not a dynamic table that is created."""
    for head, if_exists in _HEADS.items():
        if reader.sees(*head, "TRANSIENT", "DYNAMIC"):
            reader.skip(*head)
            raise reader.wrong("there are no transient dynamic tables", remedy="leave TRANSIENT out")
        if reader.skip(*head, "DYNAMIC"):
            if reader.sees("ICEBERG"):
                raise reader.wrong("there are no Iceberg dynamic tables", remedy="leave ICEBERG out")
            reader.expect("TABLE", remedy=_USAGE["CREATE"])
            return _created(reader, at, if_exists)
    return None


_HEADS = {
    ("CREATE",): IfExists.REFUSE,
    ("CREATE", "OR", "REPLACE"): IfExists.REPLACE,
    ("CREATE", "OR", "ALTER"): IfExists.ALTER,
}


def _created(reader: Reader, at: Position, if_exists: IfExists) -> Create:
    first = reader.token
    if reader.skip("IF"):
        reader.expect("NOT", "EXISTS", remedy=_USAGE["CREATE"])
        if if_exists is not IfExists.REFUSE:
            raise reader.wrong(
                f"IF NOT EXISTS and {if_exists.value} can't both be meant",
                at=first,
                remedy="keep one of them",
            )
        if_exists = IfExists.KEEP
    places = {"name": reader.position}
    name = reader.name("the table's name")
    columns: tuple[str, ...] = ()
    if reader.sees("("):
        places["columns"] = reader.position
        columns = _columns(reader)
    values: dict[str, Any] = {}
    partition_by: tuple[str, ...] = ()
    while not reader.skip("AS"):
        reader.skip(",")
        where = reader.position
        if reader.skip("PARTITION"):
            key = "PARTITION BY"
            reader.expect("BY", remedy="write PARTITION BY (column, …)")
            partition_by = reader.expressions("a column or an expression")
        elif reader.token.kind is Kind.END:
            raise reader.wrong("AS and the query are missing", remedy=_USAGE["CREATE"])
        elif reader.token.kind is Kind.WORD and reader.token.text in _QUERY_STARTS:
            raise reader.wrong(f"AS is missing before {reader.found()}", remedy="write AS SELECT …")
        else:
            key = read_key(reader)
            values[key] = read_value(reader, key)
        if key in places:
            raise reader.wrong(f"{key} stands here twice", at=where, remedy="keep one of them")
        places[key] = where
    if "TARGET_LAG" not in values:
        raise reader.wrong(
            "TARGET_LAG is missing", at=places["name"], remedy="write TARGET_LAG = '5 minutes' or DOWNSTREAM before AS"
        )
    places["query"] = reader.position
    if reader.token.text not in _QUERY_STARTS or reader.token.kind not in (Kind.WORD, Kind.SYMBOL):
        raise reader.wrong(f"a query should stand after AS, not {reader.found()}", remedy="write AS SELECT …")
    definition = Definition(name, reader.rest(), DOWNSTREAM, columns, partition_by=partition_by)
    definition = _with(reader, definition, values, places.get("STRICT"))
    return Create(at, definition, if_exists, places)


def _with(reader: Reader, definition: Definition, values: Mapping[str, Any], strict: Position | None) -> Definition:
    try:
        return change(definition, values)
    except BadStatement as error:
        raise reader.wrong(error.message, at=strict, remedy=error.remedy) from None


def _columns(reader: Reader) -> tuple[str, ...]:
    reader.skip("(")
    found: dict[str, str] = {}
    while True:
        token = reader.token
        column = reader.identifier("a column's name")
        if fold(column) in found:
            raise reader.wrong(f"column {column} stands here twice", at=token, remedy="keep one of them")
        found[fold(column)] = column
        if reader.skip(")"):
            return tuple(found.values())
        if not reader.skip(","):
            raise reader.wrong(
                f"a comma or ) should stand here, not {reader.found()}",
                remedy="give names only: types are the query's, CAST there",
            )


def _alter(reader: Reader, at: Position) -> Own:
    missing_ok = _if_exists(reader, "ALTER")
    names, places = reader.names()
    token = reader.token
    if len(names) > 1 and token.text in ("SET", "UNSET", "RENAME"):
        raise reader.wrong(f"{token.text} is for one table at a time", remedy="write one statement for each")
    if reader.skip("SUSPEND"):
        reader.done(_USAGE["ALTER"])
        return Suspend(at, names, missing_ok, places)
    if reader.skip("RESUME"):
        reader.done(_USAGE["ALTER"])
        return Resume(at, names, missing_ok, places)
    if reader.skip("REFRESH"):
        full = reader.skip("FULL")
        reader.done(_USAGE["ALTER"])
        return Refresh(at, names, full, missing_ok, places)
    if reader.skip("RENAME"):
        reader.expect("TO", remedy="write RENAME TO name")
        places = (*places, reader.position)
        to = reader.name("the new name")
        reader.done(_USAGE["ALTER"])
        return Rename(at, names[0], to, missing_ok, places)
    if reader.skip("SET"):
        return Change(at, names[0], _set(reader), missing_ok=missing_ok, places=places)
    if reader.skip("UNSET"):
        return Change(at, names[0], unset=_unset(reader), missing_ok=missing_ok, places=places)
    raise reader.wrong(
        f"SUSPEND, RESUME, REFRESH, SET, UNSET or RENAME should stand here, not {reader.found()}",
        remedy=_USAGE["ALTER"],
    )


def _set(reader: Reader) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    while not values or reader.token.kind is not Kind.END:
        if values:
            reader.skip(",")
        token = reader.token
        key = _alterable(reader)
        if key in values:
            raise reader.wrong(f"{key} stands here twice", at=token, remedy="keep one of them")
        values[key] = read_value(reader, key)
    return values


def _unset(reader: Reader) -> tuple[str, ...]:
    keys: list[str] = []
    while not keys or reader.token.kind is not Kind.END:
        if keys:
            reader.skip(",")
        token = reader.token
        key = _alterable(reader)
        if not PROPERTIES[key].unset:
            raise reader.wrong(f"{key} has no default to go back to", at=token, remedy=f"write SET {key} = …")
        keys.append(key)
    return tuple(dict.fromkeys(keys))


def _alterable(reader: Reader) -> str:
    token = reader.token
    by_create = "write CREATE OR ALTER DYNAMIC TABLE with the whole definition"
    if reader.sees("PARTITION"):
        raise reader.wrong("ALTER can't change PARTITION BY", remedy=by_create)
    key = read_key(reader)
    if not PROPERTIES[key].alter:
        raise reader.wrong(f"ALTER can't change {key}", at=token, remedy=by_create)
    return key


def _drop(reader: Reader, at: Position) -> Drop:
    missing_ok = _if_exists(reader, "DROP")
    place, name = reader.position, reader.name()
    if reader.sees(","):
        raise reader.wrong("DROP is for one table at a time", remedy="write one statement for each")
    cascade = reader.skip("CASCADE")
    if not cascade:
        reader.skip("RESTRICT")
    reader.done(_USAGE["DROP"])
    return Drop(at, name, missing_ok, cascade, (place,))


def _show(reader: Reader, at: Position) -> Show:
    like = None
    if reader.skip("LIKE"):
        if reader.token.kind is not Kind.TEXT:
            raise reader.wrong(f"a pattern in quotes should stand here, not {reader.found()}", remedy=_USAGE["SHOW"])
        like = reader.advance().text
    reader.done(_USAGE["SHOW"])
    return Show(at, like)


def _describe(reader: Reader, at: Position) -> Describe:
    place, name = reader.position, reader.name()
    reader.done(_USAGE["DESCRIBE"])
    return Describe(at, name, (place,))


def _if_exists(reader: Reader, verb: str) -> bool:
    if not reader.skip("IF"):
        return False
    reader.expect("EXISTS", remedy=_USAGE[verb])
    return True


def _explain(reader: Reader, at: Position) -> ExplainRefresh:
    place, name = reader.position, reader.name()
    reader.done(_USAGE["EXPLAIN"])
    return ExplainRefresh(at, name, (place,))


_OURS: Mapping[tuple[str, ...], Callable[[Reader, Position], Own]] = {
    ("ALTER", "DYNAMIC", "TABLE"): _alter,
    ("DROP", "DYNAMIC", "TABLE"): _drop,
    ("SHOW", "DYNAMIC", "TABLES"): _show,
    ("DESCRIBE", "DYNAMIC", "TABLE"): _describe,
    ("DESC", "DYNAMIC", "TABLE"): _describe,
    ("EXPLAIN", "REFRESH"): _explain,
}
_ALMOST_OURS = {
    **{verb: verb for verb in ("ALTER", "DROP", "SHOW", "DESCRIBE", "REFRESH")},
    "DESC": "DESCRIBE",
}


# ---------------------------------------------------------------- and back
def to_sql(definition: Definition) -> str:
    """The CREATE statement that declares it; what is at its default is left out."""
    columns = f" ({', '.join(map(quote, definition.columns))})" if definition.columns else ""
    lines = [f"CREATE DYNAMIC TABLE {definition.name}{columns}", *(f"  {line}" for line in shown(definition))]
    if definition.partition_by:
        lines.append(f"  PARTITION BY ({', '.join(definition.partition_by)})")
    return "\n".join([*lines, "AS", definition.query])
