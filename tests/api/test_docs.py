"""docs/how-to/api.md does what it says: its commands are run from top to bottom, with a real curl."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path

import pytest

from lakemill.api.app import make
from lakemill.api.desk import Desk
from lakemill.api.probes import serve_in_thread
from lakemill.cli.main import run
from lakemill.core.rights import GRANTS, Role
from lakemill.settings import Settings
from tests.conftest import CONFINEMENT

ROOT = Path(__file__).parents[2]
HERE = "http://127.0.0.1:8640"
PAGE = (ROOT / "docs" / "how-to" / "api.md").read_text("utf-8")


def lines() -> list[str]:
    """The commands of the page, each whole."""
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    return [line for line in script.splitlines() if line.strip()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEMILL_LAKE__POSTGRES", database)
    monkeypatch.setenv("LAKEMILL_QUERY__CONFINEMENT", CONFINEMENT)
    variables: dict[str, str] = {}
    told = ""
    with ExitStack() as opened:
        url = HERE
        for line in (line.replace(HERE, url) for line in lines()):
            assign = re.fullmatch(r"(\w+)=\$\((.*)\)", line)
            words = shlex.split(assign[2] if assign else line)
            if words[:2] == ["lakemill", "api"]:
                assert words == ["lakemill", "api", "--port", "8640", "&"]
                with caplog.at_level("WARNING", "lakemill"):
                    url = opened.enter_context(served())
            elif words[0] == "lakemill":
                said = ran([variables.get(word.removeprefix("$"), word) for word in words[1:]])
                variables |= {assign[1]: said.strip()} if assign else {}
                told += "" if assign else said
            elif words[0] == "curl":
                asked = ["bash", "-c", line]
                done = subprocess.run(
                    asked, env={**os.environ, **variables}, capture_output=True, text=True, check=True
                )
                told += done.stdout
            else:
                monkeypatch.chdir(Path.cwd() / words[1])
    assert "authentication is off" in caplog.text
    for words_ in (
        '"table":"main.orders"',
        "flowchart LR",
        '"id","day","amount"',
        "UNKNOWN_TABLE",
        "UNAUTHENTICATED",
        "tenants.alter",
    ):
        assert words_ in told, words_
    assert variables["KEY"] not in told


def ran(words: list[str]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(words) == 0, words
    return out.getvalue()


@contextmanager
def served() -> Iterator[str]:
    """As `lakemill api` does, in this process: it starts at once."""
    desk = Desk(Settings.load(), "127.0.0.1")
    desk.start()
    http = serve_in_thread(make(desk))
    try:
        yield http.url
    finally:
        http.stop()
        desk.close()


def test_the_problem_that_it_shows() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert set(json.loads(shown)) == {
        *("type", "title", "status", "code", "message", "retryable", "where", "remedy", "trace_id")
    }


def test_the_roles_that_it_lists() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [role.value for role in GRANTS]
    assert set(GRANTS) == set(Role)
