"""The door for Python: ``lakemill.open()`` gives a lake, a lake gives tables, a table gives DataFrames.

    lake = lakemill.open("my-lake")
    orders = lake.table("main.orders")
    orders.scan(at=12, where="day >= '2026-01-01'")   # a Spark DataFrame
    orders.delta(12, 20)                              # its columns and __weight
    orders.append(frame)                              # published as one snapshot
    lake.create("CREATE DYNAMIC TABLE …")             # a query that Spark keeps fresh
    lake.refresh("by_day")
    lake.execute("ALTER DYNAMIC TABLE by_day SUSPEND") # any other statement about them

It wires settings, PostgreSQL, DuckDB and Spark together, each opened when first needed, and owns them until
``close()``. What to read is decided in ``lake/scan.py``, how in ``spark/inputs.py``; writing is ``runtime/write.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from lakemill.core.batch import Consumer
from lakemill.core.names import parse_name
from lakemill.core.scan import ReadPlan, Snapshot, TableAt
from lakemill.errors import BadStatement, DeltaInconsistent, EngineLost
from lakemill.lake import duck as duckdb
from lakemill.lake.catalog import reading
from lakemill.lake.inlined import inlined_table
from lakemill.lake.publish import Publisher
from lakemill.lake.scan import Lakefront, Recorded, as_written, count_rows, expected_change, plan_delta, plan_scan
from lakemill.lake.stamps import Stamps
from lakemill.lake.storage import Storage, open_storage
from lakemill.runtime import buses, write
from lakemill.settings import Settings
from lakemill.spark import session
from lakemill.spark.inputs import delta_frame, matching, observed_weights, scan_frame
from lakemill.store import db
from lakemill.store.embedded import store_dsn
from lakemill.store.migrate import migrate
from lakemill.telemetry import lineage, tracing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakemill.lake.publish import Published
    from lakemill.runtime.dynamic import Created
    from lakemill.runtime.explain import Explained
    from lakemill.runtime.point import Point
    from lakemill.runtime.show import Shown
    from lakemill.runtime.statements import Result
    from lakemill.runtime.verify import Verified
    from lakemill.store.history import RefreshRecord
    from lakemill.store.points import KeptPoint


def open(place: str | Path | Settings | None = None, *, flags: Mapping[str, object] | None = None) -> Lake:
    """Open the lake whose ``lakemill.toml`` is in this folder or above it, or that these settings describe."""
    settings = place if isinstance(place, Settings) else Settings.load(Path(place) if place else None, flags)
    return Lake(settings)


_LOST: list[duckdb.Connection] = []
"""To close a DuckDB that an error of its own has made invalid would end the process: these are kept, and not used."""


class Lake:
    """One open lake. Use it from one thread at a time, or open one per thread: they share the Spark session."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        if settings.telemetry.otlp_endpoint:
            tracing.configure(settings.telemetry.otlp_endpoint)
        if settings.telemetry.openlineage_url:
            lineage.configure(settings.telemetry.openlineage_url)
        self.dsn = store_dsn(settings)
        self._stamps: Stamps | None = None
        try:
            with self.catalog():  # refuse what is no lake of ours before anything of ours is written
                pass
            migrate(self.conn, settings.lake.catalog_schema)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({self.settings.data_path!r})"

    def close(self) -> None:
        """Close this lake's connections; the Spark session of the process stays."""
        for name in ("conn", "duck", "publisher"):
            opened = self.__dict__.pop(name, None)
            if opened is not None:
                opened.close()

    # ------------------------------------------------------------ parts
    @cached_property
    def conn(self) -> db.Connection:
        """This lake's PostgreSQL connection."""
        return db.connect(self.dsn, connect_timeout=self.settings.lake.connect_seconds)

    @cached_property
    def duck(self) -> duckdb.Connection:
        """A DuckDB connection with the lake attached as ``lake`` and in use."""
        return duckdb.connect(self.settings, self.dsn)

    def renew_duck(self) -> None:
        """Leave a DuckDB that is lost, and what reads by it; the next use opens another."""
        self._stamps = None
        if (opened := self.__dict__.pop("duck", None)) is not None:
            opened.close()

    def renew_conn(self) -> None:
        """Leave a PostgreSQL connection that is lost; the next use opens another."""
        if (opened := self.__dict__.pop("conn", None)) is not None:
            opened.close()

    @cached_property
    def publisher(self) -> Publisher:
        timeout = self.settings.lake.connect_seconds
        return Publisher(
            lambda: db.connect(self.dsn, connect_timeout=timeout),
            self.settings.publish,
            catalog_schema=self.settings.lake.catalog_schema,
        )

    @cached_property
    def storage(self) -> Storage:
        """Where the lake's files are."""
        return open_storage(self.settings.data_path, self.settings.s3)

    @property
    def spark(self) -> SparkSession:
        """The process's Spark session, started when first asked for."""
        return session.start(self.settings)

    @property
    def consumer(self) -> Consumer:
        return buses.consumer(self.conn, self.dsn)

    @property
    def front(self) -> Lakefront:
        if self._stamps is None:
            self._stamps = Stamps(self.duck)
        return Lakefront(self.conn, self.settings.lake.catalog_schema, self._stamps)

    def catalog(self) -> Any:
        """A ``Catalog`` over one consistent state: ``with lake.catalog() as catalog: …``."""
        return reading(self.conn, self.settings.lake.catalog_schema)

    # ------------------------------------------------------------ what users ask
    def snapshot(self, snapshot_id: int | None = None) -> Snapshot:
        """The newest snapshot, or the one with this id."""
        with self.catalog() as catalog:
            found: Snapshot = catalog.head() if snapshot_id is None else catalog.snapshot(snapshot_id)
            return found

    def table(self, name: str) -> Table:
        """A table by ``name`` or ``schema.name``; whether it exists is asked when it is used."""
        found = parse_name(name)
        return Table(self, found.schema, found.name)

    def sql(self, statement: str, parameters: Sequence[Any] | None = None) -> duckdb.Connection:
        """Run a statement by DuckDB on the lake; fetch from what is returned. Those about dynamic tables: `execute`."""
        _refuse_ours(statement)
        try:
            with duckdb.explained():
                return self.duck.execute(statement, parameters or [])
        except EngineLost:
            self._stamps = None
            if (lost := self.__dict__.pop("duck", None)) is not None:
                _LOST.append(lost)
            raise

    # ------------------------------------------------------------ dynamic tables
    def execute(self, statement: str) -> Result:
        """Carry out one statement about dynamic tables, whichever it is.

        CREATE gives a `Created`; ALTER … SET, UNSET and RENAME the `DynamicTable`; REFRESH `RefreshRecord`s; SUSPEND,
        RESUME and DROP the names of the tables that it changed; SHOW `Shown`s; DESCRIBE a `Described`; EXPLAIN REFRESH
        `Explained`s. None: IF EXISTS found nothing.
        """
        from lakemill.runtime.statements import execute

        return execute(self, statement)

    def create(self, sql: str) -> Created:
        """Carry out one CREATE DYNAMIC TABLE: what was declared, and the refreshes that loaded it."""
        from lakemill.core.ddl import parse_definition
        from lakemill.runtime import dynamic

        return dynamic.create(self, parse_definition(sql))

    def refresh(self, *names: str, full: bool = False) -> tuple[RefreshRecord, ...]:
        """Bring dynamic tables, and the suppliers that they need, to the newest snapshot.

        One record each, in order. One that failed is a record too, with ``outcome`` and ``error_code``; it does not
        raise. ``full`` computes the whole query; only what differs is written.
        """
        from lakemill.runtime.refresh import refresh

        return refresh(self, [parse_name(name) for name in names], full=full)

    def drop(self, name: str, *, cascade: bool = False) -> tuple[str, ...]:
        """Drop a dynamic table, with ``cascade`` all that read it too; the names of those that went."""
        from lakemill.core.position import START
        from lakemill.core.statement import Drop
        from lakemill.runtime import dynamic

        return tuple(map(str, dynamic.drop(self, Drop(START, parse_name(name), cascade=cascade))))

    def suspend(self, *names: str) -> tuple[str, ...]:
        """Halt dynamic tables, and all that read them; the names of those whose state changed."""
        from lakemill.runtime import halting

        return tuple(map(str, halting.suspend(self, [parse_name(name) for name in names])))

    def resume(self, *names: str) -> tuple[str, ...]:
        """Let them go on, with what waited for them and for nobody else; the names of those whose state changed."""
        from lakemill.runtime import halting

        return tuple(map(str, halting.resume(self, [parse_name(name) for name in names])))

    def explain(self, name: str) -> tuple[Explained, ...]:
        """What the next refresh would do, and why: of this table, last, and of what must be refreshed before it."""
        from lakemill.runtime.explain import explain_chain

        return explain_chain(self, parse_name(name))

    def verify(self, name: str, at: int | None = None) -> Verified:
        """Let DuckDB compute a dynamic table's query, as of now or of a snapshot, and compare."""
        from lakemill.runtime.verify import verify

        return verify(self, parse_name(name), at)

    def point(self, *names: str, ttl: timedelta = timedelta(hours=1)) -> Point:
        """The newest data snapshot at which all these tables are right, base tables too; kept readable for ``ttl``."""
        from lakemill.runtime.point import point

        return point(self, [parse_name(name) for name in names], ttl)

    def points(self) -> tuple[KeptPoint, ...]:
        """The newest consistent point of each component of the graph; these stay readable until they move on."""
        from lakemill.runtime.points import kept

        return kept(self)

    def dynamic_tables(self, like: str | None = None) -> tuple[Shown, ...]:
        """How the dynamic tables stand; ``like`` is a pattern for the name, with ``%``."""
        from lakemill.runtime.show import show

        return show(self, like)

    def history(self, name: str | None = None, *, limit: int = 10) -> tuple[RefreshRecord, ...]:
        """The newest refreshes of a dynamic table, or of all; a limit of 0 is none.

        Of a name that no table has any more, all that had it: history outlives DROP, and a first load that failed.
        """
        from lakemill.store import definitions, history

        if name is None:
            return history.history(self.conn, most=limit or None)
        wanted = parse_name(name)
        table = definitions.find(self.conn, wanted)
        known = [table.id] if table is not None else history.called(self.conn, wanted)
        if not known:
            definitions.get(self.conn, wanted)  # says that there is none
        return history.history(self.conn, known, limit or None)


