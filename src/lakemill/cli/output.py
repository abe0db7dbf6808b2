"""How commands print: rows as an aligned table, JSON or CSV, on standard output; remarks on standard error.

What a program may read (rows) and what a person reads besides (remarks, progress) never share a stream. Values keep
their exactness: decimals and other things that JSON has no number for are text.
"""

from __future__ import annotations

import base64
import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TextIO

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Output:
    """One command's way to print."""

    def __init__(self, format_: Format, stream: TextIO) -> None:
        self.format, self._stream = format_, stream
        self._results: int | None = None
        """How many of one document were printed; None where each is a document of its own."""

    def facts(self, facts: Sequence[Mapping[str, Any]], *, first: str = "table", empty: str = "") -> None:
        """Rows by column, all with the same columns; ``first`` is the one that is named where there are none."""
        self.rows(list(facts[0]) if facts else [first], [list(one.values()) for one in facts], empty=empty)

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> None:
        """A result: all rows under named columns; `empty` is said to people when there is none."""
        match self.format:
            case Format.JSON:
                self._separate()
                self._json_rows(columns, rows)
            case Format.CSV:
                writer = csv.writer(self._stream, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([None if cell is None else _text(cell) for cell in row] for row in rows)
            case Format.TABLE:
                found = [list(row) for row in rows]
                if not found and empty:
                    self._stream.write(empty + "\n")
                else:
                    self._table(columns, found)

    def record(self, record: Mapping[str, Any]) -> None:
        """One thing with named values."""
        if self.format is Format.JSON:
            self._separate()
            self._stream.write(json.dumps(plain(dict(record)), ensure_ascii=False, indent=2) + "\n")
        elif self.format is Format.CSV:
            self.rows(list(record), [list(record.values())])
        else:
            width = max((len(name) for name in record), default=0)
            for name, value in record.items():
                self._stream.write(f"{name.replace('_', ' '):<{width}}  {'' if value is None else _text(value)}\n")

    def warning(self, text: str) -> None:
        """Not part of the result either, but whoever reads that must know it, in any format."""
        typer.echo(text, err=True)

    @contextmanager
    def several(self) -> Iterator[None]:
        """What the body prints as JSON is one document, a list; also when the body fails after the first of it."""
        self._results = 0
        try:
            yield
            if not self._results and self.format is Format.JSON:
                self._stream.write("[]\n")
        finally:
            if self._results and self.format is Format.JSON:
                self._stream.write("]\n")
            self._results = None

    def _separate(self) -> None:
        if self._results is not None:
            self._stream.write(",\n" if self._results else "[\n")
            self._results += 1

    def text(self, text: str) -> None:
        self._stream.write(text + "\n")

    def remark(self, text: str) -> None:
        """For people only, and not part of the result."""
        if self.format is Format.TABLE:
            typer.echo(text, err=True)

    def _json_rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        # by hand, so that a large result is never held in memory as text
        first, columns = True, distinct(columns)
        for row in rows:
            record = dict(zip(columns, (plain(cell) for cell in row), strict=True))
            self._stream.write(("[\n  " if first else ",\n  ") + json.dumps(record, ensure_ascii=False))
            first = False
        self._stream.write("[]\n" if first else "\n]\n")

    def _table(self, columns: Sequence[str], rows: list[list[Any]]) -> None:
        numeric = [
            any(row[i] is not None for row in rows)
            and all(row[i] is None or _is_number(row[i]) for row in rows)
            for i in range(len(columns))
        ]  # fmt: skip
        cells = [["" if cell is None else _one_line(_text(cell)) for cell in row] for row in rows]
        widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
        for line in ([str(name) for name in columns], ["─" * width for width in widths], *cells):
            padded = (
                word.rjust(width) if right else word.ljust(width)
                for word, width, right in zip(line, widths, numeric, strict=True)
            )
            self._stream.write("  ".join(padded).rstrip() + "\n")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return _text(value)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of an object's keys: of those that occur twice, the later ones get a number, as in DuckDB: x, x_1."""
    found: list[str] = []
    for place, name in enumerate(names):
        free = name
        for number in itertools.count(1):
            if free not in found and (free == name or free not in names[place:]):
                break
            free = f"{name}_{number}"
        found.append(free)
    return found


def size(count: int | None) -> str | None:
    """Bytes for people."""
    if count is None:
        return None
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def span(length: timedelta | None) -> str | None:
    """A length of time for people."""
    if length is None:
        return None
    seconds = length.total_seconds()
    for unit, size_ in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_:
            return f"{seconds / size_:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(time_: datetime | None) -> str | None:
    """A time for people, to the second."""
    return None if time_ is None else time_.replace(microsecond=0).isoformat(" ")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case dict() | list() | tuple():
            return json.dumps(plain(value), ensure_ascii=False)
    return str(value)


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "⏎").replace("\t", "    ")
