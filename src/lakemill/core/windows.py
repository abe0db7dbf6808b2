"""Window functions, and the frames of windows, that both engines answer alike.

A function that DuckDB answers whatever its frame, and Spark only with its own, gets none. What has no order where one
decides is refused; so is a frame that Spark would refuse only when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from lakemill.core import ducktypes as t
from lakemill.core.algebra import Expr
from lakemill.core.casts import implicit
from lakemill.core.functions import Call, Rule
from lakemill.core.value import Refused, Value, cast_sql

SKIPPING = frozenset({"Lag", "Lead", "FirstValue", "LastValue", "NthValue"})
"""What may IGNORE NULLS."""
_PEERS = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
"""Without ORDER BY all rows are of one rank, which Spark wants to be told."""
_UNFRAMED = _PEERS | {"RowNumber", "Ntile", "Lag", "Lead"}
"""They see their whole partition, whatever the frame: Spark refuses one."""
_BY_PLACE = SKIPPING | {"RowNumber", "Ntile"}
_MOST = 2**31 - 1  # rows that Spark counts in a partition, so whatever is beyond it lies outside of every one


# ---------------------------------------------------------------- functions
def _ranking(function: str, result: t.Type) -> Rule:
    return lambda call: Value(cast_sql(f"{function}(){call.over}", result), result)


def _places(call: Call, number: int, function: str) -> int:
    """A constant number of rows, as far as Spark counts them."""
    given = call.args[number].constant
    if not isinstance(given, int):
        raise call.refuse(f"{function} of a number of rows that is no constant", "write the number")
    if not t.holds(t.BIGINT, given):
        raise call.refuse(f"{function}: {given} is out of the range of BIGINT", "write a smaller number")
    return max(-_MOST, min(given, _MOST))


def _neighbour(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = call.args[0]
        if value.type in (t.NULL, t.STRING_LITERAL):
            raise call.refuse(f"{function} of a constant", "give it a column")
        rest = [str(_places(call, 1, function) if len(call.args) > 1 else 1)]
        if len(call.args) > 2:
            rest.append(implicit(call.args[2], value.type, call.node).sql)
        return Value(f"{function}({', '.join([value.sql, *rest])}){call.over}", value.type)

    return rule


def _ntile(call: Call) -> Value:
    if (number := _places(call, 0, "ntile")) < 1:
        raise call.refuse("ntile takes a constant from 1 up", "write the number of parts")
    return Value(cast_sql(f"ntile({number}){call.over}", t.BIGINT), t.BIGINT)


def _of_frame(function: str) -> Rule:
    def rule(call: Call) -> Value:
        value = call.args[0]
        if value.type in (t.NULL, t.STRING_LITERAL):
            raise call.refuse(f"{function} of a constant", "give it a column")
        rest = ""
        if function == "nth_value":
            if (number := _places(call, 1, function)) < 1:
                raise call.refuse("nth_value takes a constant from 1 up", "write the number")
            rest = f", {number}"
        return Value(f"{function}({value.sql}{rest}){call.over}", value.type)

    return rule


WINDOWS: Mapping[str, Rule] = {
    "RowNumber": _ranking("row_number", t.BIGINT),
    "Rank": _ranking("rank", t.BIGINT),
    "DenseRank": _ranking("dense_rank", t.BIGINT),
    "PercentRank": _ranking("percent_rank", t.DOUBLE),
    "CumeDist": _ranking("cume_dist", t.DOUBLE),
    "Ntile": _ntile,
    "Lag": _neighbour("lag"),
    "Lead": _neighbour("lead"),
    "FirstValue": _of_frame("first_value"),
    "LastValue": _of_frame("last_value"),
    "NthValue": _of_frame("nth_value"),
}


# ---------------------------------------------------------------- frames
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def order_and_frame(window: Expr, function: str, ordered: list[str]) -> list[str]:
    """What stands in OVER (…) behind its partitions; ``ordered``: the items of its ORDER BY, translated."""
    spec = window.args.get("spec")
    frame = None if spec is None or function in _UNFRAMED else _frame(spec, window, bool(ordered))
    if not ordered and (function in _BY_PLACE or frame not in (None, _WHOLE)):
        told = window.sql("duckdb")
        raise Refused(window, f"{told} has no order, so no one answer", "add an ORDER BY that leaves no ties")
    if not ordered and function in _PEERS:
        ordered = ["NULL"]
    return [*([f"ORDER BY {', '.join(ordered)}"] if ordered else []), *([frame] if frame else [])]


def _frame(spec: Expr, window: Expr, ordered: bool) -> str:
    kind = str(spec.args.get("kind") or "")
    if spec.args.get("exclude") or kind not in ("ROWS", "RANGE"):
        raise Refused(window, f"a frame of {kind} or with EXCLUDE is not translated", "use ROWS or RANGE")
    start, end = (_end(spec, name, kind, window) for name in ("start", "end"))
    if kind == "RANGE" and not ordered:  # all rows are peers
        return _WHOLE
    if start > end or start > _MOST or end < -_MOST:
        raise Refused(window, "this frame never has rows: it ends before it begins", "swap its ends")
    return f"{kind} BETWEEN {_told(start, 'PRECEDING')} AND {_told(end, 'FOLLOWING')}"


def _end(spec: Expr, name: str, kind: str, window: Expr) -> float:
    """Where a frame begins or ends, in rows from the current one."""
    bound, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "")
    sign = -1 if side == "PRECEDING" else 1
    if bound is None or bound == "CURRENT ROW":
        return 0
    if bound == "UNBOUNDED":
        return sign * float("inf")
    number = whole(bound)
    if number is None or number < 0 or kind != "ROWS":
        raise Refused(window, "a frame by values or by a computed number is not translated", "use ROWS")
    return sign * number


def _told(place: float, outward: str) -> str:
    if place == 0:
        return "CURRENT ROW"
    if abs(place) > _MOST:
        return f"UNBOUNDED {outward}"
    return f"{abs(place)} {'PRECEDING' if place < 0 else 'FOLLOWING'}"


def whole(node: object) -> int | None:
    """An integer that is written out."""
    if isinstance(node, exp.Neg) and (inner := whole(node.this)) is not None:
        return -inner
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None
