"""Spark's configuration, as values: what a JVM is launched with, and what any session is set to.

`spark.session` puts them into the session. What must be known when a JVM starts is `launch` configuration; what makes
results right is `RUNTIME` configuration and is set on every kind of session, so that a shared server with other
defaults can't change an answer. Nothing here starts Spark.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lakemill.settings import Settings
from lakemill.spark import s3

RUNTIME: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # Pruning fields of a struct rebuilds its schema without the field ids: the fields would be read as NULL
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    # Both fail where a correlated subquery is selected over a UNION ALL (SPARK-59042); columns are pruned without them
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PushProjectionThroughUnion", "CombineUnions")
    ),
    # A UNION ALL of selected EXISTS below a join fails in it ("key not found"); what it infers are IS NOT NULL and such
    "spark.sql.constraintPropagation.enabled": "false",
    # To look for where partitions of unions in unions best run, Spark takes twice as long for each: minutes, then hours
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
    # DuckDB's dates are proleptic Gregorian, before 1582 too, and its files don't say so in Spark's words
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
PROFILES: Mapping[str, str] = {
    # C1 alone halves the CPU of start-up and of small jobs, and costs 1.8 × on long ones
    "small": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",  # C1's own 48 MB fill up
    "batch": "-XX:+UseParallelGC",
}


def launch_conf(settings: Settings) -> dict[str, str]:
    """All configuration of a session whose JVM starts here."""
    spark = settings.spark
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    logging = f"-Dlog4j2.configurationFile={log} -Dlakemill.log.level={spark.log_level}"
    conf = {
        "spark.app.name": "lakemill",
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraJavaOptions": f"{PROFILES[spark.profile]} {logging}",
        "spark.ui.enabled": "false",
        "spark.scheduler.mode": "FAIR",  # between the slots of a worker, which have a pool each
        "spark.ui.showConsoleProgress": "false",
        # a list of finished queries is kept without a UI too, and each holds its plan as text
        "spark.sql.ui.retainedExecutions": "50",
        "spark.sql.ui.explainMode": "simple",
        # one refresh compiles more classes than the 100 that Spark keeps: the next one would compile them all again
        "spark.sql.codegen.cache.maxEntries": "4000",
        # its parser keeps all that it learnt of texts, and we talk in texts: half a heap after some hundred queries
        "spark.sql.parser.manageParserCaches": "true",
        "spark.sql.parser.parserDfaCacheFlushRatio": "10",  # of the heap
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "lakemill-warehouse"),  # made only when used
    }
    if (spark.remote or spark.master).startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.on_s3:
        conf |= s3.launch_conf(settings)
    return conf | runtime_conf(settings)


def runtime_conf(settings: Settings) -> dict[str, str]:
    """Configuration that any session takes while it runs."""
    small = settings.spark.profile == "small"
    partitions = settings.spark.shuffle_partitions or (2 if small else 3 * (os.cpu_count() or 1))
    conf = dict(RUNTIME) | {"spark.sql.shuffle.partitions": str(partitions)}
    if small:
        conf["spark.sql.leafNodeDefaultParallelism"] = "2"
    if not settings.on_s3:  # to look at more than 32 files by a job, with a task for each, takes longer than to look
        conf["spark.sql.sources.parallelPartitionDiscovery.threshold"] = "10000"
    return conf | dict(settings.spark.conf)
