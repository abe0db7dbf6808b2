"""The PostgreSQL side of pruning: conditions on columns → the ids of files that can't hold a matching row.

The comparison happens in the catalog, on the statistics' text in the column's own order, so that a table of a million
files sends only the files that stay. A file without statistics is never ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from lakemill.core.prune import Compare, Condition, Order

_ORDERED = {
    Order.NUMBER: sql.SQL("{text}::numeric"),
    Order.FLOAT: sql.SQL("{text}::numeric"),  # float8 raises on what it can't hold
    Order.TEXT: sql.SQL('{text}::text COLLATE "C"'),
    Order.MOMENT: sql.SQL('{text}::text COLLATE "C"'),
}
# What must hold before the bounds can be trusted. NaN is greater than every number and bounds leave it out, and a bound
# that is infinite can't be widened; years of other than four digits don't sort as text.
_TRUSTED = {
    Order.NUMBER: sql.SQL("TRUE"),
    Order.FLOAT: sql.SQL("contains_nan IS FALSE AND min_value !~* 'inf|nan' AND max_value !~* 'inf|nan'"),
    Order.TEXT: sql.SQL("TRUE"),
    Order.MOMENT: sql.SQL(r"min_value ~ '^\d\d\d\d-[\d :.-]+$' AND max_value ~ '^\d\d\d\d-[\d :.-]+$'"),
}


def excluded_files(conditions: Sequence[Condition]) -> tuple[sql.Composable, dict[str, Any]]:
    """A query for the ``data_file_id`` of every file that some condition rules out, and its parameters.

    The query takes ``%(table)s`` besides its own parameters.
    """
    parts: list[sql.Composable] = []
    values: dict[str, Any] = {}
    for number, condition in enumerate(conditions):
        values[f"column{number}"] = condition.column_id
        values |= {f"value{number}_{index}": value for index, value in enumerate(condition.values)}
        parts.append(_by_statistics(condition, number))
        if condition.order in (Order.NUMBER, Order.TEXT) and condition.values:
            parts.append(_by_partition(condition, number))
    return sql.SQL(" UNION ALL ").join(parts), values


def _by_statistics(condition: Condition, number: int) -> sql.Composable:
    head = sql.SQL(
        "SELECT data_file_id FROM ducklake_file_column_stats WHERE table_id = %(table)s AND column_id = {column} AND "
    ).format(column=sql.Placeholder(f"column{number}"))
    if condition.test is Compare.NULL:
        return head + sql.SQL("null_count = 0")
    if condition.test is Compare.NOT_NULL:
        return head + sql.SQL("value_count = 0")
    low, high = (_ORDERED[condition.order].format(text=sql.Identifier(name)) for name in ("min_value", "max_value"))
    if condition.order is Order.FLOAT:
        # The shortest text of a REAL is not its value as a DOUBLE: 0.1 stands for 0.10000000149011612.
        low = sql.SQL("{0} - abs({0}) * 1.2e-7 - 1e-44").format(low)
        high = sql.SQL("{0} + abs({0}) * 1.2e-7 + 1e-44").format(high)
    bounds = sql.SQL("min_value IS NOT NULL AND max_value IS NOT NULL AND {trusted}").format(
        trusted=_TRUSTED[condition.order]
    )
    # CASE fixes the order of evaluation: a bound is cast only after it was found trustworthy.
    return head + sql.SQL("(value_count = 0 OR CASE WHEN {bounds} THEN {outside} ELSE FALSE END)").format(
        bounds=bounds, outside=_outside(condition, number, low, high)
    )


def _by_partition(condition: Condition, number: int) -> sql.Composable:
    value = _ORDERED[condition.order].format(text=sql.Identifier("v", "partition_value"))
    return sql.SQL(
        "SELECT v.data_file_id FROM ducklake_file_partition_value v JOIN ducklake_data_file f"
        " ON f.data_file_id = v.data_file_id JOIN ducklake_partition_column c ON c.partition_id = f.partition_id"
        " AND c.table_id = f.table_id AND c.partition_key_index = v.partition_key_index"
        " WHERE v.table_id = %(table)s AND c.column_id = {column} AND c.transform = 'identity'"
        " AND v.partition_value IS NOT NULL AND ({outside})"
    ).format(
        column=sql.Placeholder(f"column{number}"),
        outside=_outside(condition, number, value, value),
    )


def _outside(condition: Condition, number: int, low: sql.Composable, high: sql.Composable) -> sql.Composable:
    """True when no value between the bounds passes the test."""
    values = [
        _ORDERED[condition.order].format(text=sql.Placeholder(f"value{number}_{index}"))
        for index in range(len(condition.values))
    ]
    match condition.test:
        case Compare.LESS:
            return sql.SQL("{} >= {}").format(low, values[0])
        case Compare.AT_MOST:
            return sql.SQL("{} > {}").format(low, values[0])
        case Compare.GREATER:
            return sql.SQL("{} <= {}").format(high, values[0])
        case Compare.AT_LEAST:
            return sql.SQL("{} < {}").format(high, values[0])
        case Compare.WITHIN:
            pairs = zip(values[::2], values[1::2], strict=True)
            beside = [sql.SQL("({} < {} OR {} > {})").format(high, first, low, last) for first, last in pairs]
            return sql.SQL(" AND ").join(beside)
    apart = [sql.SQL("({v} < {low} OR {v} > {high})").format(v=v, low=low, high=high) for v in values]
    return sql.SQL(" AND ").join(apart)
