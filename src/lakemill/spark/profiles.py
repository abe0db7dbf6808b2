"""What Spark is set to while a refresh works: by the plan's profile, or by the bytes that it reads.

Put on the thread's own session (``spark/session``) around lines 8 to 10 of a refresh, and taken off after them. Only
what a running session takes is here, and nothing that an answer depends on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from lakemill.core.plan import Profile
from lakemill.core.profile import BATCH, SMALL, require_profile
from lakemill.errors import BadSettings
from lakemill.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES, TINY_BYTES = 64 << 20, 4 << 20
"""What reads fewer takes longer to plan again on the way, or even to compile, than to do.

At 128 MB it does not: TPC-H 3 and 5 at SF10 have half the jobs and take three times as long, because Spark then takes a
delta that it has not computed yet for large, and sorts what it is joined with.
"""
_PARTITIONS = "spark.sql.shuffle.partitions"
SMALL_WORK: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # it makes every stage a job
    _PARTITIONS: "2",
}
TINY_WORK: Mapping[str, str] = {
    **SMALL_WORK,
    "spark.sql.codegen.wholeStage": "false",
    _PARTITIONS: "1",  # with what is read in one partition, too, nothing is moved: a job is one task
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # each broadcast would be a job of its own
}
LEAST_PARTITIONS, MOST_PARTITIONS = 200, 20_000
KEYS_A_PARTITION = 250_000
"""Of a shuffle of batch work: a task's memory is bounded by it, however many keys there are."""

_lock = threading.RLock()
_sized: dict[int, tuple[int, dict[str, str | None]]] = {}
"""By session: how many work on it, and what was set before, if anything was."""


def size_conf(size: int) -> Mapping[str, str]:
    """Spark's settings for work that reads this many bytes."""
    return TINY_WORK if size < TINY_BYTES else SMALL_WORK if size < SMALL_BYTES else {}


def in_one_piece(spark: SparkSession, size: int) -> bool:
    """Whether so many bytes are best read in one partition: where they are few, and all ends in one anyway."""
    return size < TINY_BYTES and spark.conf.get(_PARTITIONS, None) == "1"


def profile_conf(profile: Profile, size: int, settings: Settings) -> dict[str, str]:
    """Spark's settings for work of this profile that reads this many bytes."""
    by_size = size_conf(size)
    if profile.name is None:
        return dict(by_size)
    require_profile(profile.name, settings.spark.profiles)
    own = settings.spark.profiles.get(profile.name, {})
    if profile.name == SMALL:
        return {**SMALL_WORK, **by_size, **own}
    if profile.name == BATCH:
        wanted = max(LEAST_PARTITIONS, profile.affected // profile.batches // KEYS_A_PARTITION)
        batch = {
            "spark.sql.adaptive.enabled": "true",  # which makes fewer of many small partitions
            _PARTITIONS: str(settings.spark.shuffle_partitions or min(wanted, MOST_PARTITIONS)),
        }
        return {**batch, **{key: value for key, value in settings.spark.conf.items() if key in batch}, **own}
    return dict(own)


@contextmanager
def profiled(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """For the body, Spark is set so.

    Threads that share a session share the setting: while one of them works, the others do theirs in its profile.
    """
    if not conf:
        yield
        return
    with _lock:
        count, before = _sized.get(id(spark), (0, {}))
        if count == 0:
            before = {name: spark.conf.get(name, None) for name in conf}
            _put(spark, conf, before)
        _sized[id(spark)] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            count, before = _sized.pop(id(spark))
            if count > 1:
                _sized[id(spark)] = count - 1, before
            else:
                _restore(spark, before)


def _put(spark: SparkSession, conf: Mapping[str, str], before: Mapping[str, str | None]) -> None:
    for name, value in conf.items():
        try:
            spark.conf.set(name, value)
        except (OSError, Py4JError):
            raise
        except Exception as error:  # Spark's own, of a value that it does not take
            _restore(spark, before)
            told = str(error).splitlines()[0]
            raise BadSettings(f"{name} = {value} can't be set: {told}", place="spark.profiles") from error


def _restore(spark: SparkSession, before: Mapping[str, str | None]) -> None:
    with suppress(OSError, Py4JError):  # a JVM that is gone needs no settings, and its loss is being told
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
