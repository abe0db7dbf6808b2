"""Is what stock DuckDB answers right? Reads, time travel, metadata and maintenance, held against a history's truth.

Used on lakes that Lakemill published into, and on their stock-only twins: where stock is wrong without Lakemill too,
Lakemill is not to blame. Only duckdb and the truth are used here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import duckdb

from tests.fuzz.history import first_line, leak
from tests.fuzz.sandbox import Sandbox, fetch, fetch_by_rows, read_rows
from tests.fuzz.truth import Row, State, Truth, difference
from tests.fuzz.values import quote

T = TypeVar("T")
# Types whose order and equality are the same in Python and in DuckDB.
_ORDERED = ("int", "uint", "date", "timestamp", "varchar", "decimal", "uuid")


def wrong_answers(
    box: Sandbox, truth: Truth, rng: Random, snapshots: int | None = None, probes: int | None = None
) -> list[str]:
    """Each wrong answer as one line: "area: what"; asked for everything, or for so many of each."""
    try:
        connection = box.connect("check")
    except duckdb.Error as error:  # a catalog that contradicts itself lets no client in
        return [f"crash: {first_line(error)}"]
    try:
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        found = list(time_travel(connection, truth, some(rng, box.readable(), snapshots)))
        connection.execute("SET disabled_optimizers = ''")
        found += list(head(connection, truth, rng, probes, box.blind_columns()))
    except duckdb.Error as error:
        leak(connection)
        return [f"crash: {first_line(error)}"]
    connection.close()
    return found


def some(rng: Random, items: list[T], most: int | None) -> list[T]:
    return items if most is None else rng.sample(items, min(most, len(items)))


def time_travel(connection: duckdb.DuckDBPyConnection, truth: Truth, snapshots: Sequence[int]) -> Iterator[str]:
    for snapshot in snapshots:
        for name, state in truth.states.get(snapshot, {}).items():
            try:
                rows = read_rows(connection, state.name, state.columns, snapshot)
            except duckdb.FatalException:
                raise
            except duckdb.Error as error:
                yield f"time travel: {name} at {snapshot}: {str(error).splitlines()[0]}"
                continue
            if rows != state.rows:
                off = difference(rows, state.rows)
                yield f"time travel: {name} at {snapshot}: {_few(off)} of {sum(state.rows.values())} rows"


def head(
    connection: duckdb.DuckDBPyConnection,
    truth: Truth,
    rng: Random,
    most: int | None,
    blind: Mapping[int, frozenset[int]],
) -> Iterator[str]:
    """Plain reads, counts, bounds and filters at the newest snapshot, which stock answers from statistics."""
    for name, state in truth.states[max(truth.states)].items():
        rows = read_rows(connection, state.name, state.columns)
        if rows != state.rows:
            yield f"head: {name}: {_few(difference(rows, state.rows))}"
            continue
        probes = some(rng, list(_probes(state, rng, blind.get(state.table_id, frozenset()))), most)
        found = connection.execute("SELECT " + ", ".join(f"({query})" for query, _ in probes)).fetchall()[0]
        for (query, expected), answer in zip(probes, found, strict=True):
            if _plain(answer) != _plain(expected):
                yield f"head: {query}: {answer} instead of {expected}"


def wrong_by_statistics(connection: duckdb.DuckDBPyConnection, lines: Sequence[str]) -> Iterator[str]:
    """Those lines of ``head`` whose question is answered otherwise by statistics than by rows on this lake.

    Where one INSERT writes a file of NULLs and one of values, the extension loses the column's bounds, and the next
    one puts its own in their place (traps 2).
    """
    for line in lines:
        found = re.search(r"head: (SELECT .+): .+ instead of ", line, re.DOTALL)
        if found and fetch(connection, found[1]) != fetch_by_rows(connection, found[1]):
            yield line


def _probes(state: State, rng: Random, blind: frozenset[int]) -> Iterator[tuple[str, object]]:
    """Queries of one value each, so that one statement can ask them all; ``blind``: columns not to look up by."""
    table = f"lake.main.{quote(state.name)}"
    yield f"SELECT count(*) FROM {table}", sum(state.rows.values())
    for index, column in enumerate(state.columns):
        values = [(row[index], count) for row, count in state.rows.items()]
        there = [value for value, _ in values if value is not None]
        nulls = sum(count for value, count in values if value is None)
        place = quote(column.name)
        yield f"SELECT count(*) FROM {table} WHERE {place} IS NULL", nulls
        if not column.type.startswith(_ORDERED) or column.children or not there:
            continue
        yield f"SELECT min({place}) FROM {table}", min(there, key=_order)
        yield f"SELECT max({place}) FROM {table}", max(there, key=_order)
        one = rng.choice(sorted(there, key=_order))
        literal = "'" + str(one).replace("'", "''") + "'"
        equal = sum(count for value, count in values if value == one)
        if column.id not in blind and (column.type != "varchar" or "\n" not in str(one)):
            yield f"SELECT count(*) FROM {table} WHERE {place} = {literal}", equal
        at_least = sum(count for value, count in values if value is not None and _order(value) >= _order(one))
        yield f"SELECT count(*) FROM {table} WHERE {place} >= {literal}", at_least


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _plain(value: object) -> object:
    """Timestamps with a zone compare as moments, UUIDs as text."""
    return str(value) if type(value).__name__ == "UUID" else value


def _few(off: dict[Row, int]) -> str:
    more = sum(weight for weight in off.values() if weight > 0)
    less = -sum(weight for weight in off.values() if weight < 0)
    return f"{more} too many, {less} missing (e.g. {next(iter(off.items()))})"
