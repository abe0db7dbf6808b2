"""What the service says while it works: one line per refresh, one per failure, for people or as JSON for programs.

Line 11 of a refresh, with `telemetry.metrics`. structlog binds the ids (worker, table, refresh) to a thread; the lines
go through the standard library's logger `lakemill`, so that in a notebook they follow that program's own set-up and are
silent where there is none. Only a service calls `configure`. Passwords inside DSNs, keys and JWTs are masked on the way
out.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal, Protocol, TextIO
from uuid import UUID

import structlog
from structlog.contextvars import bound_contextvars
from structlog.stdlib import BoundLogger, ProcessorFormatter

from lakemill.core.keys import masked
from lakemill.core.names import MAIN, QualifiedName
from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.errors import InternalError, LakemillError
from lakemill.settings import without_password

Format = Literal["console", "json"]
Level = Literal["debug", "info", "warning", "error"]
Fields = MutableMapping[str, Any]

LOGGER = "lakemill"
LONGEST = 500
"""Characters of an error's text within a line for people; JSON has all of it."""
_WHOLE = "_whole"  # the text says all that the fields say: people are spared them

logging.getLogger(LOGGER).addHandler(logging.NullHandler())  # else Python prints warnings of a silent library


class Refresh(Protocol):
    """A refresh that is over, as the store's `RefreshRecord` has it; layers below it know it by this shape."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> QualifiedName: ...
    @property
    def trigger(self) -> Trigger: ...
    @property
    def outcome(self) -> Outcome: ...
    @property
    def action(self) -> Action | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def a(self) -> int | None: ...
    @property
    def b(self) -> int | None: ...
    @property
    def commit(self) -> int | None: ...
    @property
    def holder(self) -> str | None: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def rows_in(self) -> int | None: ...
    @property
    def rows_inserted(self) -> int | None: ...
    @property
    def rows_deleted(self) -> int | None: ...
    @property
    def rows_recomputed(self) -> int | None: ...
    @property
    def bytes_read(self) -> int | None: ...
    @property
    def bytes_written(self) -> int | None: ...
    @property
    def files(self) -> int | None: ...
    @property
    def affected_keys(self) -> int | None: ...
    @property
    def cardinality_ratio(self) -> float | None: ...
    @property
    def spark_jobs(self) -> int | None: ...
    @property
    def error_code(self) -> str | None: ...
    @property
    def error_text(self) -> str | None: ...


# ---------------------------------------------------------------- saying it
def log() -> BoundLogger:
    """The logger: ``log().info("worker started", slots=4)``; fields are JSON's, and follow the text for people."""
    return _LOG


bound = bound_contextvars
"""``with bound(worker="w1", table="t"):`` every line of this thread carries them; threads don't inherit them."""


