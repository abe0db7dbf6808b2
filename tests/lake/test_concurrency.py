"""Two Lakemill publishers and two stock DuckDB writers on shared tables: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TestLake
from tests.lake.writer import TABLES
from tests.publishing import Desk, one_desk, one_lake

HERE = Path(__file__).parents[2]
KINDS = ("lakemill", "lakemill", "stock", "stock")
COMMITS = 50


@pytest.fixture(scope="module")
def lake(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestLake]:
    with one_lake(postgres, tmp_path_factory.mktemp("concurrency")) as lake:
        yield lake


@pytest.mark.timeout(900)
def test_four_processes_make_200_commits(lake: TestLake) -> None:
    with one_desk(lake) as desk:
        for name in TABLES:
            desk.make("id INTEGER, s VARCHAR", name=name)
        begin = desk.head()
        told = run(lake)
        check(desk, begin, told)


def run(lake: TestLake) -> list[dict[str, Any]]:
    children = []
    for number, kind in enumerate(KINDS):
        words = {"root": str(lake.settings.root), "dsn": lake.dsn, "kind": kind, "number": number, "commits": COMMITS}
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.lake.writer", json.dumps(words)],
                cwd=HERE,
                env={**os.environ, "PYTHONPATH": str(HERE / "src")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:  # all at once
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [json.loads(child.communicate(timeout=800)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * len(KINDS)
    return told


def check(desk: Desk, begin: int, told: list[dict[str, Any]]) -> None:
    assert desk.head() - begin == len(KINDS) * COMMITS, "one snapshot a commit"
    labelled = desk.rows("SELECT count(*) FROM ducklake_snapshot_changes WHERE snapshot_id > %s", begin)
    assert labelled == [(len(KINDS) * COMMITS,)]
    assert desk.one("SELECT count(*), count(DISTINCT snapshot_id) FROM lakemill.publishes") == (
        2 * COMMITS,
        2 * COMMITS,
    )
    for name in TABLES:
        put = sorted(id_ for one in told for id_ in one["put"][name])
        taken = {id_ for one in told for id_ in one["taken"][name]}
        left = [id_ for id_ in put if id_ not in taken]
        assert [row[0] for row in desk.stock(f"SELECT id FROM {name} ORDER BY id")] == left, name
        assert desk.stock(f"SELECT count(*), min(id), max(id) FROM {name}") == [(len(left), left[0], left[-1])]
        table_id = desk.table(name).id
        totals = desk.one("SELECT record_count, next_row_id FROM ducklake_table_stats WHERE table_id = %s", table_id)
        assert totals == (len(put), len(put)), "statistics count every row that was ever put in"
        bounds = desk.one(
            "SELECT min_value, max_value, contains_null FROM ducklake_table_column_stats"
            " WHERE table_id = %s AND column_id = 1",
            table_id,
        )
        assert bounds == (str(put[0]), str(put[-1]), False)
        ranges = desk.rows(
            "SELECT row_id_start, record_count FROM ducklake_data_file WHERE table_id = %s ORDER BY 1", table_id
        )
        end = 0
        for start, count in ranges:
            assert start == end, "row-id ranges touch and don't overlap"
            end = start + count
        assert end == len(put)
        doubled = desk.rows(
            "SELECT data_file_id FROM ducklake_delete_file"
            " WHERE table_id = %s AND end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1",
            table_id,
        )
        assert doubled == [], "one live delete file per data file"
    times = desk.rows("SELECT count(*) FROM ducklake_data_file GROUP BY data_file_id HAVING count(*) > 1")
    assert times == []
