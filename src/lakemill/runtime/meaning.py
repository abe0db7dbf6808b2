"""What any exception means to whoever asked: one error of our tree, whatever went wrong underneath.

The borders call it, command line and HTTP alike. Errors of our own are as they are. Those of a driver that nobody
wrapped on the way are read by what they carry rather than by their class, so that no engine is imported only to fail.
"""

from __future__ import annotations

from lakemill.core.engine import explain_stopped
from lakemill.errors import (
    BadArgument,
    EngineLost,
    InternalError,
    LakemillError,
    SqlFailed,
    StoreUnavailable,
    Unwritable,
)
from lakemill.lake.gone import gone_for_spark
from lakemill.lake.s3_errors import explain_spark

_LONGEST = 500
_NO_ANSWER = ("08", "53", "57", "58")  # SQLSTATE classes: connection, resources, intervention, system
_NOT_ALLOWED = ("42501", "25006")  # privilege missing; a server that only reads
_NOT_THERE = ("42P01", "42703")  # table, column
_NO_VALUE = "22"  # SQLSTATE class of values that can't be: a number beyond all types, half of a pattern


def meaning(error: Exception) -> LakemillError:
    """The error of our tree."""
    if isinstance(error, LakemillError):
        return error
    home = type(error).__module__.partition(".")[0]
    if home in ("duckdb", "_duckdb"):
        from lakemill.lake import duck

        return duck.explain(error) if isinstance(error, duck.DuckError) else InternalError(_told(error))
    if home == "psycopg":
        return _postgres(error)
    if home in ("pyspark", "py4j"):
        return _spark(error)
    if isinstance(error, ConnectionError) and _met_in(error, "py4j"):
        return EngineLost("Spark's JVM is gone", remedy="start this process again")
    return InternalError(f"{type(error).__name__}: {_told(error)}")


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: DuckDB, and what wraps it, tell it as an error of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "InterruptException":
            return True
        if isinstance(error, RuntimeError) and "interrupted" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _postgres(error: Exception) -> LakemillError:
    from lakemill.store.db import reason

    state = getattr(error, "sqlstate", None)
    if state in _NOT_ALLOWED:
        cure = "give this PostgreSQL user the right to create and write here, or name another one"
        return Unwritable(f"PostgreSQL does not allow it: {reason(error)}", remedy=cure)
    if state in _NOT_THERE:
        from lakemill.lake.catalog import incomplete

        return incomplete(error)
    if (state is None and type(error).__name__ == "DataError") or (state or "").startswith(_NO_VALUE):
        return BadArgument(f"PostgreSQL does not take it: {reason(error)}", remedy="correct the value")
    if state is None or state.startswith(_NO_ANSWER):
        return StoreUnavailable(f"PostgreSQL: {reason(error)}")
    return InternalError(f"PostgreSQL {state}: {reason(error)}")


def _spark(error: Exception) -> LakemillError:
    if gone := explain_stopped(str(error)) or gone_for_spark(error) or explain_spark(str(error)):
        return gone
    name = type(error).__name__
    if name in ("AnalysisException", "ParseException"):
        return SqlFailed(f"Spark: {_told(error)}", remedy="correct the expression")
    return EngineLost(
        f"Spark failed: {name}: {_told(error)}", remedy="--debug shows all; `lakemill doctor --deep` tries Spark"
    )


def _met_in(error: Exception, package: str) -> bool:
    """Whether a package's own code raised it, or let it pass."""
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == package:
            return True
        trace = trace.tb_next
    return False


def _told(error: Exception) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return (lines[0] if lines else "no reason given")[:_LONGEST]
