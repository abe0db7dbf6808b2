"""Probes, asked over a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakemill.api import probes
from lakemill.errors import BadArgument
from lakemill.telemetry import metrics

Serve = Callable[..., probes.Serving]


@pytest.fixture
def serve() -> Iterator[Serve]:
    serving: list[probes.Serving] = []

    def started(*functions: Any) -> probes.Serving:
        serving.append(probes.serve_in_thread(probes.app(*functions)))
        return serving[-1]

    yield started
    for one in serving:
        one.stop()


def ask(serving: probes.Serving, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(serving.url + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def no_answer() -> dict[str, str | None]:
    raise OSError("no answer")


@pytest.mark.parametrize(
    ("ready", "code", "body"),
    [
        (lambda: {"spark": None, "postgres": None}, 200, {"status": "ready", "parts": ["postgres", "spark"]}),
        (dict, 200, {"status": "ready", "parts": []}),
        (
            lambda: {"postgres": "no answer", "spark": None},
            503,
            {"status": "not ready", "lacking": {"postgres": "no answer"}},
        ),
        (no_answer, 503, {"status": "not ready", "lacking": {"checks": "no answer"}}),
    ],
)
def test_ready(serve: Serve, ready: Callable[[], probes.Parts], code: int, body: dict[str, Any]) -> None:
    found, text = ask(serve(ready), "/readyz")
    assert (found, json.loads(text)) == (code, body)


def test_alive(serve: Serve) -> None:
    assert ask(serve(no_answer), "/healthz") == (200, '{"status":"alive"}'), "a part that is away is no reason to die"
    code, text = ask(serve(dict, lambda: "the scheduler's loop has ended"), "/healthz")
    assert (code, json.loads(text)["why"]) == (503, "the scheduler's loop has ended")
    assert ask(serve(dict, no_answer), "/healthz")[0] == 503


def test_metrics(serve: Serve) -> None:
    with urllib.request.urlopen(serve(dict).url + "/metrics", timeout=10) as answer:
        assert answer.headers["content-type"] == metrics.CONTENT_TYPE
        assert b"lakemill_worker_up" in answer.read()


def test_nothing_else_is_there(serve: Serve) -> None:
    serving = serve(dict)
    assert [ask(serving, path)[0] for path in ("/", "/docs", "/openapi.json")] == [404, 404, 404]


def test_a_check_that_hangs_holds_nobody_else_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.2)
    let_go, begun = threading.Event(), threading.Event()

    def hangs() -> dict[str, str | None]:
        begun.set()
        let_go.wait(30)
        return {}

    serving = serve(hangs)
    first = threading.Thread(target=ask, args=(serving, "/readyz"))
    first.start()
    try:
        assert begun.wait(10)
        started = time.monotonic()
        code, text = ask(serving, "/readyz")
        assert (code, json.loads(text)["lacking"]) == (503, {"checks": "an earlier check has not ended yet"})
        assert ask(serving, "/metrics")[0] == 200
        assert time.monotonic() - started < 10
    finally:
        let_go.set()
        first.join()
    assert ask(serving, "/readyz")[0] == 200


def test_it_stops_in_bounded_time() -> None:
    let_go, begun = threading.Event(), threading.Event()

    def hangs() -> dict[str, str | None]:
        begun.set()
        let_go.wait(30)
        return {}

    def asks() -> None:
        with contextlib.suppress(OSError):  # cut off: that is what is tried here
            ask(serving, "/readyz")

    serving = probes.serve_in_thread(probes.app(hangs))
    asking = threading.Thread(target=asks)
    asking.start()
    assert begun.wait(10)
    started = time.monotonic()
    serving.stop(1.0)
    assert time.monotonic() - started < 5
    let_go.set()
    asking.join(10)
    with pytest.raises(OSError):
        ask(serving, "/healthz")


def test_it_is_on_loopback_and_says_what_is_taken() -> None:
    serving = probes.serve_in_thread(probes.app(dict))
    try:
        assert serving.url == f"http://127.0.0.1:{serving.port}"
        with pytest.raises(BadArgument, match=f"127.0.0.1:{serving.port}: .*in use"):
            probes.serve_in_thread(probes.app(dict), port=serving.port)
    finally:
        assert serving.stop()
    again = probes.serve_in_thread(probes.app(dict), port=serving.port)  # at once
    assert again.stop()
    with pytest.raises(BadArgument):
        probes.serve_in_thread(probes.app(dict), host="no.such.host.invalid")


def test_answers_do_not_wait_for_acknowledgements(serve: Serve) -> None:
    """An answer is written in two parts: with Nagle's algorithm the second one would be 40 ms late, always."""
    listener = serve(dict)._listener
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