def _refuse_ours(statement: str) -> None:
    """DuckDB would only say that it can't read it."""
    from lakemill.core.ddl import may_be_ours, parse_script
    from lakemill.core.statement import PlainSql

    ours = (one for one in parse_script(statement) if not isinstance(one, PlainSql)) if may_be_ours(statement) else ()
    for one in ours:
        raise BadStatement(
            "DuckDB does not know statements about dynamic tables", remedy="call lake.execute(…)", place=one.at.place()
        )


class Table:
    """A table of a lake, by name: what is read is decided anew at every call."""

    def __init__(self, lake: Lake, schema: str, name: str) -> None:
        self.lake, self.schema, self.name = lake, schema, name

    def __repr__(self) -> str:
        return f"Table({self.schema}.{self.name})"

    def describe(self, at: int | None = None) -> TableAt:
        """Id, path and columns at a snapshot."""
        with self.lake.catalog() as catalog:
            snapshot = catalog.head() if at is None else catalog.snapshot(at)
            found: TableAt = catalog.table(self.schema, self.name, snapshot.id)
            return found

    # ------------------------------------------------------------ reading
    def scan(self, at: int | None = None, where: str | None = None) -> DataFrame:
        """The rows at a snapshot (the newest when None).

        ``where`` is a Spark SQL condition; files that its comparisons with literals rule out are never opened.
        """
        return self.frame(self.plan_scan(at, where), where)

    def delta(self, a: int, b: int | None = None, recorded: Recorded | None = None) -> DataFrame:
        """What changed over (a, b], in the columns of b, with ``__weight``: copies at b minus copies at a."""
        return self.frame(self.plan_delta(a, b, recorded))

    def changes(self, a: int, b: int | None = None, recorded: Recorded | None = None) -> Delta:
        """The same delta with its plan and a check of its sum, for those who act on it."""
        plan = self.plan_delta(a, b, recorded)
        return Delta(plan, self.frame(plan), expected_change(plan, self.lake.front.stamps))

    def plan_scan(self, at: int | None = None, where: str | None = None) -> ReadPlan:
        """What a scan would read; asks the catalog, and the footers of delete files that were written later."""
        return plan_scan(self.lake.front, self.schema, self.name, at, where)

    def plan_delta(self, a: int, b: int | None = None, recorded: Recorded | None = None) -> ReadPlan:
        """What a delta would read, counted, after every check that can be made before Spark is asked."""
        return plan_delta(self.lake.front, self.schema, self.name, a, b, recorded)

    def frame(self, plan: ReadPlan, where: str | None = None, *, located: bool = False) -> DataFrame:
        """The DataFrame of a plan."""
        plan = as_written(plan, self.lake.front.stamps)
        inlined = [inlined_table(self.lake.duck, rows, plan.table.columns, plan.b) for rows in plan.inlined_rows]
        if plan.a is not None:
            return delta_frame(self.lake.spark, plan, inlined)
        frame = scan_frame(self.lake.spark, plan, inlined, located=located)
        return frame if where is None else matching(frame, where)

    # ------------------------------------------------------------ writing
    def append(self, frame: DataFrame, *, message: str | None = None) -> Published | None:
        """Add the frame's rows, as one snapshot; None when there were none."""
        return write.append(self, frame, message=message)

    def replace(self, frame: DataFrame, *, base: int | None = None, message: str | None = None) -> Published | None:
        """Give the table new content, as one snapshot; ``base`` is the snapshot that the frame was computed from."""
        return write.replace(self, frame, base=base, message=message)

    def delete(self, where: str, *, message: str | None = None) -> Published | None:
        """Remove the rows that meet a Spark SQL condition; None when there are none."""
        return write.delete(self, where, message=message)

    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        matched: Literal["update", "delete", "ignore"] = "update",
        unmatched: Literal["insert", "ignore"] = "insert",
        message: str | None = None,
    ) -> Published | None:
        """Update (or delete) the rows whose key the frame has, insert the others; see ``runtime/write.py``."""
        return write.merge(self, frame, on, matched=matched, unmatched=unmatched, message=message)

    def count(self, at: int | None = None) -> int:
        """Visible rows at a snapshot, from the catalog; no Spark job."""
        with self.lake.catalog() as catalog:
            snapshot = catalog.head() if at is None else catalog.snapshot(at)
            return count_rows(
                catalog, self.lake.front.stamps, catalog.table(self.schema, self.name, snapshot.id), snapshot
            )


class Delta:
    """A delta that counts itself: what its weights add up to must be what the catalog says."""

    def __init__(self, plan: ReadPlan, frame: DataFrame, expected: int) -> None:
        self.plan, self.expected = plan, expected
        self.frame, self._observed = observed_weights(frame)

    def check(self, found: int | None = None) -> None:
        """Call it after an action on ``frame``; refuses a delta that can't be right.

        ``found`` is what the weights add up to, from a caller who iterated over all rows: Spark does not watch that.
        """
        found = self._observed() if found is None else found
        if found != self.expected:
            raise DeltaInconsistent(
                f"the delta of {self.plan.table.full_name} over ({self.plan.a}, {self.plan.b}] changes the row count by"
                f" {found}, the catalog says {self.expected}"
            )
