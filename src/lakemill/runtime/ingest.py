"""The way of a request: limits, the table's codec, its policy for what does not fit, one commit, an answer.

    runtime/bodies   bytes                     → records in JSON
    runtime/codecs   table name                → what it accepts, kept at hand
    core/records     records                   → lines, and what is wrong with the others
    policy           reject · dead_letter · drop_field · evolve (runtime/evolving alters the table)
    runtime/accept   lines, keys               → durable, together with what others sent; a token
    a wait           token                     → visible, or how far the lake is

One ``Ingest`` a process, used by any number of threads: the API's, or the command's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Raw

from lakemill.core.bus import ONCE, Accepted, Bus, Head, Request
from lakemill.core.names import QualifiedName
from lakemill.core.receipts import read_token, write_token
from lakemill.core.records import Checked, Op, digest_of
from lakemill.core.schema import Column
from lakemill.errors import BadArgument, BadRecords, DefinitionChanged, LakemillError, NoIngestTable, RequestTooLarge
from lakemill.runtime import buses
from lakemill.runtime.accept import Acceptor
from lakemill.runtime.bodies import Given
from lakemill.runtime.codecs import Codec, Codecs
from lakemill.runtime.evolving import evolved, without_nulls
from lakemill.runtime.open import Lake
from lakemill.settings import Settings
from lakemill.store import ingest as store
from lakemill.store import watermarks
from lakemill.store.ingest import Letter, Policy
from lakemill.telemetry import metrics

Wait = Callable[[int, int, float], bool]
"""(table's id, token, seconds) → whether the table has passed the token by then. Many threads ask at once."""
_OPS: dict[str, Op] = {"i": "insert", "u": "upsert", "d": "delete"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is told."""

    status: str
    """``accepted``, ``visible`` or ``partial_duplicate``."""
    accepted: int
    duplicate: int
    rejected: int
    token: str
    watermark: str | None = None
    """How far the lake is; told where a wait was asked for."""
    repeated: bool = False
    """It is the answer of an earlier request under the same key."""
    faults: tuple[str, ...] = ()
    """What was wrong with the rejected records, the first of them where there are many."""

    @property
    def visible(self) -> bool:
        return self.status == "visible"


@dataclass(frozen=True, slots=True)
class Told:
    """A request that is durable."""

    name: QualifiedName
    table_id: int
    accepted: Accepted
    faults: tuple[str, ...] = ()


class Ingest:
    """Takes requests for the tables of one lake."""

    def __init__(self, settings: Settings, *, wait: Wait | None = None, bus: Bus | None = None) -> None:
        """``wait`` waits for visibility; without, a request that asks for it is told that it is accepted."""
        self.settings, self._wait = settings.ingest, wait
        self.lake = Lake(settings)
        self.codecs = Codecs(self.lake)
        self.bus = bus or buses.bus(self.lake.dsn, settings.lake.connect_seconds)
        try:
            self.lake_id = self.bus.head().lake_id
        except BaseException:
            self.lake.close()
            raise
        self.acceptor = Acceptor(self.bus, settings.ingest)

    def __enter__(self) -> Ingest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Requests under way end first."""
        self.acceptor.close()
        self.lake.close()

    # ------------------------------------------------------------ requests
    def ingest(self, name: QualifiedName, given: Given) -> Answer:
        """One request, with its wait where it asks for one."""
        return self.answer(self.accept(name, given), wait=given.wait, timeout=given.timeout)

    def accept(self, name: QualifiedName, given: Given) -> Told:
        """All of a request is accepted, or as much as the table's policy says, or none."""
        try:
            if given.count > self.settings.max_records:
                raise RequestTooLarge(
                    f"the request has {given.count:,} records, more than {self.settings.max_records:,}"
                )
            try:
                return self._accept(name, given)
            except (NoIngestTable, DefinitionChanged):  # another table has the name by now, or it has another key
                self.codecs.get(name, fresh=True)
                return self._accept(name, given)
        except LakemillError as error:
            metrics.count_rejected(error.code, given.count)
            raise

    def _accept(self, name: QualifiedName, given: Given, replays: int | None = None) -> Told:
        codec, checked, refused = self._fit(name, given)
        if checked.bad and replays is not None:
            refused = refused or self._refused(codec, checked)
        if refused is not None and given.key is None:
            raise refused
        # one that does not fit is asked about all the same: it may have been accepted when it did
        sent = digest_of(*_records(codec, given)) if given.key is not None else b""
        request = Request(
            codec.ingest.table_id,
            codec.records.version,
            checked.lines,
            checked.positions,
            checked.keys,
            checked.digests,
            checked.bad,
            given.key,
            checked.digest + sent,
            codec.ingest.key,
            replays,
            refused,
        )
        accepted = self.acceptor.accept(request)
        _count(accepted)
        faults = () if accepted.repeated else self._faults(request.letters)
        return Told(name, request.table_id, accepted, faults)

    def _fit(self, name: QualifiedName, given: Given) -> tuple[Codec, Checked, BadRecords | None]:
        """The records as far as they fit; and why they are refused, where the policy does."""
        codec = self.codecs.get(name)
        checked = self._check(codec, given)
        if checked.bad and (fresh := self.codecs.get(name, fresh=True)) is not codec:
            codec, checked = fresh, self._check(fresh, given)
        if checked.bad and codec.ingest.policy is Policy.EVOLVE and given.op != "delete":  # only its key is looked at
            records = _records(codec, given)
            codec, wrong = evolved(self.codecs, codec, records, enveloped=given.enveloped, op=given.op)
            if wrong is not None:
                return codec, checked, self._refused(codec, wrong)
            given = replace(given, records=without_nulls(codec, records, enveloped=given.enveloped), arrow=None)
            checked = self._check(codec, given)
        if checked.bad and codec.ingest.policy is not Policy.DEAD_LETTER:
            return codec, checked, self._refused(codec, checked)
        return codec, checked, None

    def _check(self, codec: Codec, given: Given) -> Checked:
        return codec.records.check(
            _records(codec, given),
            enveloped=given.enveloped,
            op=given.op,
            digest=given.key is not None,
            volatile=lambda column, count: self.codecs.volatile(codec, column, count),
        )

    def _refused(self, codec: Codec, checked: Checked) -> BadRecords:
        bad, count = checked.bad, len(checked.bad) + len(checked.lines)
        more = f", and {len(bad) - 1} further ones" if len(bad) > 1 else ""
        return BadRecords(
            f"{bad[0].reason}{more}; of {count} records for {codec.ingest.name} none was accepted",
            faults=self._faults(checked.bad),
            place=bad[0].place,
        )

    def _faults(self, bad: Sequence[Any]) -> tuple[str, ...]:
        return tuple(map(str, bad[: self.settings.named_faults]))

    def answer(self, told: Told, *, wait: bool = False, timeout: float | None = None) -> Answer:
        """What the client is told; with ``wait`` after the request is visible, or the time is over."""
        accepted = told.accepted
        status = "partial_duplicate" if accepted.duplicate else "accepted"
        late, watermark = 0, None
        if wait:
            limit = self.settings.visibility_timeout.total_seconds() if timeout is None else timeout
            if self._wait is not None and self._wait(told.table_id, accepted.token, limit):
                with self.codecs.turn() as lake:
                    letters = store.letters_of(lake.conn, told.table_id, [accepted.token])
                    elsewhere = store.letters_of(lake.conn, told.table_id, accepted.originals)
                # those that were found when it should have become rows; the token may be another request's
                late = min(max(0, letters - accepted.rejected), accepted.accepted)
                status = status if letters or elsewhere else "visible"
            watermark = self.watermark()
        return Answer(
            status,
            accepted.accepted - late,
            accepted.duplicate,
            accepted.rejected + late,
            write_token(self.lake_id, accepted.token),
            watermark,
            accepted.repeated,
            told.faults,
        )

    # ------------------------------------------------------------ tokens
    def watermark(self) -> str:
        """How far everything is visible, as a token."""
        return write_token(self.lake_id, self.head().watermark)

    def head(self) -> Head:
        with self.codecs.turn() as lake:
            return watermarks.head(lake.conn)

    def number(self, token: str) -> int:
        """The number of a token of this lake."""
        return read_token(self.lake_id, token)

    # ------------------------------------------------------------ dead letters
    def replay(self, letter_id: int, payload: bytes | None = None, *, wait: bool = False) -> Answer:
        """Send a dead letter again, with another payload where one is given: a new write with a new token.

        Its keys don't count; the letter is marked in the same transaction.
        """
        with self.codecs.turn() as lake:
            letter = store.letter(lake.conn, letter_id)
            found = store.tables(lake.conn, lake.settings.lake.catalog_schema, letter.table_id)
        if not found:
            raise NoIngestTable(f"the table of letter {letter_id} is gone")
        if letter.state != "waiting":
            raise BadArgument(f"letter {letter_id} was {letter.state} already", remedy=ONCE)
        name = found[0].name
        op, record = _record(letter, self.codecs.get(name).table.columns)
        given = Given([payload if payload is not None else record], op=op)
        return self.answer(self._accept(name, given, letter_id), wait=wait)


def _count(told: Accepted) -> None:
    """A request that was there before has brought nothing new."""
    if told.repeated:
        metrics.count_accepted(0, told.accepted + told.duplicate)
        return
    metrics.count_accepted(told.accepted, told.duplicate)
    if told.rejected:
        metrics.count_rejected(BadRecords.code, told.rejected)


def _records(codec: Codec, given: Given) -> Sequence[bytes | Raw]:
    if given.arrow is None:
        return given.records
    from lakemill.runtime.arrow import arrow_rows

    return arrow_rows(given.arrow, codec.table.columns)


# ---------------------------------------------------------------- letters as they were kept
_fields = msgspec.json.Decoder(dict[str, Raw])


def _record(letter: Letter, columns: Sequence[Column]) -> tuple[Op, bytes]:
    """What a letter holds, as a bare row: it came in an envelope, as a row, or as a line of the bus."""
    try:
        fields = _fields.decode(letter.body)
    except msgspec.MsgspecError as error:
        raise BadArgument(
            f"letter {letter.id} is no object in JSON: {error}", remedy="replay it with a payload that is right"
        ) from error
    names = {column.name for column in columns}
    if set(fields) == {"o", "p"} and not {"o", "p"} <= names:
        row = _fields.decode(fields["p"])
        own = {column.name: column for column in columns}
        given = {name: _as_given(own[name], value) if name in own else value for name, value in row.items()}
        return _OPS[msgspec.json.decode(fields["o"])], msgspec.json.encode(given)
    if "payload" in fields and ("payload" not in names or ("op" in fields and "op" not in names)):
        op = msgspec.json.decode(fields.get("op", Raw(b'"insert"')))
        return (op if op in _OPS.values() else "insert"), bytes(fields["payload"])
    return "insert", letter.body.encode()


def _as_given(column: Column, value: Raw) -> Any:
    """A value of a line as a client would send it: documents are values again, not texts."""
    if not any(leaf.type == "json" for _, leaf in column.leaves()) or bytes(value) == b"null":
        return value
    if column.type == "json":
        return Raw(msgspec.json.decode(value, type=str).encode())
    if column.type == "struct":
        below = {child.name: child for child in column.children}
        return {name: _as_given(below[name], inner) for name, inner in _fields.decode(value).items()}
    parts = msgspec.json.decode(value, type=list[Raw])
    if column.type == "list":
        return [_as_given(column.children[0], part) for part in parts]
    entries = [_fields.decode(part) for part in parts]
    return [{n: _as_given(column.children[n == "value"], inner) for n, inner in entry.items()} for entry in entries]
