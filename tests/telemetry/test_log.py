"""Log lines: what a person reads, what a program reads, and what nobody should."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from lakemill.core.names import QualifiedName
from lakemill.core.refresh import Action, Outcome, Trigger
from lakemill.errors import StoreUnavailable
from lakemill.store.history import RefreshRecord
from lakemill.telemetry import log

START = datetime(2026, 11, 16, 9, tzinfo=UTC)
RECORD = RefreshRecord(  # what the store has is what telemetry takes
    UUID(int=7),
    1,
    QualifiedName("main", "orders_by_day"),
    1,
    Trigger.SCHEDULED,
    START,
    outcome=Outcome.SUCCEEDED,
    action=Action.KEYS,
    a=10,
    b=12,
    holder="w1",
    ended_at=START + timedelta(seconds=0.81),
    rows_inserted=3,
    rows_deleted=1,
    bytes_written=41_200,
)
FAILED = replace(
    RECORD,
    outcome=Outcome.FAILED,
    action=None,
    error_code="STORE_UNAVAILABLE",
    error_text="no\nanswer from postgresql://u:secret@db/x → start it",
)


@pytest.fixture
def told() -> Callable[[log.Format, log.Level], io.StringIO]:
    def configured(format_: log.Format, level: log.Level = "info") -> io.StringIO:
        stream = io.StringIO()
        log.configure(format_, level, stream)
        return stream

    return configured


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("record", "files", "line"),
    [
        (RECORD, 2, "orders_by_day: +3 −1 rows, 2 files, 41 KB, KEYS, 0.8 s"),
        (RECORD, None, "orders_by_day: +3 −1 rows, 41 KB, KEYS, 0.8 s"),
        (replace(RECORD, bytes_written=9_400_000), 1, "orders_by_day: +3 −1 rows, 1 file, 9.4 MB, KEYS, 0.8 s"),
        (
            replace(RECORD, name=QualifiedName("sales", "x y")),
            0,
            'sales."x y": +3 −1 rows, 0 files, 41 KB, KEYS, 0.8 s',
        ),
        (replace(RECORD, action=Action.NO_DATA, rows_inserted=0, rows_deleted=0), 0, "orders_by_day: NO_DATA, 0.8 s"),
        (replace(RECORD, rows_inserted=None), None, "orders_by_day: KEYS, 0.8 s"),
        (replace(RECORD, outcome=Outcome.SKIPPED), None, "orders_by_day: SKIPPED, 0.8 s"),
        (
            replace(FAILED, error_text="no answer → start it"),
            None,
            "orders_by_day: FAILED, STORE_UNAVAILABLE: no answer → start it, 0.8 s",
        ),
    ],
)
def test_a_refresh_in_a_line(record: RefreshRecord, files: int | None, line: str) -> None:
    assert log.summary(replace(record, files=files)) == line


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (9949, "9.9 KB"),
        (9950, "10 KB"),
        (999_500, "1.0 MB"),
        (7e12, "7.0 TB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    assert log.size_text(int(count)) == shown


def test_people_read_one_line(told: Callable[..., io.StringIO]) -> None:
    stream = told("console")
    log.refreshed(replace(RECORD, files=2))
    log.refreshed(FAILED)
    first, second = stream.getvalue().splitlines()
    assert first.endswith("[info     ] orders_by_day: +3 −1 rows, 2 files, 41 KB, KEYS, 0.8 s")
    assert "[warning  ] orders_by_day: FAILED, STORE_UNAVAILABLE: no answer" in second
    assert second.endswith("→ start it, 0.8 s")


def test_programs_read_the_same_facts(told: Callable[..., io.StringIO]) -> None:
    stream = told("json")
    log.refreshed(replace(RECORD, files=2))
    log.refreshed(FAILED)
    done, failed = objects(stream)
    assert done.pop("time").endswith("Z")
    assert done == {
        "level": "info",
        "event": "refresh",
        "message": "orders_by_day: +3 −1 rows, 2 files, 41 KB, KEYS, 0.8 s",
        "table": "main.orders_by_day",
        "refresh": str(UUID(int=7)),
        "worker": "w1",
        "trigger": "SCHEDULED",
        "outcome": "SUCCEEDED",
        "action": "KEYS",
        "a": 10,
        "b": 12,
        "rows_inserted": 3,
        "rows_deleted": 1,
        "files": 2,
        "bytes_written": 41_200,
        "seconds": 0.81,
    }
    assert failed["level"] == "warning"
    assert (failed["error_code"], failed["remedy"]) == ("STORE_UNAVAILABLE", "start it")


@pytest.mark.parametrize("format_", ["console", "json"])
def test_no_password_gets_out(told: Callable[..., io.StringIO], format_: log.Format) -> None:
    stream = told(format_)
    log.refreshed(FAILED)
    log.log().info("connected", dsn="host=db password=secret")
    try:
        raise ValueError("postgresql://u:secret@db/x")
    except ValueError as error:
        log.failed("tick", error)
    assert "secret" not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_other_failures(told: Callable[..., io.StringIO]) -> None:
    stream = told("json")
    log.failed("tick", StoreUnavailable("no answer", remedy="start it", place="lake.postgres"), attempt=2)
    log.failed("tick", ZeroDivisionError("oh"))
    expected, surprise = objects(stream)
    assert expected["message"] == "tick: STORE_UNAVAILABLE: lake.postgres: no answer → start it"
    assert (expected["level"], expected["event"], expected["attempt"]) == ("warning", "failure", 2)
    assert (expected["error_code"], expected["error"], expected["remedy"]) == (
        "STORE_UNAVAILABLE",
        "no answer",
        "start it",
    )
    assert (surprise["level"], surprise["error_code"]) == ("error", "INTERNAL_ERROR")
    assert "ZeroDivisionError: oh" in surprise["exception"]


def test_ids_are_bound_to_a_thread(told: Callable[..., io.StringIO]) -> None:
    stream = told("json")
    with log.bound(worker="w1"):
        with log.bound(table="t", refresh="r"):
            log.log().info("in")
        other = threading.Thread(target=lambda: log.log().info("elsewhere"))
        other.start()
        other.join()
        log.log().info("out", name="fields may be called as they like", args=1, message_="x")
    inside, elsewhere, outside = objects(stream)
    assert (inside["worker"], inside["table"], inside["refresh"]) == ("w1", "t", "r")
    assert "worker" not in elsewhere
    assert outside["worker"] == "w1"
    assert outside["name"] == "fields may be called as they like"
    assert "table" not in outside


def test_levels_and_other_libraries(told: Callable[..., io.StringIO]) -> None:
    told("json", "debug")
    stream = told("json", "warning")  # a second time replaces the first
    log.log().info("not this")
    log.log().warning("this")
    logging.getLogger("py4j").info("not that")
    logging.getLogger("uvicorn").warning("that %s", 1)
    assert [line["message"] for line in objects(stream)] == ["this", "that 1"]
    stream = told("console", "debug")
    log.log().debug("SELECT 1", table="t")
    assert stream.getvalue().rstrip().endswith("SELECT 1 table=t")


def test_a_library_is_silent(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """In a notebook nobody called `configure`: nothing is printed, but the program's own logging sees plain lines."""
    with caplog.at_level(logging.INFO, log.LOGGER):
        log.refreshed(RECORD)
    assert caplog.messages == ["orders_by_day: +3 −1 rows, 41 KB, KEYS, 0.8 s"]
    assert capfd.readouterr() == ("", "")


def test_a_long_error_does_not_bury_the_line(told: Callable[..., io.StringIO]) -> None:
    stream = told("json")
    log.refreshed(replace(FAILED, error_text="x" * 5000))
    (line,) = objects(stream)
    assert len(line["message"]) < 700
    assert len(line["error"]) == 5000
