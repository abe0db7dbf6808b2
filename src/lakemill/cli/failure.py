"""What a failure says to a person: one line, with a code and a remedy, whatever went wrong underneath.

Errors of Lakemill's own tree are printed as they are. Those of a driver that nobody wrapped on the way are read here,
by what they carry rather than by their class, so that no engine is imported only to fail.
"""

from __future__ import annotations

from lakemill.errors import (
    BadArgument,
    EngineLost,
    InternalError,
    LakemillError,
    RefreshFailed,
    SqlFailed,
    StoreUnavailable,
    Unwritable,
    of_code,
)
from lakemill.lake.gone import gone_for_spark
from lakemill.lake.s3_errors import explain_spark

_LONGEST = 500
_NO_ANSWER = ("08", "53", "57", "58")  # SQLSTATE classes: connection, resources, intervention, system
_NOT_ALLOWED = ("42501", "25006")  # privilege missing; a server that only reads
_NOT_THERE = ("42P01", "42703")  # table, column


def line(error: LakemillError) -> str:
    """``error[CODE] place: what is wrong → what to do``."""
    where = f"{error.place}: " if error.place else ""
    cure = f" → {error.remedy}" if error.remedy else ""
    return f"error[{error.code}] {where}{error.message.strip()}{cure}"


def recorded(code: str | None, text: str, place: str) -> LakemillError:
    """The error that a refresh was recorded with, which decides the exit code; `text` may end in its remedy."""
    message, _, remedy = text.partition(" → ")
    kind = RefreshFailed if code is None else of_code(code)
    return kind(message, remedy=remedy or None, place=place)


def explain(error: Exception) -> LakemillError:
    """The error of our tree that any exception means to a user of the command."""
    if isinstance(error, LakemillError):
        return error
    home = type(error).__module__.partition(".")[0]
    if hasattr(error, "format_message"):
        return _usage(error)
    if home in ("duckdb", "_duckdb"):
        from lakemill.lake import duck

        return duck.explain(error) if isinstance(error, duck.DuckError) else InternalError(_told(error))
    if home == "psycopg":
        return _postgres(error)
    if home in ("pyspark", "py4j"):
        return _spark(error)
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


def _usage(error: Exception) -> LakemillError:
    """Typer's own: wrong words on the command line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "lakemill"
    message = str(error.format_message()).strip().rstrip(".")  # type: ignore[attr-defined]
    return BadArgument(message[:1].lower() + message[1:], remedy=f"see `{path} --help`")


def _postgres(error: Exception) -> LakemillError:
    from lakemill.store.db import reason

    state = getattr(error, "sqlstate", None)
    if state in _NOT_ALLOWED:
        cure = "give this PostgreSQL user the right to create and write here, or name another one"
        return Unwritable(f"PostgreSQL does not allow it: {reason(error)}", remedy=cure)
    if state in _NOT_THERE:
        from lakemill.lake.catalog import incomplete

        return incomplete(error)
    if state is None or state.startswith(_NO_ANSWER):
        return StoreUnavailable(f"PostgreSQL: {reason(error)}")
    return InternalError(f"PostgreSQL {state}: {reason(error)}")


def _spark(error: Exception) -> LakemillError:
    if gone := gone_for_spark(error) or explain_spark(str(error)):
        return gone
    name = type(error).__name__
    if name in ("AnalysisException", "ParseException"):
        return SqlFailed(f"Spark: {_told(error)}", remedy="correct the expression")
    return EngineLost(
        f"Spark failed: {name}: {_told(error)}", remedy="--debug shows all; `lakemill doctor --deep` tries Spark"
    )


def _told(error: Exception) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return (lines[0] if lines else "no reason given")[:_LONGEST]
