"""Requests in the bus → typed rows of a table, strictly: every record becomes a row or has a fault that is named.

The first half of a batch. Executors read the requests themselves (``core/batch.Consumer.reader``) and take them apart:
lines, JSON with every leaf as text, then casts to the table's types that change no value. What does not fit is a
*fault* (code, place, reason) beside the record, never a NULL and never a rounded number. No record passes through the
driver. ``spark/changes`` compares with the table, ``spark/outputs`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from lakemill.core.batch import Consumer, Part
from lakemill.core.schema import Column, blob_bytes, quote_spark, shown_type
from lakemill.errors import LakemillError, UnknownColumn, WrongType
from lakemill.spark import types
from lakemill.spark.casting import fit, is_json
from lakemill.spark.changes import GONE
from lakemill.spark.columns import show
from lakemill.spark.outputs import explained_write
from lakemill.spark.texts import fits

TOKEN, AT, FAULT = "__lakemill_token", "__lakemill_at", "__lakemill_fault"
BAD_RECORD, NO_VALUE = "BAD_RECORD", "NO_VALUE"
_PARSED, _BAD, _KEYS = "__lakemill_parsed", "__bad", "__keys"
_TOLD = 200
_ANY = t.MapType(t.StringType(), t.StringType())
_NO_FAULT = t.StructType([t.StructField(name, t.StringType()) for name in ("code", "place", "reason")])


@dataclass(frozen=True, slots=True)
class Layout:
    """What the records of a batch become."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Names of columns; with any, records may be deletes."""
    checked: bool = False
    """Whether the columns may be others than when the records were accepted."""
    drops: bool = False
    """Whether fields that no column has any more are left out; else the record has a fault."""
    renamed: tuple[tuple[str, int], ...] = ()
    """Names that columns had before, and their ids."""
    foreign: tuple[str, ...] = ()
    """Columns whose name meant another one when the records were accepted: what stands under it is not theirs."""

    def is_key(self, column: Column) -> bool:
        return column.name.lower() in {name.lower() for name in self.key}

    def is_foreign(self, column: Column) -> bool:
        return column.name in self.foreign

    def names(self, column: Column) -> list[str]:
        """Under which its value may stand."""
        return [*([] if self.is_foreign(column) else [column.name]), *self.older_names(column)]

    def older_names(self, column: Column) -> list[str]:
        return [name for name, column_id in self.renamed if column_id == column.id]


@dataclass(frozen=True, slots=True)
class _Work:
    """The expressions of a layout, which know nothing of the batch."""

    lines: Expr
    fault: Expr
    gone: Expr
    values: list[Expr]


_works: WeakKeyDictionary[SparkSession, dict[Layout, _Work]] = WeakKeyDictionary()
"""Each is hundreds of talks with the JVM, and the next batch of the table needs the same."""
_MOST = 100


def _work(spark: SparkSession, layout: Layout) -> _Work:
    known = _works.setdefault(spark, {})
    if layout not in known:
        if len(known) >= _MOST:
            known.clear()
        gone = (_read(layout).getField("o") == "d").alias(GONE)
        values = [_value(layout, column).alias(column.name) for column in layout.columns]
        known[layout] = _Work(_lines(layout), _fault(layout).alias(FAULT), gone, values)
    return known[layout]


def requests(spark: SparkSession, consumer: Consumer, table_id: int, parts: Sequence[Part]) -> DataFrame:
    """Token and body of each request; one task reads one part."""
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(consumer.reader(table_id, parts), "token bigint, body string")


def judged(frame: DataFrame, layout: Layout, counts: Observation | None = None) -> DataFrame:
    """One row a record: token, position, what was read, and its fault or NULL. ``counts``: records and faults."""
    work = _work(frame.sparkSession, layout)
    found = frame.select(F.col("token").alias(TOKEN), work.lines).select("*", work.fault)
    if counts is None:
        return found
    return found.observe(counts, F.count(F.lit(1)).alias("records"), F.count(F.col(FAULT)).alias("faults"))


