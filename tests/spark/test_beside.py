"""A Spark job beside another: it counts as its caller's, has the caller's session, and never outlives the body."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from lakemill.spark.beside import beside
from lakemill.spark.status import grouped_jobs


def test_its_jobs_are_the_callers(spark: Any) -> None:
    with grouped_jobs(spark, str(uuid.uuid4())) as alone:
        assert spark.range(20).count() == 20
        one = alone.spent()
    with grouped_jobs(spark, str(uuid.uuid4())) as status:
        with beside(spark, lambda: spark.range(10).count()) as counted:
            assert spark.range(20).count() == 20
        assert counted() == 10
        both = status.spent()
    assert one is not None
    assert both is not None
    assert both.jobs == 2 * one.jobs


def test_it_has_the_callers_session(spark: Any) -> None:
    """Spark asks the thread's session for settings where it could ask the frame's."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    def zone() -> str:
        return str(mine._jvm.org.apache.spark.sql.internal.SQLConf.get().sessionLocalTimeZone())

    with beside(mine, zone) as told:
        pass
    assert told() == "Asia/Tokyo"


def test_what_it_raises_is_raised_where_it_is_asked(spark: Any) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with beside(spark, fail) as told:
        pass
    with pytest.raises(KeyError, match="mine"):
        told()


def test_the_body_is_not_left_before_it_has_ended(spark: Any) -> None:
    go, ended = threading.Event(), []

    def work() -> None:
        go.wait(10)
        ended.append(spark.range(3).count())

    def body() -> None:
        with beside(spark, work):
            go.set()
            raise LookupError("the body's")

    with pytest.raises(LookupError, match="the body's"):
        body()
    assert ended == [3]
