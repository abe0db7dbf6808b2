"""What tests of publishing share: a lake with the parts of a publish at hand, and stock DuckDB to judge the result."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemill.core.commit import AddFiles, DeleteFile, Intent, NewFile, Requirement, Update
from lakemill.core.scan import TableAt
from lakemill.core.schema import DELETE_PATH_FIELD, DELETE_POSITION_FIELD, ROW_ID_FIELD, ROW_ID_NAME
from lakemill.lake import duck
from lakemill.lake.catalog import reading
from lakemill.lake.footer import new_deletes, new_files
from lakemill.lake.publish import More, Published, Publisher
from lakemill.lake.staging import Staged, StagedDeletes, StagedFile
from lakemill.lake.storage import open_storage
from lakemill.lake.target import WriteTarget, read_target
from lakemill.settings import Settings
from lakemill.store import db
from lakemill.store.migrate import migrate
from tests.conftest import TestLake, new_database


@contextmanager
def one_lake(server: str, root: Path) -> Iterator[TestLake]:
    """A lake for a whole module: making one costs more than most tests."""
    with new_database(server) as dsn:
        root.mkdir(parents=True, exist_ok=True)
        settings = Settings.load(root, {"lake.postgres": dsn, "duck.threads": 2})
        with duck.connect(settings, dsn, create=True, inline=0) as connection:
            connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        yield TestLake(settings, dsn, settings.data_path)


@contextmanager
def one_desk(lake: TestLake, **options: Any) -> Iterator[Desk]:
    desk = Desk(lake, **options)
    try:
        yield desk
    finally:
        desk.close()


class Desk:
    """One publisher's desk at a lake: catalog, DuckDB, publisher."""

    def __init__(self, lake: TestLake, **options: Any) -> None:
        self.lake = lake
        self.conn = db.connect(lake.dsn)
        migrate(self.conn)
        self.duck = lake.duck()
        self.publisher = Publisher(lake.dsn, **options)
        self.storage = open_storage(lake.data_path, lake.settings.s3).staging()

    def close(self) -> None:
        self.publisher.close()
        self.duck.close()
        self.conn.close()

    def make(self, columns: str, *, by: str | None = None, name: str = "t") -> int:
        """A new table in the place of the old one; its id."""
        self.duck.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        if by is not None:
            self.duck.execute(f"ALTER TABLE {name} SET PARTITIONED BY ({by})")
        return self.table(name).id

    # ------------------------------------------------------------ looking
    def table(self, name: str = "t", schema: str = "main") -> TableAt:
        with reading(self.conn) as catalog:
            found: TableAt = catalog.table(schema, name, catalog.head().id)
            return found

    def target(self, name: str = "t", schema: str = "main") -> WriteTarget:
        with reading(self.conn) as catalog:
            return read_target(self.conn, catalog.table(schema, name, catalog.head().id))

    def head(self) -> int:
        return int(self.one("SELECT max(snapshot_id) FROM ducklake_snapshot")[0])

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> tuple[Any, ...]:
        row = self.conn.execute(query, values).fetchone()
        assert row is not None
        return row

    def stock(self, query: str) -> list[tuple[Any, ...]]:
        """What a fresh stock DuckDB answers."""
        with self.lake.duck() as connection:
            return connection.execute(query).fetchall()

    def data_files(self, name: str = "t") -> list[tuple[int, str, int]]:
        """Live data files: id, whole path, rows."""
        table = self.table(name)
        return [
            (id_, table.path + path if relative else path, count)
            for id_, path, relative, count in self.rows(
                "SELECT data_file_id, path, path_is_relative, record_count FROM ducklake_data_file"
                " WHERE table_id = %s AND end_snapshot IS NULL ORDER BY 1",
                table.id,
            )
        ]

    # ------------------------------------------------------------ writing, without Spark
    def stage(self, query: str, name: str = "t", *, row_ids: Sequence[int] | None = None) -> tuple[NewFile, ...]:
        """Files with the rows of a DuckDB query, with field ids, as Spark would leave them."""
        target = self.target(name)
        found = self.duck.execute(query).to_arrow_table()
        fields = [
            pa.field(c.name, found.schema.field(i).type, metadata={"PARQUET:field_id": str(c.id)})
            for i, c in enumerate(target.columns)
        ]
        columns = list(found.columns)
        if row_ids is not None:
            fields.append(pa.field(ROW_ID_NAME, pa.int64(), metadata={"PARQUET:field_id": str(ROW_ID_FIELD)}))
            columns.append(pa.array(row_ids, pa.int64()))
        path = f"{target.path}lakemill-{uuid.uuid4()}.parquet"
        Path(target.path).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, schema=pa.schema(fields)), path)
        file = StagedFile(path, path.removeprefix(target.path))
        return new_files(self.duck, Staged((file,), found.num_rows, keeps_row_ids=row_ids is not None), target)

    def stage_deletes(self, positions: dict[int, Sequence[int]], name: str = "t") -> tuple[DeleteFile, ...]:
        """Delete files for these positions by data file id, each in the place of the live one."""
        table = self.table(name)
        paths = {id_: path for id_, path, _ in self.data_files(name)}
        live = dict(
            self.rows(
                "SELECT data_file_id, delete_file_id FROM ducklake_delete_file"
                " WHERE table_id = %s AND end_snapshot IS NULL",
                table.id,
            )
        )
        staged = []
        for id_, found in positions.items():
            relative = f"lakemill-{uuid.uuid4()}-delete.parquet"
            write_positions(table.path + relative, paths[id_], found)
            staged.append(StagedDeletes(id_, StagedFile(table.path + relative, relative), len(found)))
        return new_deletes(self.duck, staged, live)

    def publish(
        self, *updates: Update, requires: Sequence[Requirement] = (), more: More | None = None, **words: Any
    ) -> Published:
        publish_id = words.pop("publish_id", None) or uuid.uuid4()
        return self.publisher.publish(Intent(publish_id, updates, tuple(requires), **words), more)

    def append(self, query: str, name: str = "t", **words: Any) -> Published:
        files = self.stage(query, name)
        return self.publish(AddFiles(self.table(name).id, files), **words)


def write_positions(path: str, data_path: str, positions: Sequence[int]) -> None:
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(DELETE_PATH_FIELD)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(DELETE_POSITION_FIELD)}),
        ]
    )
    pq.write_table(pa.table([[data_path] * len(positions), sorted(positions)], schema=schema), path)
