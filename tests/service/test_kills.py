"""kill −9 of a scheduler, and of a CREATE, at each of its lines: whoever comes next finds all of a round, or nothing.

Workers are killed in ``tests/refresh/test_races.py``, all of them at random moments by ``make chaos``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakemill.core.names import parse_name
from lakemill.core.position import START
from lakemill.core.refresh import State
from lakemill.core.statement import Drop
from lakemill.errors import UnknownDynamicTable
from lakemill.runtime import dynamic
from lakemill.store import definitions
from tests.service.child import SCHEDULING
from tests.service.test_scheduler import Service

ROOT = Path(__file__).parents[2]


def killed_at(service: Service, stage: str) -> None:
    words = [sys.executable, "-m", "tests.service.child", str(service.lake.settings.root), stage]
    child = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (child.returncode, child.stdout.split()) == (-signal.SIGKILL, [stage]), child.stderr


@pytest.mark.parametrize("stage", SCHEDULING)
def test_a_round_of_a_killed_scheduler_is_there_as_a_whole_or_not_at_all(service: Service, stage: str) -> None:
    service.create("a", "SELECT k FROM r")
    service.create("b", "SELECT k FROM a")
    killed_at(service, stage)
    rows = service.lake.conn.execute("SELECT work_id, after, b FROM lakemill.work ORDER BY work_id").fetchall()
    assert len(rows) == (2 if stage == "enqueued" else 0)
    taken_up = service.lake.conn.execute("SELECT count(*) FROM lakemill.dynamic_tables WHERE round_at IS NOT NULL")
    assert taken_up.fetchone() == (len(rows),), "with it, or not at all"
    service.tick()
    assert service.work() == ["a", "b"], "once each, in order"
    service.lake.sql("INSERT INTO r VALUES (100, 1)")
    assert service.due() == ["a", "b"]


def test_a_killed_create_is_declared_or_never_was(service: Service) -> None:
    killed_at(service, "analysed")
    with pytest.raises(UnknownDynamicTable):
        definitions.get(service.lake.conn, parse_name("analysed"))
    killed_at(service, "declared")
    assert definitions.get(service.lake.conn, parse_name("declared")).state is State.PENDING_INIT
    assert service.due() == ["declared"], "the service loads it, whoever declared it"
    assert service.work() == ["declared"]
    assert dynamic.drop(service.lake, Drop(START, parse_name("declared"))) == (parse_name("declared"),)