def _lines(layout: Layout) -> Expr:
    """Position and record of each line of a body."""
    schema = t.StructType(
        [
            t.StructField("o", t.StringType()),
            t.StructField("p", t.StructType([t.StructField(c.name, _texts(c)) for c in layout.columns])),
            t.StructField(_BAD, t.StringType()),
        ]
    )
    fields = t.StructType([t.StructField("p", _ANY)])
    options = {"columnNameOfCorruptRecord": _BAD}

    def parse(line: Expr) -> Expr:
        read = F.from_json(line, schema, options)
        return F.struct(read.alias("r"), F.from_json(line, fields).alias(_KEYS)) if layout.checked else read

    # inside the generator, so that a line is parsed once however often its fields are used
    return F.posexplode(F.transform(F.split(F.col("body"), "\n"), parse)).alias(AT, _PARSED)


def sound(found: DataFrame, layout: Layout) -> DataFrame:
    """The records without a fault: the table's columns, with token, position and whether it is a delete beside them."""
    work = _work(found.sparkSession, layout)
    return found.where(F.col(FAULT).isNull()).select(TOKEN, AT, work.gone, *work.values)


def faults(found: DataFrame) -> list[tuple[int, int, str, str, str]]:
    """Token, position, code, place and reason of each record that has one; they are few."""
    with explained_write():
        rows = found.where(F.col(FAULT).isNotNull()).select(TOKEN, AT, f"{FAULT}.*").orderBy(TOKEN, AT).collect()
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def rows(frame: DataFrame, layout: Layout) -> DataFrame:
    """Of `sound` records what is appended: the table's columns alone."""
    return frame.select(*(F.col(quote_spark(column.name)) for column in layout.columns))


def last_writes(frame: DataFrame, layout: Layout, ends: Observation, *, together: bool = False) -> DataFrame:
    """Of `sound` records the last one a key, in token order: columns ``n0``, ``n1`` … in shown form, and GONE.

    ``ends``: how many there are, and the lowest and the highest value of the first key column, as texts. ``together``:
    in one partition, where they are few.
    """
    frame = frame.coalesce(1) if together else frame
    stored = frame.select(*fit(frame, layout.columns, also=[TOKEN, AT, GONE]), TOKEN, AT, GONE)
    # by way of the stored form, which has one text for each UUID and one order of struct fields
    shown = stored.select(
        *(
            show(F.col(quote_spark(c.name)), c).cast(types.shown(c)).alias(f"n{i}")
            for i, c in enumerate(layout.columns)
        ),
        TOKEN,
        AT,
        GONE,
    )
    keys = [f"n{i}" for i, column in enumerate(layout.columns) if layout.is_key(column)]
    newest = Window.partitionBy(*keys).orderBy(F.desc(TOKEN), F.desc(AT))
    last = shown.withColumn("__nth", F.row_number().over(newest)).where("__nth = 1").drop("__nth", TOKEN, AT)
    low, high = (of(keys[0]).cast("string").alias(name) for of, name in ((F.min, "low"), (F.max, "high")))
    return last.observe(ends, F.count(F.lit(1)).alias("writes"), low, high)


def without(frame: DataFrame, places: Sequence[tuple[int, int]]) -> DataFrame:
    """`Sound` records but for these, by token and position."""
    for token, at in places:
        frame = frame.where((F.col(TOKEN) != token) | (F.col(AT) != at))
    return frame


def refusal(
    frame: DataFrame, layout: Layout, token: int, last_token: int, first: int, last: int
) -> LakemillError | None:
    """Why some of these `sound` records can't be written: computed as for a write, and thrown away."""
    some = frame.where(F.col(TOKEN).between(token, last_token) & F.col(AT).between(first, last))
    try:
        with explained_write():
            some = rows(some, layout)
            some.select(*fit(some, layout.columns)).write.format("noop").mode("overwrite").save()
    except WrongType as error:
        return error
    return None


# ---------------------------------------------------------------- what was read
def _texts(column: Column) -> t.DataType:
    """The column's nesting, with every leaf as text; a map is a list of entries."""
    match column.type:
        case "struct":
            return t.StructType([t.StructField(child.name, _texts(child)) for child in column.children])
        case "list":
            return t.ArrayType(_texts(column.children[0]))
        case "map":
            key, value = map(_texts, column.children)
            return t.ArrayType(t.StructType([t.StructField("key", key), t.StructField("value", value)]))
    return t.StringType()


