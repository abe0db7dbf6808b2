"""What can stand in the way of a query: that it has no rule for deltas, or that it can't be a dynamic table at all."""

from __future__ import annotations

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
