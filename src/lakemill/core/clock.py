"""The clock in a query: now() and its kin become one parameter, which each end of a refresh binds to its own time.

A refresh has a time ``t`` as it has a data snapshot ``b``: the query at (b, t) says the same whenever it is asked. What
changes from call to call and not with the clock, such as random(), has no place in a dynamic table.
"""

from __future__ import annotations

from typing import Literal, cast

from sqlglot import exp

Expr = exp.Expr
NOW = "now"
_INSTANT = {"now", "get_current_timestamp", "transaction_timestamp"}
_VOLATILE = {"nextval", "currval", "setseed", "current_setting", "txid_current", "gen_random_uuid", "uuidv4", "uuidv7"}
_VOLATILE_TYPES = (exp.Rand, exp.Randn, exp.Uuid, exp.CurrentUser, exp.CurrentTime)


def volatile(expression: Expr) -> Expr | None:
    """A call whose answer neither the data nor the clock decides; None when there is none."""
    for found in expression.walk():
        if isinstance(found, _VOLATILE_TYPES):
            return found
        if isinstance(found, exp.Anonymous) and found.name.lower() in _VOLATILE:
            return found
        if isinstance(found, exp.Anonymous) and found.name.lower() == "age" and len(found.expressions) == 1:
            return found  # age(x) is age(current_date, x); written so, it is welcome
    return None


def with_parameter(query: exp.Query) -> exp.Query:
    """The query with the functions of the clock as expressions of ``$now``, all in UTC."""

    def change(found: Expr) -> Expr:
        if isinstance(found, exp.CurrentTimestamp):
            return _instant()
        if isinstance(found, exp.Anonymous) and found.name.lower() in _INSTANT and not found.expressions:
            return _instant()
        if isinstance(found, exp.Localtimestamp):
            return _local()
        return exp.cast(_local(), "DATE") if isinstance(found, exp.CurrentDate) else found

    return cast("exp.Query", query.copy().transform(change))


def uses_clock(expression: Expr) -> bool:
    return any(found.name == NOW for found in expression.find_all(exp.Placeholder))


def bound(expression: Expr, end: Literal["a", "b"]) -> Expr:
    """The expression with the parameter of one end: ``$now_a`` or ``$now_b``."""

    def change(found: Expr) -> Expr:
        if isinstance(found, exp.Placeholder) and found.name == NOW:
            return exp.Placeholder(this=f"{NOW}_{end}")
        return found

    return expression.copy().transform(change)


def _instant() -> Expr:
    return exp.cast(exp.Placeholder(this=NOW), "TIMESTAMPTZ")


def _local() -> Expr:
    return exp.AtTimeZone(this=_instant(), zone=exp.Literal.string("UTC"))
