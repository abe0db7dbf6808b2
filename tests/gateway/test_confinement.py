"""Where the kernel can't confine a query: refused by default; with `query.confinement = "try"` told and answered."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from lakemill.api.desk import Desk
from lakemill.errors import MissingPart
from lakemill.gateway import confine
from lakemill.gateway.gate import Gateway
from tests.conftest import MakeLake, TestLake

ROOT = Path(__file__).parents[2]
bare = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="an old Linux can't be had here"
)


@pytest.fixture
def filled(lake: TestLake) -> TestLake:
    with lake.duck() as duck:
        duck.execute("CREATE TABLE t AS SELECT * FROM range(7)")
    return lake


def on_an_old_kernel(lake: TestLake, confinement: str) -> list[str]:
    words = [sys.executable, "-m", "tests.gateway.bare", str(lake.settings.root), confinement]
    done = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@bare
def test_it_does_not_start_by_default(filled: TestLake) -> None:
    (error,) = on_an_old_kernel(filled, "require")
    assert error.startswith(
        "error: MISSING_PART queries can't be confined on this machine: this kernel has no Landlock"
    )


@bare
def test_where_one_tries_it_answers_and_says_so(filled: TestLake) -> None:
    log, rows, error = on_an_old_kernel(filled, "try")
    assert "kept from other files by DuckDB alone: this kernel has no Landlock; this kernel has no seccomp" in log
    assert rows == "rows: [{'n': 7}]"
    assert error.startswith("error: QUERY_REFUSED"), "the list of what is allowed holds all the same"


def test_a_service_that_can_not_answer_queries_says_so_at_once(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake(flags={"query.confinement": "require"})
    monkeypatch.setattr(confine, "lacking", lambda: ("this kernel has no Landlock",))
    desk = Desk(lake.settings, "127.0.0.1")
    try:
        with caplog.at_level("WARNING", "lakemill"):
            desk.start()
        assert "every query will be refused" in caplog.text
        with pytest.raises(MissingPart, match="no Landlock"):
            desk.queries.gateway  # noqa: B018 - made when it is asked for
        with pytest.raises(MissingPart):
            Gateway(lake.settings, lake.dsn)
    finally:
        desk.close()
