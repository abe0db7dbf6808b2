"""Whether a tree says all that its query says: the last look of ``core/query`` at what it built.

SQL has more places for a subquery or an outer column than there are rules here. One that was not turned into a join is
still in an expression, where deltas would not see what it reads.
"""

from __future__ import annotations

from sqlglot import exp

from lakemill.core.algebra import Node, children, expressions, names, used
from lakemill.core.shape import NotIncremental


def require_closed(node: Node) -> None:
    """Every column is one that comes from below, and no subquery or unnest was left in a value."""
    below = {name for child in children(node) for name in names(child)}
    for value in expressions(node):
        if value.find(exp.Query):
            raise NotIncremental("SUBQUERY_PREDICATE", "make it a condition of its own, joined by AND", value)
        if value.find(exp.Explode, exp.Unnest):
            raise NotIncremental("UNNEST_FORM", "unnest one list, in FROM", value)
        if not used(value) <= below:
            raise NotIncremental("CORRELATED_SUBQUERY", "correlate by equalities only", value)
    for child in children(node):
        require_closed(child)
