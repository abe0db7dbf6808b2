"""A producer that leaves in the middle of its request: nothing is accepted, and it is no mistake of ours."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest

import lakemill
from lakemill.api import frame
from lakemill.api.app import make
from lakemill.api.desk import Desk
from tests.conftest import MakeLake
from tests.ingest.intake import Intake

Message = MutableMapping[str, Any]


def test_a_producer_that_leaves_before_its_body_is_here(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_lake().settings
    logged: list[str] = []
    monkeypatch.setattr(frame, "failed", lambda what, error: logged.append(f"{what}: {error!r}"))
    coming: list[Message] = [
        {"type": "http.request", "body": b'{"records": [{"payl', "more_body": True},
        {"type": "http.disconnect"},
    ]
    answered: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        answered.append(message)

    with lakemill.open(settings) as lake:
        intake = Intake(lake)
        intake.table("t", "k INTEGER")
        desk = Desk(settings, "127.0.0.1")
        desk.start()
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/ingest/main.t",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"500")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "scheme": "http",
        }
        anyio.run(make(desk), scope, receive, send)
        desk.close()
        assert (answered, logged) == ([], [])
        assert intake.rows("SELECT count(*) FROM lakemill.bus") == [(0,)]