def _read(layout: Layout) -> Expr:
    return F.col(_PARSED).getField("r") if layout.checked else F.col(_PARSED)


def _text(layout: Layout, column: Column) -> Expr:
    """A field as it was read; under the column's older names too, where it has any."""
    found = _read(layout).getField("p").getField(column.name)
    if not layout.checked:
        return found
    kind = _texts(column)
    own = F.lit(None).cast(kind) if layout.is_foreign(column) else found
    older = (F.try_element_at(_given(), F.lit(name)) for name in layout.older_names(column))
    if isinstance(kind, t.StructType | t.ArrayType):
        return F.coalesce(own, *(F.from_json(text, kind) for text in older))
    return F.coalesce(own, *older)


def _given() -> Expr:
    """The payload's fields by name, as texts."""
    return F.col(_PARSED).getField(_KEYS).getField("p")


def _value(layout: Layout, column: Column) -> Expr:
    value = _typed(_text(layout, column), column)
    default = column.initial_default
    if not layout.checked or default is None or column.nested:
        return value
    # the column was added after the record was accepted: what rows of that time read
    filled = F.lit(blob_bytes(default)) if column.type == "blob" else _typed(F.lit(default), column)
    return F.when(_is_given(layout, column), value).otherwise(filled)


def _is_given(layout: Layout, column: Column) -> Expr:
    names = layout.names(column)
    return F.arrays_overlap(F.map_keys(_given()), F.array(*map(F.lit, names))) if names else F.lit(False)


def _typed(value: Expr, column: Column) -> Expr:
    """Text → shown form, by casts that fail where a text is no value of the type."""
    match column.type:
        case "struct":
            fields = [_typed(value.getField(child.name), child).alias(child.name) for child in column.children]
            return F.when(value.isNotNull(), F.struct(*fields))
        case "list":
            return F.transform(value, lambda item: _typed(item, column.children[0]))
        case "map":
            key, inner = column.children

            def entry(item: Expr) -> Expr:
                return F.struct(_typed(item.getField("key"), key), _typed(item.getField("value"), inner))

            return F.map_from_entries(F.transform(value, entry))
        case "blob":
            return F.to_binary(value, F.lit("base64"))
        case "varchar" | "json" | "uuid":
            return value
    return value.cast(types.scalar(shown_type(column)))


# ---------------------------------------------------------------- what is wrong with it
def _fault(layout: Layout) -> Expr:
    """The first fault of a record; NULL where there is none."""
    read = _read(layout)
    operation = read.getField("o")
    known = ("i", "u", "d") if layout.key else ("i",)
    bad = read.getField(_BAD).isNotNull() | read.getField("p").isNull() | operation.isNull()
    whole = [F.when(bad, _told(BAD_RECORD, "", F.lit("it is no record of this table")))]
    told = F.concat(F.lit("the operation is "), operation)
    whole.append(F.when(~operation.isin(*known), _told(BAD_RECORD, "o", told)))
    keys = [column for column in layout.columns if layout.is_key(column)]
    others = [column for column in layout.columns if not layout.is_key(column)]
    whole += [found for column in keys for found in _faults(layout, column)]
    rest = [found for column in others for found in _faults(layout, column)]
    if layout.checked and not layout.drops:
        rest = [*_strangers(layout), *rest]
    if rest:  # of a delete only the key matters
        whole.append(F.when(operation != "d", F.coalesce(*rest)))
    return F.coalesce(*whole, F.lit(None).cast(_NO_FAULT))


def _faults(layout: Layout, column: Column) -> list[Expr]:
    text = _text(layout, column)
    wrong = _wrong(text, column, column.name)
    found = [] if wrong is None else [wrong]
    if layout.is_key(column) or not column.nulls_allowed:
        missing = text.isNull()
        if layout.checked and column.initial_default is not None and not layout.is_key(column):
            missing = missing & _is_given(layout, column)
        told = F.lit(f"column {column.name!r} may not be NULL")
        found.append(F.when(missing, _told(NO_VALUE, column.name, told)))
    return found


