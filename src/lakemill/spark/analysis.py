"""What Spark itself says of a query in its own SQL: the columns of its answer, or what is wrong and where.

For ``runtime/analyse``: the query is analysed over empty relations with the columns of its sources, and not run.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemill.core import ducktypes
from lakemill.core.position import START, Position
from lakemill.core.references import Piece, origin, spliced
from lakemill.core.schema import quote_spark
from lakemill.core.sparksql import SparkQuery
from lakemill.errors import SqlFailed, UnsupportedType
from lakemill.spark import types

_PLACE = re.compile(r"line (\d+),? pos (\d+)")
_CONDITION = re.compile(r"^\[[\w.]+\] *")


def described(
    spark: SparkSession,
    query: SparkQuery,
    sources: Mapping[str, Mapping[str, str]],
    at: Position = START,
    file: str | None = None,
) -> list[tuple[str, str]]:
    """Names and DuckDB types of the columns; ``sources``: by ``schema.table``, columns with DuckDB's types."""
    prefix = f"lakemill_{uuid.uuid4().hex}_"
    views = {key: f"{prefix}{number}" for number, key in enumerate(sources)}
    pieces = query.pieces(views)
    try:
        for key, columns in sources.items():
            spark.sql(_nothing(key, columns)).createOrReplaceTempView(views[key])
        schema = spark.sql(spliced(query.text, pieces)).schema
    except PySparkException as error:
        raise _refused(error, query.text, pieces, views, at, file) from error
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
    return [(field.name, types.duck(field.dataType, field.name)) for field in schema.fields]


def _nothing(table: str, columns: Mapping[str, str]) -> str:
    """A relation of these columns, without rows."""
    values = []
    for name, type_ in columns.items():
        parsed = ducktypes.parse(type_)
        if parsed is None or not ducktypes.shared(parsed):
            raise UnsupportedType(f"column {name!r} of {table} is {type_}, which Spark has no type for")
        values.append(f"CAST(NULL AS {ducktypes.spark(parsed)}) AS {quote_spark(name)}")
    return f"SELECT {', '.join(values) or '1'} WHERE FALSE"


def _refused(
    error: PySparkException,
    text: str,
    pieces: tuple[Piece, ...],
    views: Mapping[str, str],
    at: Position,
    file: str | None,
) -> SqlFailed:
    told = str(error.getMessage() or error).strip().splitlines()
    message = _CONDITION.sub("", told[0] if told else type(error).__name__).partition(" SQLSTATE")[0]
    for key, view in views.items():
        message = message.replace(view, key)
    place = at
    if (found := _PLACE.search(str(error))) is not None:
        lines = spliced(text, pieces).split("\n")
        offset = sum(len(line) + 1 for line in lines[: int(found[1]) - 1]) + int(found[2])
        place = at.within(text, min(origin(pieces, offset), len(text)))
    return SqlFailed(message.rstrip(" ;"), remedy="correct the query", place=place.place(file))
