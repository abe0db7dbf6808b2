"""A table's columns become a codec: records as clients send them → lines as the bus keeps them, or what is wrong.

The way of a request begins here. A line is canonical JSON, ``{"o":"i","p":{…}}``: columns in the table's order and
spelling, values in one form each (``core/kinds``), defaults filled in. The digest of a record is of what was given, so
that neither spaces nor the order of keys nor a default that came later make it another. No decision about bad records:
that is the policy's (``runtime/accept``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, DecodeError, Meta, Raw, ValidationError

from lakemill.core.faults import article, part_at, shown, told
from lakemill.core.kinds import exact, hook, kind_of, struct_of
from lakemill.core.names import fold
from lakemill.core.schema import Column, duck_type
from lakemill.errors import BadBody

Op = Literal["insert", "upsert", "delete"]
LETTERS: Mapping[str, str] = {"insert": "i", "upsert": "u", "delete": "d"}
LONGEST_KEY = 256
DIGEST = 16
BOM = b"\xef\xbb\xbf"
"""What some editors put before a text; JSON's own rules allow to ignore it."""

Key = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)]


class Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record of a request."""

    payload: Raw
    op: Op = "insert"
    idempotency_key: Key | None = None
    event_time: str | None = None


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request in JSON."""

    records: list[Raw]
    wait_for_visibility: bool = False
    visibility_timeout_ms: Annotated[int, Meta(ge=0, le=600_000)] | None = None


class _Line(msgspec.Struct, gc=False):
    o: str
    p: Any


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that can't become a row: where in the request it stood, what it was, and why."""

    position: int
    body: bytes
    place: str
    reason: str
    key: str | None = None
    digest: bytes = b""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(slots=True)
class Checked:
    """What became of a request's records: good ones in order, their keys and digests by number, and bad ones."""

    lines: list[bytes] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)
    digest: bytes = b""
    """Of the whole request, as it was asked."""


Volatile = Callable[[str, int], Sequence[bytes]]
"""So many values, as JSON, of a column whose default differs from record to record."""


