"""What a failure says to a person: one line, with a code and a remedy, whatever went wrong underneath.

Errors of Lakemill's own tree are printed as they are, others as ``runtime/meaning`` reads them; here are those of the
command line itself.
"""

from __future__ import annotations

from lakemill.errors import BadArgument, LakemillError, RefreshFailed, of_code
from lakemill.runtime.meaning import meaning


def line(error: LakemillError) -> str:
    """``error[CODE] place: what is wrong → what to do``."""
    where = f"{error.place}: " if error.place else ""
    cure = f" → {error.remedy}" if error.remedy else ""
    return f"error[{error.code}] {where}{error.message.strip()}{cure}"


def cured(error: LakemillError, state: str, otherwise: str) -> LakemillError:
    """With how things stand after it; what a refresh was recorded with has its remedy in the text."""
    if not error.remedy:
        error.message, _, error.remedy = error.message.partition(" → ")
    error.remedy = f"{error.remedy or otherwise}; {state}"
    return error


def recorded(code: str | None, text: str, place: str) -> LakemillError:
    """The error that a refresh was recorded with, which decides the exit code; `text` may end in its remedy."""
    message, _, remedy = text.partition(" → ")
    kind = RefreshFailed if code is None else of_code(code)
    return kind(message, remedy=remedy or None, place=place)


def explain(error: Exception) -> LakemillError:
    """The error of our tree that any exception means to a user of the command."""
    if not isinstance(error, LakemillError) and hasattr(error, "format_message"):
        return _usage(error)
    return meaning(error)


def _usage(error: Exception) -> LakemillError:
    """Typer's own: wrong words on the command line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "lakemill"
    message = str(error.format_message()).strip().rstrip(".")  # type: ignore[attr-defined]
    return BadArgument(message[:1].lower() + message[1:], remedy=f"see `{path} --help`")
