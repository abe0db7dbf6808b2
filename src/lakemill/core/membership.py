"""``x IN (SELECT …)`` as a value: true, false, or NULL where nothing proves that x is not among the subquery's values.

Spark's joins, which all its subqueries become, don't tell NULL from false. Where nobody sees the difference they are
right and quick; anywhere else the NULL is asked for by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.names import fold
from lakemill.core.value import Refused


def predicates(node: Expr) -> Iterator[Expr]:
    """EXISTS and IN of a subquery, wherever they stand inside."""
    for found in node.find_all(exp.Exists, exp.In):
        if isinstance(found, exp.Exists) or found.args.get("query") is not None:
            yield found


def refuse_inside(node: Expr, where: str) -> None:
    """Spark has a join for it neither in ORDER BY nor in unnest."""
    for found in predicates(node):
        raise Refused(found, f"EXISTS or IN of a subquery in {where} is not translated", "select it in FROM before")


def refuse_both(on: Expr, right: str, names: set[str]) -> None:
    """In ON, Spark answers a subquery for rows of one side only; ``names``: the relations on both."""
    for found in predicates(on):
        own = {fold(table.alias_or_name) for table in found.find_all(exp.Table, exp.Subquery)}
        used = {fold(column.table) for column in found.find_all(exp.Column)} & (names - own)
        if right in used and len(used) > 1:
            told = "a subquery in ON that depends on both sides of the join is not translated"
            raise Refused(found, told, "ask in WHERE, or in a subquery of FROM")


def filters(node: Expr) -> bool:
    """Whether it is, or its negation is, a part of a condition that keeps rows: NULL does what false does.

    Spark knows of the NULLs of a negated one below OR in WHERE, and not in ON.
    """
    above = _around(node)
    negated = isinstance(above, exp.Not)
    if negated and above is not None:
        above = above.parent
    below_or = False
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        below_or = below_or or isinstance(above, exp.Or)
        above = above.parent
    if isinstance(above, exp.Join):
        return not (negated and below_or)
    return isinstance(above, exp.Where | exp.Having | exp.Qualify)


def _around(node: Expr) -> Expr | None:
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    return above


def known_or_null(value: str, query: str, found: str, correlated: bool) -> str:
    """``found`` is what Spark has for it: true, or anything else.

    It is NULL where the subquery has a NULL, or where x is one and the subquery has rows. One aggregate tells both of
    a subquery that stands on its own; of others EXISTS does, because Spark takes no aggregate over no rows for a NULL
    row where it is correlated.
    """
    among = f"({query}) AS `__among`(`__value`)"  # named so that x, which stands beside it, keeps its meaning
    if correlated:
        nulls = " ".join(["SELECT 1 FROM", among, "WHERE `__value` IS NULL OR", value, "IS NULL"])
        unknown = f"EXISTS ({nulls})"
    else:
        nulls = " ".join(["SELECT max(CASE WHEN `__value` IS NULL THEN 2 ELSE 1 END) FROM", among])
        unknown = f"({nulls}) > CASE WHEN {value} IS NULL THEN 0 ELSE 1 END"
    return f"(CASE WHEN {found} THEN TRUE WHEN {unknown} THEN NULL ELSE FALSE END)"
