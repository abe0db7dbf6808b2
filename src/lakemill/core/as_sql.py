"""A tree of ``algebra`` as DuckDB's SQL, one SELECT; ``core/dialect`` makes Spark's of it.

A scan reads the relation ``source<number>_<end>``, a restriction the relation of its step: whoever runs the text gives
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakemill.core.algebra import (
    WEIGHT,
    Aggregate,
    Distinct,
    End,
    Expr,
    Filter,
    IfAny,
    Join,
    Node,
    Project,
    Read,
    Restrict,
    Scan,
    SetOp,
    Stored,
    Top,
    Unnest,
    Values,
    Window,
    operand,
    used,
)
from lakemill.core.names import quote


def sql(node: Node) -> str:
    """A tree as one SELECT. A scan reads the relation ``source<number>_<end>``."""
    match node:
        case Scan(source=source, columns=columns, end=end):
            items = [f"{quote(own)} AS {quote(name)}" for name, own in columns]
            items += [WEIGHT] if end == "delta" else []
            return f"SELECT {_list(items)} FROM {leaf(source, end)}"
        case Values():
            return "SELECT 1"
        case Read(step=step, columns=given):
            return f"SELECT {_list(map(quote, given))} FROM {step}"
        case IfAny(child=child):
            return sql(child)
        case Filter(child=child, condition=condition):
            return f"SELECT * FROM {_inner(child)} WHERE {_text(condition)}"
        case Project(child=Values(), columns=columns):
            return f"SELECT {_items(columns)}"
        case Project(child=child, columns=columns):
            return f"SELECT {_items(columns)} FROM {_inner(child)}"
        case Join(kind=kind, left=left, right=right, on=on):
            return f"SELECT * FROM {_inner(left, 'l')} {kind.upper()} JOIN {_inner(right, 'r')} ON {_text(on)}"
        case Aggregate(child=child, keys=keys, values=values):
            if not keys and not values:  # of no columns, and still one row
                return f"SELECT count(*) AS one FROM {_inner(child)}"
            # a constant by its place: DuckDB takes a number for one
            by = [_text(value) if used(value) else str(place) for place, (_, value) in enumerate(keys, 1)]
            grouped = f" GROUP BY {_list(by)}" if keys else ""
            return f"SELECT {_items((*keys, *values))} FROM {_inner(child)}{grouped}"
        case Window(child=child, values=values):
            return f"SELECT *, {_items(values)} FROM {_inner(child)}"
        case Distinct(child=child):
            return f"SELECT DISTINCT * FROM {_inner(child)}"
        case SetOp(kind=kind, all=all_, left=left, right=right):
            word = kind.upper() + (" ALL" if all_ else "")
            return f"SELECT * FROM {_inner(left)} {word} SELECT * FROM {_inner(right)}"
        case Unnest(child=child, name=name, value=value, keep=keep):
            inner = f"unnest({_text(value)})"
            if keep:
                inner = f"unnest(CASE WHEN len({_text(value)}) > 0 THEN {_text(value)} ELSE [NULL] END)"
            return f"SELECT *, {inner} AS {quote(name)} FROM {_inner(child)}"
        case Top(child=child, order=order, limit=limit, offset=offset):
            text = f"SELECT * FROM {_inner(child)}"
            text += f" ORDER BY {_list(map(_text, order))}" if order else ""
            text += f" LIMIT {_text(limit)}" if limit is not None else ""
            return text + (f" OFFSET {_text(offset)}" if offset is not None else "")
        case Restrict(child=child, exact=False):
            return sql(child)
        case Restrict(child=child, keys=keys, step=step):
            same = [f"{_text(operand(value.copy()))} IS NOT DISTINCT FROM {step}.{quote(name)}" for value, name in keys]
            return f"SELECT * FROM {_inner(child)} SEMI JOIN {step} ON {' AND '.join(same)}"
        case Stored(child=child):
            return sql(child)


def leaf(source: int, end: End | None) -> str:
    return f"source{source}_{end}"


def _inner(node: Node, alias: str = "q") -> str:
    return f"({sql(node)}) AS {alias}"


def _items(columns: Sequence[tuple[str, Expr]]) -> str:
    return _list(f"{_text(value)} AS {quote(name)}" for name, value in columns)


def _list(items: Iterable[str]) -> str:
    return ", ".join(items) or "1 AS one"


def _text(expression: Expr) -> str:
    return expression.sql(dialect="duckdb")