def _wrong(value: Expr, column: Column, place: str) -> Expr | None:
    """A fault where a text, or one inside, is no value of the type; None where every text is one."""
    match column.type:
        case "struct":
            inner = [_wrong(value.getField(c.name), c, f"{place}.{c.name}") for c in column.children]
            found = [one for one in inner if one is not None]
            return F.coalesce(*found) if found else None
        case "list":
            return _wrong_inside(value, column.children[0], f"{place}[]")
        case "map":
            key, inner_column = column.children
            keys = F.transform(value, lambda item: item.getField("key"))
            told = F.lit(f"column {place!r} is a map: its keys may not be NULL, nor the same twice")
            bad = F.exists(keys, F.isnull) | (F.size(F.array_distinct(keys)) < F.size(keys))
            parts = [
                F.when(bad, _told(WrongType.code, place, told)),
                _wrong_inside(keys, key, f"{place}.key"),
                _wrong_inside(F.transform(value, lambda item: item.getField("value")), inner_column, f"{place}.value"),
            ]
            return F.coalesce(*(part for part in parts if part is not None))
        case "json":
            good: Expr | None = is_json(value)
        case _:
            good = fits(value, column)
    if good is None:
        return None
    told = F.concat(
        F.lit(f"column {place!r} is {column.type.upper()}, which can't hold "), F.substring(value, 1, _TOLD)
    )
    return F.when(value.isNotNull() & ~F.coalesce(good, F.lit(False)), _told(WrongType.code, place, told))


def _wrong_inside(values: Expr, column: Column, place: str) -> Expr | None:
    if _wrong(F.lit(None).cast(_texts(column)), column, place) is None:
        return None

    def fault(item: Expr) -> Expr:
        found = _wrong(item, column, place)
        assert found is not None  # noqa: S101  (asked above)
        return found

    return _first(F.transform(values, fault))


def _strangers(layout: Layout) -> list[Expr]:
    """Faults for fields that no column, or no field of a struct, has."""
    names = [name for column in layout.columns for name in layout.names(column)]
    found = [_unknown(F.map_keys(_given()), names, "")]
    for column in layout.columns:
        if column.nested and not layout.is_key(column):
            for name in layout.names(column):
                found += _inner_strangers(F.try_element_at(_given(), F.lit(name)), column, name)
    return found


def _inner_strangers(text: Expr, column: Column, place: str) -> list[Expr]:
    match column.type:
        case "struct":
            fields = F.from_json(text, "map<string,string>")
            found = [_unknown(F.map_keys(fields), [child.name for child in column.children], f"{place}.")]
            for child in column.children:
                if child.nested:
                    found += _inner_strangers(
                        F.try_element_at(fields, F.lit(child.name)), child, f"{place}.{child.name}"
                    )
            return found
        case "list" if column.children[0].nested:
            return _in_elements(F.from_json(text, t.ArrayType(t.StringType())), column.children[0], f"{place}[]")
        case "map" if column.children[1].nested:
            entries = F.from_json(text, t.ArrayType(_ANY))
            values = F.transform(entries, lambda entry: F.try_element_at(entry, F.lit("value")))
            return _in_elements(values, column.children[1], f"{place}.value")
    return []


def _in_elements(texts: Expr, column: Column, place: str) -> list[Expr]:
    if not _inner_strangers(F.lit(""), column, place):
        return []
    return [_first(F.transform(texts, lambda text: F.coalesce(*_inner_strangers(text, column, place))))]


def _unknown(given: Expr, names: Sequence[str], place: str) -> Expr:
    strange = F.get(F.array_except(given, F.array(*map(F.lit, names)).cast("array<string>")), F.lit(0))
    path = F.concat(F.lit(place), strange)
    told = F.concat(F.lit("the table has no column "), path, F.lit(" any more"))
    return F.when(strange.isNotNull(), _told(UnknownColumn.code, path, told))


def _first(found: Expr) -> Expr:
    return F.get(F.filter(found, F.isnotnull), F.lit(0))


def _told(code: str, place: str | Expr, reason: Expr) -> Expr:
    where = F.lit(place) if isinstance(place, str) else place
    return F.struct(F.lit(code).alias("code"), where.alias("place"), reason.alias("reason"))
