"""What can stand in the way of a query: that it has no rule for deltas, or that it can't be a dynamic table at all."""

from __future__ import annotations

from sqlglot import exp

from lakemill.core.algebra import Expr


class NotIncremental(Exception):
    """Why a query can't be maintained from deltas, and what would help."""

    def __init__(
        self,
        reason: str,
        remedy: str,
        place: Expr | None = None,
        text: str = "a part of the query has no rule for deltas",
    ) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.place, self.text = reason, remedy, place, text


class Volatile(Exception):
    """The query asks for something that neither the data nor the clock decides: it can't be a dynamic table."""

    def __init__(self, place: Expr) -> None:
        super().__init__(place.sql(dialect="duckdb"))
        self.place = place


def has_grand_total(query: Expr) -> bool:
    """Whether a GROUP BY has a set without keys: one group, which DuckDB shows over no rows, too, and Spark does not.

    A tree says such a group by itself; a query that has none is run by Spark as it is.
    """
    return any(_only_sets(group) for group in query.find_all(exp.Group))


def _only_sets(group: exp.Group) -> bool:
    sets = [part for name in ("grouping_sets", "rollup", "cube") for part in group.args.get(name) or []]
    parts = [*group.expressions, *sets]
    return bool(parts) and all(_has_empty_set(part) for part in parts)


def _has_empty_set(part: Expr) -> bool:
    if isinstance(part, exp.GroupingSets):
        return any(_has_empty_set(one) for one in part.expressions)
    return isinstance(part, exp.Rollup | exp.Cube) or (isinstance(part, exp.Tuple) and not part.expressions)
