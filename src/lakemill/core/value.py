"""A translated expression: Spark's text for it, and the type that DuckDB gives it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from lakemill.core.algebra import Expr
from lakemill.core.ducktypes import Type, spark


@dataclass(frozen=True, slots=True)
class Value:
    """``constant`` is a literal's own value; ``date`` says the same as a DATE, where a TIMESTAMP is known to be one."""

    sql: str
    type: Type
    constant: int | float | str | None = None
    date: str | None = None


class Refused(Exception):
    """Why a part of a query can't be translated, and what to write instead."""

    def __init__(self, place: Expr | None, message: str, remedy: str) -> None:
        super().__init__(message)
        self.place, self.message, self.remedy = place, message, remedy


def cast_sql(sql: str, type_: Type) -> str:
    return f"CAST({sql} AS {spark(type_)})"


def string(text: str) -> str:
    """A text constant as Spark reads it; characters that could be taken for an escape are written as one."""
    return exp.Literal.string(text).sql(dialect="spark")


def fails(message: str) -> str:
    """Spark stops with the message where DuckDB stops too, or where their answers could differ."""
    return f"raise_error({string('LAKEMILL_VALUE: ' + message)})"
