"""What the lake must hold, computed from the journals of all producers, and compared: nothing lost, nothing twice.

Each acknowledged request is there exactly once, under the token that was told, every time that it was told; one that
was not answered is there whole or not at all. Rows that are appended, the last write of each key in the order of
tokens, dead letters: all at the end, and at every snapshot that a batch made, so that no token became visible before
an earlier one of its table.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lakemill.runtime.open import Lake
from tests.ingest.checkers import content
from tests.ingest.journal import Journals, Kind, Request
from tests.ingest.producers import TABLES

COLUMNS = {"plain": "req, i, v", "noted": "req, i, v", "keyed": "req, k, v"}
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Batch:
    first: int
    token: int
    snapshot: int | None
    records: int
    letters: int


@dataclass(slots=True)
class Kept:
    """What the lake says that it accepted."""

    requests: dict[tuple[Kind, str], int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    """Keys of records, of the one table that has them."""
    batches: dict[Kind, list[Batch]] = field(default_factory=dict)
    letters: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    head: tuple[int, int] = (0, 0)
    """The last token, and the watermark."""

    @classmethod
    def read(cls, lake: Lake) -> Kept:
        ids = {lake.table(table).describe().id: table for table in TABLES}
        ask = lake.conn.execute
        kept = cls(head=(ask("SELECT token, watermark FROM lakemill.bus_head").fetchone() or (0, 0)))
        for id_, key, token in ask("SELECT table_id, key, token FROM lakemill.request_keys").fetchall():
            kept.requests[ids[id_], key] = token
        kept.records = dict(ask("SELECT key, token FROM lakemill.record_keys").fetchall())
        kept.batches = {table: [] for table in TABLES}
        columns = "table_id, first, token, snapshot_id, records, letters"
        for id_, *row in ask(f"SELECT {columns} FROM lakemill.batches ORDER BY token").fetchall():
            kept.batches[ids[id_]].append(Batch(*row))
        letters = ask("SELECT token, body FROM lakemill.dead_letters WHERE state = 'waiting'").fetchall()
        kept.letters = [(token, json.loads(body)) for token, body in letters]
        return kept


Ask = Callable[[str], Any]
"""DuckDB on the lake: a query → what its rows are fetched from."""


def judge(kept: Kept, journals: Journals, ask: Ask) -> list[str]:
    """Everything that is wrong."""
    tokens = _tokens(journals, kept)
    order = {table: _ordered(journals, table, tokens) for table in TABLES}
    wrong = [*journals.wrong, *_answers(journals, tokens), *_whole(journals, kept, tokens), *_gaps(kept, tokens)]
    wrong += _ledger(kept, order)
    for table in TABLES:
        wrong += _history(ask, table, kept, [(token, _fresh(one, kept, token)) for token, one in order[table]])
    return [*wrong, *_letters(journals, kept)]


def _ordered(journals: Journals, table: Kind, tokens: dict[str, int]) -> list[tuple[int, Request]]:
    """The requests of a table that were accepted, by token."""
    found = (one for one in journals.requests.values() if one.table == table and one.key in tokens)
    return sorted(((tokens[one.key], one) for one in found), key=lambda pair: pair[0])


def _tokens(journals: Journals, kept: Kept) -> dict[str, int]:
    """The token of every request that was accepted: by its key, else by that of its first record, which is new."""
    found = {}
    for one in journals.requests.values():
        token = kept.requests.get((one.table, one.key)) if one.keyed else kept.records.get(one.records[0].key or "")
        if token is not None:
            found[one.key] = token
    return found


def _fresh(request: Request, kept: Kept, token: int) -> Request:
    """Without records that an earlier request brought."""
    if request.table != "noted":
        return request
    mine = tuple(record for record in request.records if record.key and kept.records.get(record.key) == token)
    return Request(request.key, request.table, mine)


# ---------------------------------------------------------------- what producers were told
def _answers(journals: Journals, tokens: dict[str, int]) -> Iterable[str]:
    for told in journals.answers:
        if tokens.get(told.key) != told.token:
            yield f"LOST: {told} was told, and the lake has {tokens.get(told.key)}"
    for one in journals.requests.values():
        if one.refused and one.key in tokens:
            yield f"{one.key} was refused, and has the token {tokens[one.key]}"


def _whole(journals: Journals, kept: Kept, tokens: dict[str, int]) -> Iterable[str]:
    """A request with keys of records is there with all its records, or with none but those that came before."""
    for one in journals.requests.values():
        own = {record.key: kept.records.get(record.key) for record in one.records if record.key}
        mine = {token for key, token in own.items() if key.rpartition("/")[0] == one.key}
        if mine and mine != {tokens.get(one.key)}:
            yield f"PARTLY: {one.key} has the token {tokens.get(one.key)}, its records {mine}"


def _gaps(kept: Kept, tokens: dict[str, int]) -> Iterable[str]:
    head, watermark = kept.head
    if watermark != head:
        yield f"the watermark is {watermark}, the last token {head}"
    given = Counter(tokens.values())
    if twice := [token for token, count in given.items() if count > 1]:
        yield f"tokens of several requests: {twice[:SHOWN]}"
    if missing := set(range(1, head + 1)) ^ set(given):
        yield f"{len(missing)} tokens that no request has, or beyond the head: {sorted(missing)[:SHOWN]}"


# ---------------------------------------------------------------- what became visible, when
def _ledger(kept: Kept, order: dict[Kind, list[tuple[int, Request]]]) -> Iterable[str]:
    for table, batches in kept.batches.items():
        for before, after in pairwise(batches):
            if after.first <= before.token or (after.snapshot or 10**18) <= (before.snapshot or 0):
                yield f"{table}: {after} came after {before}"
        waiting = {token for token, one in order[table] if any(record.good for record in one.records)}
        covered = {token for token in waiting if any(one.first <= token <= one.token for one in batches)}
        if table != "noted" and waiting != covered:
            yield f"{table}: no batch has {sorted(waiting - covered)[:SHOWN]}"


def _history(ask: Ask, table: Kind, kept: Kept, order: Sequence[tuple[int, Request]]) -> Iterable[str]:
    """Its rows, at each snapshot of a batch and now."""
    states = [(one.token, one.snapshot) for one in kept.batches[table] if one.snapshot is not None]
    for token, snapshot in [*states, (kept.head[0], None)]:
        at = "" if snapshot is None else f" AT (VERSION => {snapshot})"
        found = Counter(ask(f"SELECT {COLUMNS[table]} FROM {table}{at}").fetchall())
        wanted = Counter(content([one for number, one in order if number <= token]))
        if found == wanted:
            continue
        of = {one.key: number for number, one in order}
        lost, more = wanted - found, found - wanted
        where = "at the end" if snapshot is None else f"at snapshot {snapshot}, up to token {token}"
        yield (
            f"{table} {where}: LOST {lost.total()} rows {_shown(lost, of)}; DOUBLED, or too early or too late,"
            f" {more.total()} {_shown(more, of)}"
        )


def _shown(rows: Counter[Any], of: dict[str, int]) -> list[Any]:
    return [(row, count, f"token {of.get(row[0])}") for row, count in list(rows.items())[:SHOWN]]


def _letters(journals: Journals, kept: Kept) -> Iterable[str]:
    wanted: Counter[tuple[int, str]] = Counter()
    by_key: dict[str, bool] = defaultdict(bool)
    for one in journals.requests.values():
        by_key |= {record.key: record.good for record in one.records if record.key}
    for key, token in kept.records.items():
        if not by_key[key]:
            wanted[token, key] += 1
    found = Counter((token, str(body.get("idempotency_key"))) for token, body in kept.letters)
    if found != wanted:
        yield f"dead letters: missing {list(wanted - found)[:SHOWN]}, more {list(found - wanted)[:SHOWN]}"
