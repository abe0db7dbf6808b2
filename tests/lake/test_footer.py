"""Footers as the catalog wants them: exact or absent, and no file that is not whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemill.core.commit import AddFiles, NewFile
from lakemill.core.schema import Column
from lakemill.errors import InternalError, StorageUnavailable, WrongType
from lakemill.lake import duck
from lakemill.lake.footer import new_files, parquet_leaves, read_footers
from lakemill.lake.staging import Staged, StagedFile
from lakemill.lake.target import WriteTarget, name_map
from lakemill.settings import Settings
from tests.publishing import Desk, one_desk, one_lake

ID = Column(1, "id", "int32", nulls_allowed=False)
NAME = Column(2, "name, first", "varchar")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duck.Connection]:
    with duck.connect(Settings(root=tmp_path_factory.mktemp("footer")), "", attach=False) as found:
        yield found


def save(
    folder: Path, name: str, rows: list[tuple[Any, Any]], columns: tuple[Column, ...] = (ID, NAME), **options: Any
) -> str:
    fields = [
        pa.field(c.name, pa.int32() if c.type == "int32" else pa.string(), metadata={"PARQUET:field_id": str(c.id)})
        for c in columns
    ]
    path = str(folder / f"{name}.parquet")
    pq.write_table(
        pa.table([list(column) for column in zip(*rows, strict=True)], schema=pa.schema(fields)), path, **options
    )
    return path


def test_figures_of_several_files_and_row_groups(connection: duck.Connection, tmp_path: Path) -> None:
    first = save(tmp_path, "a", [(9, "b"), (10, "a"), (-1, None), (100, None)], row_group_size=2)
    second = save(tmp_path, "b", [(5, None)])
    a, b = read_footers(connection, [first, second], (ID, NAME), expected_rows=5)
    assert (a.path, a.rows, a.size_bytes) == (first, 4, Path(first).stat().st_size)
    content = Path(first).read_bytes()
    assert a.footer_size == int.from_bytes(content[-8:-4], "little")
    numbers, names = a.columns
    assert (numbers.column_id, numbers.min, numbers.max, numbers.value_count, numbers.null_count) == (
        1,
        "-1",
        "100",
        4,
        0,
    )
    assert (names.column_id, names.min, names.max, names.value_count, names.null_count) == (2, "a", "b", 2, 2)
    assert numbers.size_bytes is not None
    assert (b.columns[1].min, b.columns[1].value_count, b.columns[1].null_count) == (None, 0, 1)


def test_no_files_no_footers(connection: duck.Connection) -> None:
    assert read_footers(connection, [], (ID,), expected_rows=0) == []


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_spark_and_the_files_must_agree(connection: duck.Connection, tmp_path: Path, expected: int) -> None:
    path = save(tmp_path, "a", [(1, "x"), (2, "y")])
    with pytest.raises(StorageUnavailable, match=f"wrote {expected} rows, but the files hold 2"):
        read_footers(connection, [path], (ID, NAME), expected_rows=expected)


def test_a_file_that_is_not_whole_is_not_published(connection: duck.Connection, tmp_path: Path) -> None:
    path = save(tmp_path, "a", [(1, "x")])
    Path(path).write_bytes(Path(path).read_bytes()[:-10])
    for broken in (path, str(tmp_path / "none.parquet")):
        with pytest.raises(StorageUnavailable):
            read_footers(connection, [broken], (ID, NAME))


def test_files_must_carry_field_ids_or_a_mapping(connection: duck.Connection, tmp_path: Path) -> None:
    path = str(tmp_path / "plain.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), NAME.name: ["x"]}), path)
    with pytest.raises(InternalError, match="no field ids for id"):
        read_footers(connection, [path], (ID, NAME), check_ids=True)
    assert read_footers(connection, [path], (ID, NAME))[0].rows == 1


def test_columns_must_be_where_they_were_written(connection: duck.Connection, tmp_path: Path) -> None:
    path = save(tmp_path, "a", [(1, "x")])
    with pytest.raises(InternalError, match="where"):
        read_footers(connection, [path], (NAME, ID))


def test_not_null_holds(connection: duck.Connection, tmp_path: Path) -> None:
    path = save(tmp_path, "a", [(1, "x"), (None, "y")])
    target = WriteTarget(7, "main.t", f"{tmp_path}/", (ID, NAME))
    staged = Staged((StagedFile(path, "a.parquet"),), 2)
    with pytest.raises(WrongType, match="'id' is NOT NULL, but 1 rows"):
        new_files(connection, staged, target)


def test_leaves_are_in_file_order_with_sparks_names() -> None:
    dates = Column(6, "b", "list", (Column(7, "element", "date"),))
    element = Column(4, "element", "struct", (Column(5, "a", "int32"), dates))
    table = Column(1, "m", "map", (Column(2, "key", "varchar"), Column(3, "value", "list", (element,))))
    assert [(path, leaf.id) for path, leaf in parquet_leaves(table)] == [
        (("m", "key_value", "key"), 2),
        (("m", "key_value", "value", "list", "element", "a"), 5),
        (("m", "key_value", "value", "list", "element", "b", "list", "element"), 7),
    ]


def test_a_name_mapping_is_written_once(postgres: str, tmp_path: Path) -> None:
    """Tables with lists need a mapping; equal ones are used again, and stock reads through them."""
    with one_lake(postgres, tmp_path / "mapping") as lake, one_desk(lake) as desk:
        table_id = desk.make('id INTEGER, "l" INTEGER[]')
        target = desk.target()
        assert target.mapping == name_map(target.columns)
        for start in (0, 10):
            desk.publish(AddFiles(table_id, (_list_file(desk, target, start),)))
        assert desk.stock("SELECT id, l FROM t ORDER BY id") == [(0, [1, 2]), (1, None), (10, [1, 2]), (11, None)]
        assert desk.rows("SELECT count(*) FROM ducklake_column_mapping") == [(1,)]
        assert len(desk.rows("SELECT DISTINCT mapping_id FROM ducklake_data_file WHERE table_id = %s", table_id)) == 1
        names = desk.rows(
            "SELECT column_id, source_name, target_field_id, parent_column FROM ducklake_name_mapping ORDER BY 1"
        )
        assert names == [(0, "id", 1, None), (1, "l", 2, None), (2, "list", 3, 1)]
        desk.duck.execute("CALL ducklake_merge_adjacent_files('lake')")
        assert desk.stock("SELECT id FROM t WHERE l[2] = 2 ORDER BY id") == [(0,), (10,)]


def _list_file(desk: Desk, target: WriteTarget, start: int) -> NewFile:
    path = f"{target.path}list-{start}.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"id": pa.array([start, start + 1], pa.int32()), "l": pa.array([[1, 2], None], pa.list_(pa.int32()))}
    )
    pq.write_table(table, path)
    staged = Staged((StagedFile(path, path.removeprefix(target.path)),), 2, target.mapping)
    (file,) = new_files(desk.duck, staged, target)
    return file
