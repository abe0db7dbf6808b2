"""The rule of ``delta`` for the first rows of an order: a state holds them and some more, so that few changes hurt it.

The state is the start of the order: no row outside it comes before its last one. So of the changed rows only those
count that come no later than that. Rows go, and it gets shorter; when it is shorter than what the query shows, it is
*hurt*, and computed anew. A state that is too short from the beginning holds all rows there are: it is never hurt.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from lakemill.core.algebra import (
    WEIGHT,
    Aggregate,
    Expr,
    Filter,
    IfAny,
    Join,
    Node,
    Project,
    Read,
    Scan,
    Stored,
    Top,
    Unnest,
    Window,
    at,
    column,
    consolidated,
    itself,
    names,
    union_all,
    weighed,
)
from lakemill.core.as_sql import leaf

MOST_SHOWN = 10_000
"""Of the rows that a query shows or skips: a state of more would cost each refresh what it is to spare."""
SPARE = 100
_HELD, _SEEN, _BEFORE, _TOTAL, _COPY, _ANY = "__held", "__seen", "__before", "__total", "__copy", "any"


def shown(limit: Expr | None, offset: Expr | None) -> int | None:
    """How many first rows a LIMIT and an OFFSET ask for; None where they don't say it in numbers, or too many."""
    parts = [limit, offset or exp.Literal.number(0)]
    if not all(isinstance(part, exp.Literal) and part.is_int for part in parts):
        return None
    found = sum(int(part.name) for part in parts if part is not None)
    return found if 0 < found <= MOST_SHOWN else None


def held(rows: int) -> int:
    """How many rows the state of a query that shows this many begins with."""
    return 2 * rows + SPARE


def shown_by(top: Top) -> int:
    """The same, of the order that a state holds the start of."""
    assert top.limit is not None  # noqa: S101  (it is a state)
    return (int(top.limit.name) - SPARE) // 2


def total_order(order: Iterable[Expr], columns: Iterable[str]) -> tuple[Expr, ...]:
    """An order without ties, but for equal rows: what is shown must be the same rows whenever it is asked for."""
    return (*order, *(exp.Ordered(this=column(name)) for name in columns))


def merged_top(state: Stored, signed: Node) -> list[tuple[str, Node]]:
    """Steps from the signed rows of what is ordered to the state's delta, and to the state after it.

    *touched*: the changed rows. *merged*: the state's rows and those that came, as far as the order is known, with the
    number of copies. *hurt*: a row where these are too few.
    """
    top = state.child
    assert isinstance(top, Top)  # noqa: S101  (whoever calls has looked)
    columns, number, rows = names(top), state.source, shown_by(top)
    touched, known, hurt, after = (f"source{number}_{name}" for name in ("touched", "merged", "hurt", "after"))
    before = Scan(number, state.columns, "a")
    return [
        (touched, consolidated(signed, columns)),
        (known, _known(top, before, touched, rows)),
        (hurt, _hurt(before, known, rows)),
        (after, union_all([_first(top, known, hurt), IfAny(_anew(top, hurt), hurt)])),
        (leaf(number, "delta"), _changed(state, before, after)),
        (leaf(number, "b"), Project(Read(after, columns), tuple((own, column(name)) for name, own in state.columns))),
    ]


def _known(top: Top, before: Node, touched: str, rows: int) -> Node:
    columns = names(top)
    changed = Read(touched, (*columns, WEIGHT))
    come = Top(Filter(changed, _compared(exp.GT, WEIGHT, 0)), top.order, top.limit, None)
    gone = Filter(changed, _compared(exp.LT, WEIGHT, 0))
    sides = [
        Project(side, (*itself((*columns, WEIGHT)), (_HELD, exp.Literal.number(held_))))
        for side, held_ in ((weighed(before, 1), 1), (come, 0), (gone, 0))
    ]
    total = exp.cast(exp.Sum(this=column(WEIGHT)), "BIGINT")
    counted = ((WEIGHT, total), (_HELD, exp.cast(exp.Sum(this=column(_HELD)), "BIGINT")))
    # without the rows that went and were not in the state; what is left is about as long as the state
    some = Filter(
        Aggregate(union_all(sides), itself(columns), counted),
        exp.or_(_compared(exp.GT, _HELD, 0), _compared(exp.GT, WEIGHT, 0)),
    )
    later = exp.WindowSpec(kind="ROWS", start="CURRENT ROW", end="UNBOUNDED", end_side="FOLLOWING")
    order = exp.Order(expressions=[item.copy() for item in top.order])
    seen = exp.Window(this=exp.Max(this=column(_HELD)), order=order, spec=later)
    all_ = exp.Window(this=exp.Sum(this=column(_HELD)))
    ordered = Window(some, (), ((_SEEN, seen), (_BEFORE, all_)))
    whole = _compared(exp.LT, _BEFORE, rows)  # then the state held all rows there were
    wanted = exp.and_(exp.or_(_compared(exp.GT, _SEEN, 0), whole), _compared(exp.GT, WEIGHT, 0))
    return Project(Filter(ordered, wanted), itself((*columns, WEIGHT)))


def _hurt(before: Node, known: str, rows: int) -> Node:
    left = exp.cast(exp.Coalesce(this=exp.Sum(this=column(WEIGHT)), expressions=[exp.Literal.number(0)]), "BIGINT")
    now = Aggregate(Read(known, (WEIGHT,)), (), ((_TOTAL, left),))
    was = Aggregate(before, (), ((_BEFORE, exp.Count(this=exp.Star())),))
    short = exp.and_(_compared(exp.LT, _TOTAL, rows), _compared(exp.GTE, _BEFORE, rows))
    return Project(Filter(Join("inner", now, was, exp.true()), short), ((_ANY, exp.true()),))


def _first(top: Top, known: str, hurt: str) -> Node:
    """The first of the rows that are known, unless these are too few."""
    columns = names(top)
    most = exp.Least(this=column(WEIGHT), expressions=[top.limit])
    copies = exp.GenerateSeries(start=exp.Literal.number(1), end=most, is_end_exclusive=False)
    rows = Project(Unnest(Read(known, (*columns, WEIGHT)), _COPY, copies), itself(columns))
    return Join("anti", Top(rows, top.order, top.limit, None), Read(hurt, (_ANY,)), exp.true())


def _anew(top: Top, hurt: str) -> Node:
    both = Join("inner", at(top, "b"), Read(hurt, (_ANY,)), exp.true())
    return Project(both, itself(names(top)))


def _changed(state: Stored, before: Node, after: str) -> Node:
    columns = names(state.child)
    signed = union_all([weighed(Read(after, columns), 1), weighed(before, -1)])
    renamed = (*((own, column(name)) for name, own in state.columns), (WEIGHT, column(WEIGHT)))
    return Project(consolidated(signed, columns), renamed)


def _compared(how: type[exp.Binary], name: str, value: int) -> Expr:
    return how(this=column(name), expression=exp.Literal.number(value))
