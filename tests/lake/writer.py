"""One of several writers on shared tables, in a process of its own: ``python -m tests.lake.writer JSON``.

Commits a number of times, as a Lakemill publisher or as stock DuckDB, and prints what it committed as JSON: the ids
that it put into each table and those that it took out again. What meets a conflict is tried again, as any program
would.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from lakemill.core.commit import AddFiles, DeletePositions, NoConflict, Purpose, Update
from lakemill.errors import PublishConflict
from lakemill.lake.duck import DuckError
from lakemill.settings import Settings
from tests.conftest import TestLake
from tests.publishing import Desk

TABLES = ("t", "u")
ROWS = 3


class Writer:
    def __init__(self, desk: Desk, number: int) -> None:
        self.desk, self.number = desk, number
        self.random = random.Random(number)
        self.next = number * 1_000_000
        self.put: dict[str, list[int]] = {name: [] for name in TABLES}
        self.taken: dict[str, list[int]] = {name: [] for name in TABLES}
        self.conflicts = 0

    def run(self, commits: int, kind: str) -> None:
        for turn in range(commits):
            name = self.random.choice(TABLES)
            mine = sorted(set(self.put[name]) - set(self.taken[name]))
            if turn % 7 == 6 and mine:
                getattr(self, f"{kind}_delete")(name, self.random.choice(mine))
            else:
                getattr(self, f"{kind}_insert")(name)

    def _query(self) -> str:
        self.next += ROWS
        return f"SELECT range::INTEGER AS id, 'w{self.number}' AS s FROM range({self.next - ROWS}, {self.next})"

    # ------------------------------------------------------------ stock DuckDB
    def stock_insert(self, name: str) -> None:
        query = self._query()
        self._again(f"INSERT INTO {name} {query}")
        self.put[name] += range(self.next - ROWS, self.next)

    def stock_delete(self, name: str, id_: int) -> None:
        self._again(f"DELETE FROM {name} WHERE id = {id_}")
        self.taken[name].append(id_)

    def _again(self, statement: str) -> None:
        while True:
            try:
                self.desk.duck.execute(statement)
                return
            except DuckError as error:
                if "conflict" not in str(error).lower():
                    raise
                self.conflicts += 1

    # ------------------------------------------------------------ Lakemill
    def lakemill_insert(self, name: str) -> None:
        query = self._query()
        table_id = self.desk.table(name).id
        both = self.random.random() < 0.2  # two tables in one snapshot
        updates: list[Update] = [AddFiles(table_id, self.desk.stage(query, name))]
        first = range(self.next - ROWS, self.next)
        other = next(table for table in TABLES if table != name)
        if both:
            updates.append(AddFiles(self.desk.table(other).id, self.desk.stage(self._query(), other)))
        self.desk.publish(*updates, requires=self.desk.target(name).requirements)
        self.put[name] += first
        if both:
            self.put[other] += range(self.next - ROWS, self.next)

    def lakemill_delete(self, name: str, id_: int) -> None:
        while True:
            base = self.desk.head()
            table_id = self.desk.table(name).id
            try:
                file_id, position, before = self._find(name, id_, base)
                deletes = self.desk.stage_deletes({file_id: sorted({*before, position})}, name)
                requires = [NoConflict(table_id, base, Purpose.CHANGE)]
                self.desk.publish(DeletePositions(table_id, deletes), requires=requires)
            except PublishConflict:
                self.conflicts += 1
                continue
            self.taken[name].append(id_)
            return

    def _find(self, name: str, id_: int, base: int) -> tuple[int, int, list[int]]:
        """Where the row is, and what is deleted from its file already."""
        for file_id, path, _ in self.desk.data_files(name):
            rows = [row[0] for row in self.desk.duck.execute("SELECT id FROM read_parquet(?)", [path]).fetchall()]
            if id_ in rows:
                found = self.desk.rows(
                    "SELECT path FROM ducklake_delete_file WHERE data_file_id = %s AND end_snapshot IS NULL", file_id
                )
                base_path = self.desk.table(name).path
                deletes = [base_path + row[0] for row in found]
                before = (
                    self.desk.duck.execute("SELECT pos FROM read_parquet(?)", [deletes]).fetchall() if deletes else []
                )
                return file_id, rows.index(id_), [row[0] for row in before]
        raise PublishConflict(f"{id_} is in no file at {base}")


def main(root: str, dsn: str, kind: str, number: int, commits: int) -> None:
    settings = Settings.load(Path(root), {"lake.postgres": dsn, "duck.threads": 1})
    desk = Desk(TestLake(settings, dsn, settings.data_path))
    writer = Writer(desk, number)
    print("ready", flush=True)
    sys.stdin.readline()
    writer.run(commits, kind)
    print(json.dumps({"put": writer.put, "taken": writer.taken, "conflicts": writer.conflicts}), flush=True)
    desk.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
