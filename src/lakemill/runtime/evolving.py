"""A table whose policy is ``evolve`` gets the columns that its records need, by DDL of the lake like anybody else's.

Called by ``runtime/ingest`` when records did not fit. One process at a time alters a table, and looks again first, so
that several who need the same column make it once. What the rules of ``core/evolve`` don't cover stays a bad record,
and a request that has one, and so is refused, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from lakemill.core import evolve
from lakemill.core.kinds import exact
from lakemill.core.records import Checked, Envelope, Op, Records
from lakemill.core.schema import Column
from lakemill.errors import PublishConflict
from lakemill.lake import tables
from lakemill.lake.tables import Alteration, Declared, Retype
from lakemill.runtime.codecs import Codec, Codecs
from lakemill.store import ingest as store

ATTEMPTS = 5
_object = msgspec.json.Decoder(dict[str, Any], float_hook=exact)
_raws = msgspec.json.Decoder(dict[str, Raw])
_envelope = msgspec.json.Decoder(Envelope)


def evolved(
    codecs: Codecs, codec: Codec, records: Sequence[bytes | Raw], *, enveloped: bool, op: Op
) -> tuple[Codec, Checked | None]:
    """The codec after the table has what these records need; or what would be wrong with them all the same."""
    payloads = list(_payloads(records, enveloped))
    name = codec.ingest.name
    for attempt in range(1, ATTEMPTS + 1):
        with codecs.turn() as lake, store.evolving(lake.conn, codec.ingest.table_id):
            codec = codecs.get(name, fresh=True)
            wanted = evolve.changes(codec.table.columns, payloads)
            if not wanted:
                return codec, None
            trial = _trial(codec, wanted)
            checked = trial.check(_without_nulls(trial.columns, records, enveloped), enveloped=enveloped, op=op)
            if checked.bad:
                return codec, checked
            altering: list[Alteration] = [
                Declared(one.name, one.type) if isinstance(one, evolve.Add) else Retype(one.name, one.type)
                for one in wanted
            ]
            try:
                tables.alter_table(lake.duck, codec.table.schema, codec.table.name, altering)
            except PublishConflict:  # somebody outside altered it at the same time
                if attempt == ATTEMPTS:
                    raise
            else:
                return codecs.get(name, fresh=True), None
    return codec, None


def _trial(codec: Codec, wanted: Iterable[evolve.Add | evolve.Widen]) -> Records:
    """The codec as it would be; whatever has a default would be filled."""
    columns = evolve.applied(codec.table.columns, wanted)
    filled = [column.name for column in columns if column.default not in (None, "NULL")]
    return Records(columns, codec.ingest.key, volatile=filled)


def without_nulls(codec: Codec, records: Iterable[bytes | Raw], *, enveloped: bool) -> list[bytes | Raw]:
    """The records without fields that no column has and that say nothing: NULL has no type to make a column of."""
    return _without_nulls(codec.table.columns, records, enveloped)


def _without_nulls(columns: Iterable[Column], records: Iterable[bytes | Raw], enveloped: bool) -> list[bytes | Raw]:
    known = {column.name for column in columns}
    found: list[bytes | Raw] = []
    for record in records:
        try:
            whole = _raws.decode(record)
            fields = _raws.decode(whole["payload"]) if enveloped else whole
        except (msgspec.MsgspecError, KeyError, RecursionError):
            found.append(record)
            continue
        kept = {name: value for name, value in fields.items() if name in known or bytes(value) != b"null"}
        found.append(msgspec.json.encode(whole | {"payload": kept} if enveloped else kept))
    return found


def _payloads(records: Iterable[bytes | Raw], enveloped: bool) -> Iterable[dict[str, Any]]:
    for record in records:
        try:
            if enveloped:
                envelope = _envelope.decode(record)
                if envelope.op != "delete":
                    yield _object.decode(envelope.payload)
            else:
                yield _object.decode(record)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
