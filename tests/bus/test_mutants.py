"""Buses that are wrong in one thing each: the contract must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from lakemill.core.batch import Batch, Claim, Letter, Part, Reader
from lakemill.errors import ClaimLost
from lakemill.store import consumer, db
from lakemill.store.consumer import PostgresConsumer
from tests.bus import test_contract as contract
from tests.bus.conftest import Line, postgres_line


class LosesLetters(PostgresConsumer):
    def ack(
        self, transaction: Any, held: Claim, batch: Batch, snapshot_id: int, rows: int, letters: Sequence[Letter] = ()
    ) -> None:
        super().ack(transaction, held, batch, snapshot_id, rows)


class KeepsNoLedger(PostgresConsumer):
    def ack(
        self, transaction: Any, held: Claim, batch: Batch, snapshot_id: int, rows: int, letters: Sequence[Letter] = ()
    ) -> None:
        consumer._move(transaction, held, batch, None, 0, letters, len(letters))


class PassesApart(PostgresConsumer):
    """Not by the publish's transaction."""

    def ack(
        self, transaction: Any, held: Claim, batch: Batch, snapshot_id: int, rows: int, letters: Sequence[Letter] = ()
    ) -> None:
        with db.connect(self.dsn) as apart, apart.transaction():
            apart.execute("SET LOCAL lock_timeout = '1s'")
            super().ack(apart, held, batch, snapshot_id, rows, letters)


class TellsNobody(PostgresConsumer):
    def ack(
        self, transaction: Any, held: Claim, batch: Batch, snapshot_id: int, rows: int, letters: Sequence[Letter] = ()
    ) -> None:
        class Mute:
            def execute(self, query: Any, values: Any = None) -> Any:
                return None if "pg_notify" in str(query) else transaction.execute(query, values)

        super().ack(Mute(), held, batch, snapshot_id, rows, letters)  # type: ignore[arg-type]


class ChecksWithoutLock(PostgresConsumer):
    def require(self, transaction: Any, held: Claim) -> None:
        with db.connect(self.dsn) as apart:
            super().require(apart, held)


class ForgetsTheKey(PostgresConsumer):
    def require(self, transaction: Any, held: Claim) -> None:
        try:
            super().require(transaction, held)
        except ClaimLost as error:
            if "another key" not in str(error):
                raise


class LooksThenClaims(PostgresConsumer):
    def claim(self, table_id: int, holder: str, lease: timedelta) -> Claim | None:
        if table_id in dict(self.held()):
            return None
        self.conn.execute("UPDATE lakemill.ingest_tables SET expires_at = '-infinity'")
        return super().claim(table_id, holder, lease)


class ExtendsNothing(PostgresConsumer):
    def extend(self, held: Claim, lease: timedelta) -> None:
        if held.table_id not in dict(self.held()):
            raise ClaimLost("it has run out")


class PassesByWithoutClaim(PostgresConsumer):
    def pass_by(self, held: Claim, batch: Batch, letters: Sequence[Letter] = ()) -> None:
        with self.conn.transaction():
            consumer._move(self.conn, held, batch, None, 0, letters, len(letters))


class GivesBackWhatIsNotItsOwn(PostgresConsumer):
    def nack(self, held: Claim, reason: str, pause: timedelta) -> int | None:
        held = self.claim(held.table_id, held.holder, timedelta(minutes=1)) or held
        return super().nack(held, reason, pause)


class TidiesHalf(PostgresConsumer):
    def tidy(self, keep: timedelta) -> None:
        self.conn.execute(consumer.QUERIES["remove_passed"].compose(), {"most": consumer.REMOVED})


class ReadsByItsConnection(PostgresConsumer):
    def reader(self, table_id: int, parts: Sequence[Part]) -> Reader:
        conn, made = self.conn, super().reader(table_id, parts)
        return lambda batches: made(batches) if not conn.closed else ()


CAUGHT: dict[type[PostgresConsumer], Callable[[Line], None]] = {
    LosesLetters: contract.test_a_batch_is_passed_once,
    KeepsNoLedger: contract.test_a_batch_is_passed_once,
    PassesApart: contract.test_a_publish_that_fails_passes_nothing,
    TellsNobody: contract.test_who_waits_for_requests_and_for_batches_is_told,
    ChecksWithoutLock: contract.test_what_a_publish_requires_stays_so_until_it_ends,
    ForgetsTheKey: contract.test_a_batch_under_a_key_that_is_no_longer_the_tables_is_not_passed,
    LooksThenClaims: contract.test_of_many_who_want_it_one_gets_it,
    ExtendsNothing: contract.test_a_claim_lives_for_its_lease_and_longer_when_it_is_extended,
    PassesByWithoutClaim: lambda line: contract.test_nothing_can_be_done_by_a_claim_that_is_lost(line, "run out"),
    GivesBackWhatIsNotItsOwn: lambda line: contract.test_nothing_can_be_done_by_a_claim_that_is_lost(line, "released"),
    TidiesHalf: contract.test_tidying_raises_the_watermark_over_what_no_batch_will_have,
    ReadsByItsConnection: contract.test_executors_read_what_their_parts_hold,
}


@pytest.mark.parametrize("wrong", CAUGHT, ids=lambda wrong: wrong.__name__)
def test_a_wrong_bus_is_caught(tables: str, wrong: type[PostgresConsumer]) -> None:
    failures = (AssertionError, TypeError, pytest.fail.Exception)  # TypeError: what can't travel
    with postgres_line(tables, wrong) as line, pytest.raises(failures):
        CAUGHT[wrong](line)