def columns_version(columns: Iterable[Column]) -> str:
    """A text that changes when the columns do: ids, names, types, defaults."""
    return blake2b(repr(tuple(columns)).encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------- bodies
_body = msgspec.json.Decoder(Body)
_envelope = msgspec.json.Decoder(Envelope)
_anything = msgspec.json.Decoder(float_hook=exact)
_fields = msgspec.json.Decoder(dict[str, Raw])
_sorted = msgspec.json.Encoder(order="sorted")
_encode = msgspec.json.Encoder().encode


def read_body(body: bytes) -> Body:
    """A request in JSON, its records not yet looked at."""
    try:
        return _body.decode(body.removeprefix(BOM))
    except ValidationError as error:
        message, path = told(error)
        raise BadBody(message, place=path.lstrip(".") or None) from error
    except (DecodeError, ValueError, RecursionError) as error:
        raise BadBody(f"the body is not JSON: {error}") from error


def read_lines(body: bytes) -> list[bytes]:
    """The lines of an NDJSON body; empty ones don't count."""
    return [line for line in body.removeprefix(BOM).split(b"\n") if line and not line.isspace()]


def canonical(raw: bytes | Raw) -> bytes:
    """Any JSON in a form that spaces and the order of keys don't change; what is no JSON stays as it is."""
    try:
        return _sorted.encode(_anything.decode(raw))
    except (DecodeError, ValueError, RecursionError):
        return bytes(raw)


def digest_of(*parts: bytes | Raw) -> bytes:
    made = blake2b(digest_size=DIGEST)
    for part in parts:
        made.update(part)
    return made.digest()


# ---------------------------------------------------------------- the codec
class Records:
    """Checks and writes records of one version of a table's columns. It may be used by several threads."""

    def __init__(
        self,
        columns: Sequence[Column],
        key: Sequence[str] = (),
        *,
        drop_unknown: bool = False,
        defaults: Mapping[str, bytes] | None = None,
        volatile: Iterable[str] = (),
    ) -> None:
        """``defaults`` are values as JSON; those of ``volatile`` columns are asked for with each request."""
        self.columns, self.key = tuple(columns), tuple(key)
        self.version = columns_version(columns)
        self.drops = drop_unknown
        self._places = {column.name: number for number, column in enumerate(self.columns)}
        filled = {*(defaults or {}), *volatile}
        self._must = frozenset(self.key) | {
            c.name for c in self.columns if not c.nulls_allowed and c.name not in filled
        }
        self._never_null = frozenset(self.key) | {c.name for c in self.columns if not c.nulls_allowed}
        rows = struct_of("row", self.columns, forbid=not drop_unknown, required=self._must)
        self._row = _decoder(rows).decode
        keys = tuple(column for column in self.columns if column.name in self.key)
        self._delete = _decoder(struct_of("key", keys, forbid=False, required=frozenset(self.key))).decode
        self._columns = {c.name: _decoder(self._kind(c)) for c in self.columns}
        self._filled_not_null = [(f"f{self._places[n]}", n) for n in filled & self._never_null - self._must]
        self._defaults = [(f"f{self._places[n]}", self._columns[n].decode(v)) for n, v in (defaults or {}).items()]
        self._volatile = [(f"f{self._places[name]}", name) for name in volatile]
        self._documents = any(leaf.type == "json" for column in self.columns for _, leaf in column.leaves())

    def _kind(self, column: Column) -> Any:
        kind = kind_of(column, forbid=not self.drops)
        return kind if column.name in self._never_null else kind | None

    def check(
        self,
        records: Iterable[bytes | Raw],
        *,
        enveloped: bool,
        op: Op = "insert",
        digest: bool = False,
        volatile: Volatile | None = None,
    ) -> Checked:
        """All records of a request. Bare ones are rows, with one ``op`` for all; ``digest``: of the request, too."""
        done = Checked()
        rows: list[Any] = []
        asked: list[bytes] = []
        filled, documents = bool(self._defaults or self._volatile), digest and self._documents
        for position, record in enumerate(records):
            key: str | None = None
            raw: bytes | Raw = record
            try:
                what = op
                if enveloped:
                    envelope = _envelope.decode(record)
                    raw, what, key = envelope.payload, envelope.op, envelope.idempotency_key
                if what != "insert" and not self.key:
                    raise _Wrong("op", f"the table has no key: only insert is possible, not {what}")
                if key is not None and not key.isprintable():
                    raise _Wrong("idempotency_key", "it holds characters that can't be printed")
                row = self._delete(raw) if what == "delete" else self._row(raw)
                for attribute, name in self._filled_not_null:
                    if what != "delete" and getattr(row, attribute) is None:
                        raise _Wrong(
                            f"payload.{name}" if enveloped else name, f"expected {self._expected(name)}, got null"
                        )
            except (DecodeError, ValidationError, _Wrong, RecursionError, ValueError) as error:
                own = digest_of(canonical(record))
                done.bad.append(self._explain(position, record, error, enveloped, op, key, own))
                continue
            line = _encode(_Line(LETTERS[what], row))
            if key is not None:
                done.digests[len(done.lines)] = self._digest(line, raw)
                done.keys[len(done.lines)] = key
            if filled:
                rows.append(row)
            if documents:
                asked.append(line[:8] + canonical(raw))
            done.lines.append(line)
            done.positions.append(position)
        if digest:
            keys = b"\0".join(f"{number} {key}".encode() for number, key in done.keys.items())
            done.digest = digest_of(
                b"\n".join(asked if documents else done.lines), keys, *(one.digest for one in done.bad)
            )
        if self._defaults or self._volatile:
            self._fill(done, rows, volatile)
        return done

    def _digest(self, line: bytes, raw: bytes | Raw) -> bytes:
        """Of a record as it was given: before its defaults are filled in."""
        return digest_of(line[:8], canonical(raw)) if self._documents else digest_of(line)

    def _fill(self, done: Checked, rows: list[Any], volatile: Volatile | None) -> None:
        letters = [chr(line[6]) for line in done.lines]
        for attribute, name in self._volatile:
            lacking = [r for o, r in zip(letters, rows, strict=True) if o != "d" and getattr(r, attribute) is UNSET]
            if lacking and volatile is not None:
                for row, value in zip(lacking, volatile(name, len(lacking)), strict=True):
                    setattr(row, attribute, self._columns[name].decode(value))
        for number, (letter, row) in enumerate(zip(letters, rows, strict=True)):
            if letter != "d":
                for attribute, value in self._defaults:
                    if getattr(row, attribute) is UNSET:
                        setattr(row, attribute, value)
                done.lines[number] = _encode(_Line(letter, row))

    # ------------------------------------------------------------ what is wrong
    def _explain(
        self, position: int, record: bytes | Raw, error: Exception, enveloped: bool, op: Op, key: str | None, own: bytes
    ) -> Bad:
        """The first thing that is wrong, by the table's order of columns, as precisely as it can be said."""
        path, reason = "", f"not JSON: {error}"
        if isinstance(error, _Wrong):
            path, reason = f".{error.path}", error.reason
            key = None if error.path == "idempotency_key" else key
        else:
            if isinstance(error, ValidationError):
                reason, path = told(error)
            try:
                envelope = _envelope.decode(record) if enveloped else None
                raw, what = (envelope.payload, envelope.op) if envelope else (record, op)
                fault = next(self._faults(raw, what), None)
            except (DecodeError, ValidationError, RecursionError):
                fault = None
            if fault is not None:
                path, reason = (".payload" if enveloped else "") + fault[0], fault[1]
        body = bytes(record) if enveloped or op == "insert" else _enveloped(record, op)
        return Bad(position, body, f"records[{position}]{path}", reason, key, own)

    def _faults(self, raw: bytes | Raw, what: str) -> Iterator[tuple[str, str]]:
        """Paths within a payload, and what is wrong there."""
        try:
            given = _fields.decode(raw)
        except ValidationError:
            yield "", f"expected an object, got {shown(raw)}"
            return
        for name in given:
            if name not in self._places and not self.drops and what != "delete":
                near = next((c.name for c in self.columns if fold(c.name) == fold(name)), None)
                yield f".{name}", "the table has no such column" + (f"; did you mean {near}?" if near else "")
        for column in self.columns:
            must = column.name in (self.key if what == "delete" else self._must)
            if column.name not in given:
                if must:
                    yield f".{column.name}", f"missing; expected {self._expected(column.name)}"
            elif what != "delete" or must:
                value = given[column.name]
                try:
                    self._columns[column.name].decode(value)
                except (DecodeError, ValidationError, ValueError, RecursionError) as error:
                    message, path = told(error)
                    inner = part_at(column, path)
                    if inner is None:  # a field that a struct lacks, or something odd
                        yield f".{column.name}{path}", message
                    else:
                        why = "" if message.startswith(("Expected", "Invalid")) or not message else f" ({message})"
                        wanted = article(duck_type(inner))
                        yield f".{column.name}{path}", f"expected {wanted}, got {shown(value, path)}{why}"

    def _expected(self, name: str) -> str:
        return article(duck_type(self.columns[self._places[name]]))


def _enveloped(record: bytes | Raw, op: Op) -> bytes:
    """A bare row with what it was meant to do, which a dead letter must not forget."""
    try:
        _anything.decode(record)
        payload: Any = Raw(record)
    except (DecodeError, ValueError, RecursionError):
        payload = bytes(record).decode("utf-8", "replace")
    return _encode({"op": op, "payload": payload})


class _Wrong(Exception):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=hook, float_hook=exact)