def refreshed(record: Refresh) -> None:
    """The one line of a refresh that is over; a warning with code, text and remedy where it failed."""
    error, _, remedy = (record.error_text or "").partition(" → ")
    fields: dict[str, Any] = {
        "table": str(record.name),
        "refresh": str(record.id),
        "worker": record.holder,
        "trigger": record.trigger.value,
        "outcome": record.outcome.value,
        "action": record.action and record.action.value,
        "reason": record.reason,
        "a": record.a,
        "b": record.b,
        "commit": record.commit,
        "rows_in": record.rows_in,
        "rows_inserted": record.rows_inserted,
        "rows_deleted": record.rows_deleted,
        "affected_keys": record.affected_keys,
        "files": record.files,
        "bytes_read": record.bytes_read,
        "bytes_written": record.bytes_written,
        "seconds": record.seconds and round(record.seconds, 6),
        "error_code": record.error_code,
        "error": error or None,
        "remedy": remedy or None,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    failed_ = record.outcome not in (Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.EXECUTING)
    say = _LOG.warning if failed_ else _LOG.info
    say(summary(record), **told, **{"_event": "refresh", _WHOLE: True})


def failed(doing: str, error: BaseException, **fields: Any) -> None:
    """Something other than a refresh went wrong: one line; what nobody foresaw comes with its traceback."""
    if isinstance(error, LakemillError) and not isinstance(error, InternalError):
        told = {"error_code": error.code, "error": error.message, "remedy": error.remedy or None, "place": error.place}
        fields = {name: value for name, value in told.items() if value} | fields
        _LOG.warning(f"{doing}: {_line(str(error))}", **fields, **{"_event": "failure", _WHOLE: True})
        return
    fields = {"error_code": InternalError.code, "error": str(error) or type(error).__name__} | fields
    text = f"{doing}: {InternalError.code}: {type(error).__name__}: {_line(str(error))}"
    _LOG.error(text, exc_info=error, **fields, **{"_event": "failure", _WHOLE: True})


def summary(record: Refresh) -> str:
    """``orders_by_day: +3 −1 rows, 2 files, 41 KB, KEYS, 0.8 s``; what was not measured is left out."""
    parts: list[str] = []
    if record.outcome is Outcome.SUCCEEDED:
        if record.rows_inserted is not None and record.rows_deleted is not None and record.action is not Action.NO_DATA:
            parts.append(f"+{record.rows_inserted} −{record.rows_deleted} rows")
            parts += [] if record.files is None else [f"{record.files} file{'' if record.files == 1 else 's'}"]
            parts += [] if record.bytes_written is None else [size_text(record.bytes_written)]
        parts += [] if record.action is None else [record.action.value]
    else:
        parts.append(record.outcome.value)
        if record.error_code is not None:
            parts.append(f"{record.error_code}: {_line(record.error_text or '')}")
    if record.seconds is not None:
        parts.append(f"{record.seconds:.1f} s")
    name = record.name.name if record.name.schema == MAIN else str(record.name)
    return f"{name}: {', '.join(parts)}"


def size_text(count: int) -> str:
    """``41 KB``, by powers of ten."""
    number = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.1f} {unit}" if unit != "B" and number < 9.95 else f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _line(text: str) -> str:
    """A text as part of one line, cut where it would bury the rest."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ---------------------------------------------------------------- where it goes
class Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second `configure` replaces it and leaves a stranger's handlers alone."""


def configure(format: Format = "console", level: Level = "info", stream: TextIO | None = None) -> None:
    """Lines of this process go to `stream` (standard error), those of libraries from warnings up.

    Standard output stays free: it belongs to what a command prints.
    """
    root, ours = logging.getLogger(), logging.getLogger(LOGGER)
    handler = Handler(stream or sys.stderr)
    handler.setFormatter(_formatter(format, coloured=format == "console" and handler.stream.isatty()))
    for handler_ in [found for found in root.handlers if isinstance(found, Handler)]:
        root.removeHandler(handler_)
    root.addHandler(handler)
    ours.setLevel(level.upper())


def _formatter(format_: Format, coloured: bool) -> logging.Formatter:
    rendering: list[structlog.typing.Processor]
    if format_ == "json":
        rendering = [
            _without_mark,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.EventRenamer("message", "_event"),
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        rendering = [
            _for_people,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=coloured, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    return ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, _fields_of],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,  # here, so that a traceback is masked too
            _masked,
            *rendering,
        ],
    )


def _to_record(_: Any, __: str, fields: Fields) -> Mapping[str, Any]:
    """A plain record of `logging`, readable to any handler; the fields ride along under one name.

    Under their own names they could meet the record's: `logging` refuses a field called `name`.
    """
    event, caught = fields.pop("event"), fields.pop("exc_info", None)
    return {"msg": str(event), "exc_info": caught, "extra": {LOGGER: dict(fields)}}


def _fields_of(_: Any, __: str, fields: Fields) -> Fields:
    fields.update(getattr(fields.get("_record"), LOGGER, {}))
    return fields


def _masked(_: Any, __: str, fields: Fields) -> Fields:
    for name, value in fields.items():
        if isinstance(value, str):
            if "://" in value or "password" in value.lower():
                value = without_password(value)
            fields[name] = masked(value)
    return fields


def _without_mark(_: Any, __: str, fields: Fields) -> Fields:
    fields.pop(_WHOLE, None)
    return fields


def _for_people(_: Any, __: str, fields: Fields) -> Fields:
    fields.pop("_event", None)
    if fields.pop(_WHOLE, False):
        kept = ("event", "level", "exception")
        return {name: fields[name] for name in kept if name in fields}
    return fields


_LOG: BoundLogger = structlog.wrap_logger(  # not structlog.configure(): that belongs to the program we run in
    logging.getLogger(LOGGER),
    processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _to_record],
    wrapper_class=BoundLogger,
    cache_logger_on_first_use=True,
)
