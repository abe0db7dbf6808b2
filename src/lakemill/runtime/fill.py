"""A new table that is filled under another name and takes its own as it is published: a first load, or a new state.

Between ``runtime/carry``, which says what goes into it, and ``lake/tables``, which makes it. Whatever fails before the
publish leaves neither table nor files behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemill.core.names import HIDDEN, QualifiedName, quote
from lakemill.core.scan import ReadPlan, TableAt
from lakemill.lake.duck import LAKE
from lakemill.lake.tables import Generation, abandon, abandon_all, build_generation
from lakemill.lake.target import read_target
from lakemill.runtime.write import State, Writing, leaving_nothing
from lakemill.spark.outputs import writer_path
from lakemill.spark.types import no_rows, shown_schema
from lakemill.store.definitions import OutputColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakemill.runtime.open import Lake


def state_name(dynamic_id: int, place: int) -> QualifiedName:
    """What a state of a dynamic table is called, by its place among them."""
    return QualifiedName(HIDDEN, f"s{dynamic_id}" if place == 0 else f"s{dynamic_id}_{place}")


@dataclass(frozen=True, slots=True)
class Filling:
    generation: Generation
    attempt: Writing

    @property
    def table(self) -> TableAt:
        return self.generation.table

    def read_back(self) -> DataFrame:
        """The rows that were written, though nobody else can see them yet."""
        spark, schema = self.attempt.lake.spark, shown_schema(self.table.columns)
        paths = [writer_path(path) for path in self.attempt.staged]
        return spark.read.schema(schema).parquet(*paths) if paths else no_rows(spark, schema)


@contextmanager
def new_table(
    lake: Lake, owner: str, name: QualifiedName, columns: Sequence[OutputColumn], partition_by: Sequence[str] = ()
) -> Iterator[Filling]:
    """An empty table that will have this name; ``owner`` marks it while it does not, and its forerunners go."""
    if name.schema == HIDDEN:
        lake.sql(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{quote(HIDDEN)}")
    catalog_schema = lake.settings.lake.catalog_schema
    abandon_all(lake.duck, lake.conn, name.schema, owner, catalog_schema=catalog_schema)
    generation = build_generation(
        lake.duck,
        lake.conn,
        name.schema,
        name.name,
        columns,
        partition_by,
        owner=owner,
        catalog_schema=catalog_schema,
    )
    with lake.catalog() as catalog:
        snapshot = catalog.head()
        target = read_target(lake.conn, generation.table)
        state = State(snapshot, generation.table, target, ReadPlan(generation.table, None, snapshot.id, ()))
    attempt = Writing(lake, state)
    with leaving_nothing(attempt, lambda: abandon(lake.duck, generation)):
        yield Filling(generation, attempt)
