"""Every state of random histories of stock DuckDB, read from an excerpt: the rows that were true when it was committed.

The histories are those of `tests/fuzz`: interleaved transactions, inlined rows, back-dated deletes, merges, rewrites,
changed columns, added files, expired snapshots. What is read is what an executor reads, with all bounds that the
catalog has, so that a file that is spared by mistake shows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from lakemill.core.names import quote
from lakemill.core.scan import ReadPlan
from lakemill.errors import CatalogInconsistent, DeleteInDoubt, LakemillError
from lakemill.gateway import executor
from lakemill.gateway.excerpt import excerpt
from lakemill.lake import duck
from lakemill.lake.catalog import Catalog, reading
from lakemill.lake.scan import scan_in
from lakemill.lake.stamps import Stamps
from lakemill.settings import Settings
from lakemill.store import db
from tests.conftest import CONFINEMENT
from tests.fuzz.generate import generate
from tests.fuzz.history import History, forget
from tests.fuzz.sandbox import fetch
from tests.fuzz.truth import Bag, State, canonical_rows

SEEDS = int(os.environ.get("LAKEMILL_TEST_GATEWAY_BATCH", "3"))
FIRST = int(os.environ.get("LAKEMILL_TEST_GATEWAY_SEED", "1"))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "temp").mkdir()
    return {
        "memory": 10**9,
        "temp": str(tmp_path / "temp"),
        "temp_bytes": 10**9,
        "extensions": [str(duck.wheel_file("ducklake") or "ducklake")],
        "statements": [],
    }


def test_every_state_of_a_history_is_read_as_it_was(postgres: str, tmp_path: Path, config: dict[str, Any]) -> None:
    read: Counter[str] = Counter()
    wrong: list[str] = []
    for seed, written in generate(range(FIRST, FIRST + SEEDS), postgres, tmp_path, 1):
        if not isinstance(written, History):
            read["the extension aborted"] += 1
            continue
        with db.connect(make_conninfo(postgres, dbname=written.name)) as conn:
            for line in judged(conn, written, config, read):
                wrong.append(f"seed {seed}: {line}")
        forget(written, postgres)
    print(read)
    assert not wrong
    assert read["states"] > SEEDS


def judged(conn: db.Connection, history: History, config: dict[str, Any], read: Counter[str]) -> Iterator[str]:
    settings = Settings.load(history.root, {"duck.threads": 1, "query.confinement": CONFINEMENT})
    with duck.connect(settings, "", attach=False) as own:
        stamps = Stamps(own)
        for at, states in history.truth.states.items():
            good = {name: state for name, state in states.items() if not history.truth.is_lost(name, at)}
            with reading(conn) as catalog:
                try:
                    snapshot = catalog.snapshot(at)
                except LakemillError:
                    continue  # expired
                plans: dict[str, ReadPlan] = {}
                for name, state in good.items():
                    try:
                        table = catalog.table("main", state.name, at)
                        plans[name] = scan_in(catalog, stamps, table, snapshot)
                    except (DeleteInDoubt, CatalogInconsistent) as error:
                        read[error.code] += 1
                bounds = {plan.table.id: all_bounds(catalog, plan) for plan in plans.values()}
            extract = excerpt(snapshot, list(plans.values()), [], bounds)
            with executor.prepare(config) as connection:
                executor.fill(connection, extract.message)
                for name in plans:
                    read["states"] += 1
                    yield from different(connection, good[name], f"{name} at {at}")


def all_bounds(catalog: Catalog, plan: ReadPlan) -> list[tuple[Any, ...]]:
    columns = [column.id for column in plan.table.columns if not column.nested and column.id not in plan.retyped]
    return catalog.bounds(plan.table, [read.file.id for read in plan.files], columns)


def different(connection: duck.Connection, state: State, where: str) -> Iterator[str]:
    names = [quote(column.name) for column in state.columns]
    table = f"main.{quote(state.name)}"
    got = canonical_rows(state.columns, fetch(connection, f"SELECT {', '.join(names)} FROM {table}"))
    if got != state.rows:
        yield f"{where}: {counted(got - state.rows)} too many, {counted(state.rows - got)} missing"
        return
    rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    if rows != (counted(state.rows),):
        yield f"{where}: count(*) {rows} of {counted(state.rows)}"
    for place, (column, name) in enumerate(zip(state.columns, names, strict=True)):
        nulls = connection.execute(f"SELECT count(*) FROM {table} WHERE {name} IS NULL").fetchone()
        if nulls != (wanted := sum(n for row, n in state.rows.items() if row[place] is None),):
            yield f"{where}: {name} IS NULL {nulls}, not {wanted}"
        if column.children or column.type in ("float32", "float64", "json"):
            continue
        # each value is found by itself, whatever the bounds of its file say
        among = f"SELECT count(*) FROM {table} t WHERE {name} IS NOT NULL AND {name} NOT IN ("
        among += f"SELECT x.{name} FROM {table} x JOIN (SELECT max({name}) m FROM {table}) ON x.{name} = m)"
        top = connection.execute(
            f"SELECT count(*) FROM {table} WHERE {name} = (SELECT max({name}) FROM {table})"
        ).fetchone()
        rest = connection.execute(among).fetchone()
        if (top or (0,))[0] + (rest or (0,))[0] != counted(state.rows) - wanted:
            yield f"{where}: {name}: {top} + {rest} of {counted(state.rows) - wanted}"


def counted(bag: Bag) -> int:
    return sum(bag.values())
