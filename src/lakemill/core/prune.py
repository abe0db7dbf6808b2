"""Which parts of a predicate can rule out whole files by their statistics.

Takes the text of a WHERE condition (Spark SQL) and gives the conjuncts of the form *column compared with literal*; all
other conjuncts are ignored here, because Spark evaluates the whole condition anyway. Wrongly ruling out a file loses
rows, so whatever is not plainly understood gives no condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import sqlglot
from sqlglot import exp

from lakemill.core.schema import Column
from lakemill.errors import BadArgument


class Order(Enum):
    """How the catalog's text of a bound compares: as a number, as a float (NaN needs care) or bytewise.

    Dates and timestamps compare bytewise too, but only in years of four digits after Christ.
    """

    NUMBER = "number"
    FLOAT = "float"
    TEXT = "text"
    MOMENT = "moment"


class Compare(Enum):
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    ONE_OF = "in"
    WITHIN = "between, or between, …"
    NULL = "is null"
    NOT_NULL = "is not null"


@dataclass(frozen=True, slots=True)
class Condition:
    column_id: int
    order: Order
    test: Compare
    values: tuple[str, ...] = ()


_NUMBERS = re.compile(r"u?int(8|16|32|64)|decimal\(.*\)")
_COMPARE: dict[type[exp.Expr], Compare] = {
    exp.LT: Compare.LESS,
    exp.LTE: Compare.AT_MOST,
    exp.GT: Compare.GREATER,
    exp.GTE: Compare.AT_LEAST,
}
_FLIPPED = {
    Compare.LESS: Compare.GREATER,
    Compare.AT_MOST: Compare.AT_LEAST,
    Compare.GREATER: Compare.LESS,
    Compare.AT_LEAST: Compare.AT_MOST,
}
_EXACT, _REAL = r"\d+(\.\d*)?|\.\d+", r"\d+(\.\d*)?([eE][+-]?\d{1,3})?|\.\d+"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?")


def conditions(where: str | None, columns: Sequence[Column]) -> tuple[Condition, ...]:
    """The conjuncts that file statistics can test."""
    if where is None:
        return ()
    if not where.strip():
        raise BadArgument("the condition is empty", remedy="write one, or leave `where` out for all rows")
    try:
        tree = sqlglot.parse_one(where, dialect="spark", into=exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        raise BadArgument(f"the condition does not parse: {str(error).splitlines()[0]}", place=where) from error
    by_name = {column.name.lower(): column for column in columns if not column.nested}
    found = []
    for conjunct in _conjuncts(tree):
        found += list(_condition(conjunct, by_name))
    return tuple(found)


def within(column: Column, low: str, high: str) -> str | None:
    """A condition that rules out files without values in a range, its ends as Spark shows them; None where none can."""
    named = exp.column(column.name, quoted=True)
    if re.fullmatch(r"u?int(8|16|32|64)", column.type):
        ends = [exp.Literal.number(end) for end in (low, high)]
    elif column.type in ("varchar", "date"):
        ends = [exp.Literal.string(end) for end in (low, high)]
    else:
        return None
    return exp.Between(this=named, low=ends[0], high=ends[1]).sql(dialect="spark")


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        yield from _conjuncts(tree.left)
        yield from _conjuncts(tree.right)
    else:
        yield tree


def _condition(node: exp.Expr, columns: dict[str, Column]) -> Iterator[Condition]:
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
        column = _column(node.this.this, columns)
        if column and isinstance(node.this.expression, exp.Null):
            yield Condition(column.id, Order.TEXT, Compare.NOT_NULL)
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        if column := _column(node.this, columns):
            yield Condition(column.id, Order.TEXT, Compare.NULL)
    elif isinstance(node, exp.Between):
        if column := _column(node.this, columns):
            yield from _compare(column, Compare.AT_LEAST, [node.args["low"]])
            yield from _compare(column, Compare.AT_MOST, [node.args["high"]])
    elif isinstance(node, exp.Or):
        yield from _ranges([part.unnest() for part in node.flatten()], columns)
    elif isinstance(node, exp.In) and node.expressions:
        if column := _column(node.this, columns):
            yield from _compare(column, Compare.ONE_OF, node.expressions)
    elif isinstance(node, exp.EQ):
        left, right = _column(node.left, columns), _column(node.right, columns)
        if left and not right:
            yield from _compare(left, Compare.ONE_OF, [node.right])
        elif right and not left:
            yield from _compare(right, Compare.ONE_OF, [node.left])
    elif type(node) in _COMPARE:
        test = _COMPARE[type(node)]
        left, right = _column(node.this, columns), _column(node.expression, columns)
        if left and not right:
            yield from _compare(left, test, [node.expression])
        elif right and not left:
            yield from _compare(right, _FLIPPED[test], [node.this])


def _ranges(parts: Sequence[exp.Expr], columns: dict[str, Column]) -> Iterator[Condition]:
    """Ranges of one column; the values are the ends of each in turn."""
    ends = []
    for part in parts:
        if not isinstance(part, exp.Between) or part.this != parts[0].this:
            return
        ends += [part.args["low"], part.args["high"]]
    if column := _column(parts[0].this, columns):
        yield from _compare(column, Compare.WITHIN, ends)


def _column(node: exp.Expr, columns: dict[str, Column]) -> Column | None:
    if isinstance(node, exp.Column) and not node.table:
        return columns.get(node.name.lower())
    return None


def _compare(column: Column, test: Compare, nodes: Sequence[exp.Expr]) -> Iterator[Condition]:
    order, texts = _order(column), [_literal(column, node) for node in nodes]
    if order is not None and all(text is not None for text in texts):
        yield Condition(column.id, order, test, tuple(text for text in texts if text is not None))


def _order(column: Column) -> Order | None:
    if _NUMBERS.fullmatch(column.type):
        return Order.NUMBER
    if column.type in ("float32", "float64"):
        return Order.FLOAT
    if column.type == "varchar":
        return Order.TEXT
    if column.type in ("date", "timestamp", "timestamp_us"):
        return Order.MOMENT
    return None


def _literal(column: Column, node: exp.Expr) -> str | None:
    """The literal as the catalog would spell a bound of this column; None when that is not certain."""
    node = node.unnest()
    negative = isinstance(node, exp.Neg)
    if negative:
        node = node.this
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        wanted = {"date": exp.DataType.Type.DATE, "timestamp": exp.DataType.Type.TIMESTAMPNTZ}
        same = wanted.get(column.type.removesuffix("_us"))
        if same is None or node.to.this != same:
            return None
        node = node.this
    if not isinstance(node, exp.Literal) or "\0" in str(node.this):  # PostgreSQL holds no NUL in a text
        return None
    if column.type in ("date", "timestamp", "timestamp_us"):
        shape = _DATE if column.type == "date" else _TIMESTAMP
        if not node.is_string or negative or not shape.fullmatch(node.this):
            return None
        text = str(node.this)
        return text.rstrip("0").rstrip(".") if "." in text else text
    if column.type == "varchar":
        return str(node.this) if node.is_string and not negative else None
    if node.is_string or not re.fullmatch(_EXACT if _NUMBERS.fullmatch(column.type) else _REAL, node.this):
        return None
    return ("-" if negative else "") + str(node.this)
