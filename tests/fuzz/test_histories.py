"""Random histories, a bounded number with fixed seeds; `make fuzz-lake N=1000` runs as many as you like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SECOND_JVM
from tests.fuzz.check import QUICK
from tests.fuzz.history import machine
from tests.fuzz.run import Options, run
from tests.fuzz.sandbox import read_rows
from tests.fuzz.statements import Model, Statement
from tests.fuzz.values import Scalar

BATCH = int(os.environ.get("LAKEMILL_TEST_FUZZ_BATCH", "8"))
BATCHES = range(2)
FIRST_SEED = int(os.environ.get("LAKEMILL_TEST_FUZZ_SEED", "1"))


@pytest.fixture
def quick(spark: Any) -> Iterator[None]:
    """The session belongs to other tests too: after ours it is as it was."""
    yield
    for key in QUICK:
        spark.conf.unset(key)


@SECOND_JVM
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["stock", "mixed"])
@pytest.mark.parametrize("batch", BATCHES)
def test_random_histories(kind: str, batch: int, postgres: str, tmp_path: Path) -> None:
    first = FIRST_SEED + batch * BATCH
    report = run([kind], range(first, first + BATCH), Options(postgres, tmp_path, frames=4))
    print(report.text())
    assert not report.failed, report.text()
    assert report.questions["scans"] > BATCH


def test_a_flush_by_stock_alone_forgets_when_a_row_died(postgres: str, tmp_path: Path) -> None:
    """What the histories leave out, and no more: the extension loses it without us (mixed 9026)."""
    model = Model("t", "id", (("id", Scalar("INTEGER")),), inlined=True)
    with machine(2, "flush", postgres, tmp_path) as it:
        given, writer = it.box.root / "given" / "t.parquet", it.writers[0]
        it.reader.execute(f"COPY (SELECT i::INTEGER AS id FROM range(10) r(i)) TO '{given}' (FORMAT parquet)")
        writer.connection.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
        it.history.truth.states[it.box.head()] = {}

        def commit(sql: str) -> int:
            it.begin(writer)
            assert it.run(writer, Statement("step", sql, model))
            assert it.commit(writer)
            return it.box.head()

        add, delete = f"CALL ducklake_add_data_files('lake', 't', '{given}')", "DELETE FROM t WHERE id = 3"
        commit("CREATE TABLE t (id INTEGER)")
        commit(add)
        died = commit(delete)
        it.upkeep(writer, "flush", "CALL ducklake_flush_inlined_data('lake')")
        assert not it.history.truth.forgotten
        commit(add)
        again = commit(delete)  # of the other copy; the extension writes it down for the first one
        it.upkeep(writer, "flush", "CALL ducklake_flush_inlined_data('lake')")
        assert it.history.truth.forgotten == {"t": set(range(died, again))}
        wrong = {
            at
            for at, states in it.history.truth.states.items()
            if states and read_rows(it.reader, "t", states["t"].columns, at) != states["t"].rows
        }
        assert wrong == set(range(died, again))


def test_a_commit_by_stock_alone_takes_the_id_of_an_expired_snapshot(postgres: str, tmp_path: Path) -> None:
    """A DELETE that began before that snapshot commits into the past (stock 20250)."""
    with machine(3, "expired", postgres, tmp_path) as it:
        slow, quick = (writer.connection for writer in it.writers[:2])
        quick.execute("CREATE TABLE t AS SELECT i::INTEGER AS id FROM range(500) r(i)")
        quick.execute("CREATE TABLE o (id INTEGER)")
        slow.execute("BEGIN")
        slow.execute("DELETE FROM t WHERE id < 100")
        quick.execute("INSERT INTO o VALUES (2)")
        taken = it.box.head()
        quick.execute("INSERT INTO o VALUES (3)")
        head = it.box.head()
        quick.execute(f"CALL ducklake_expire_snapshots('lake', versions => [{taken}])")
        assert taken not in it.box.readable()
        slow.execute("COMMIT")
        assert (it.box.head(), taken in it.box.readable()) == (head, True)
