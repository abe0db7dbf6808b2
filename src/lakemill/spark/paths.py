"""How Spark wants a path, and how it spells one back.

The catalog holds plain paths; Hadoop takes some characters for patterns, and ``_metadata.file_path`` quotes others.
Both directions are here, because a delete that is matched by a wrong spelling is lost without a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from lakemill.errors import InternalError
from lakemill.lake.gone import gone_for_spark


def reader_path(path: str) -> str:
    """A path for ``spark.read``: s3 through s3a, and characters that Hadoop takes for a pattern escaped."""
    path = re.sub(r"^s3://", "s3a://", path)
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def read_parquet(spark: SparkSession, schema: t.StructType, paths: Iterable[str]) -> DataFrame:
    """The rows of these files of the lake.

    A file that is gone is told here by classic sessions, which look for it at once; Spark Connect, and a file that goes
    later, tell it when the frame is used: ``outputs.explained_write`` knows it then.
    """
    try:
        return spark.read.schema(schema).parquet(*[reader_path(path) for path in paths])
    except (PySparkException, Py4JJavaError) as error:
        if gone := gone_for_spark(error):
            raise gone from error
        raise


def spark_uri(spark: SparkSession, path: str) -> str:
    """A path as ``_metadata.file_path`` spells it: a java.net.URI of which only illegal characters are quoted."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return _prefix(spark, path, "") + _quote(path)
    authority, _, tail = rest.partition("/")
    root = f"{'s3a' if scheme == 's3' else scheme}://{authority}"
    return _prefix(spark, path, root) + _quote("/" + tail)


_prefixes: dict[tuple[int, str], str] = {}


def _prefix(spark: SparkSession, path: str, root: str) -> str:
    """What stands before the path, learned from Spark itself once per root: ``file:`` in one release, ``file://`` in
    another. A wrong guess would lose deletes without a word."""
    known = _prefixes.get((id(spark), root))
    if known is not None:
        return known
    tail = _quote(path.removeprefix(re.sub("^s3a:", "s3:", root)))
    row = read_parquet(spark, t.StructType([]), [path]).select("_metadata.file_path").first()
    if row is None:  # a file without rows has no positions either
        return root or "file:"
    if not row[0].endswith(tail):
        raise InternalError(f"Spark names the file {path} as {row[0]}, which does not end in {tail}")
    return _prefixes.setdefault((id(spark), root), row[0].removesuffix(tail))


_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=/@")


def _quote(path: str) -> str:
    out = []
    for char in re.sub("/+", "/", path):
        legal = char in _LEGAL or (ord(char) > 127 and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp"))
        out.append(char if legal else "".join(f"%{byte:02X}" for byte in char.encode()))
    return "".join(out)
