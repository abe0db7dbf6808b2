"""The JVM is started anew only when nobody works on it, and nobody begins before that. Without a JVM: threads only."""

from __future__ import annotations

import threading

import pytest

from lakemill.spark import session, usage


@pytest.fixture
def recycled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(session, "recycle", lambda: done.append("anew"))
    return done


def test_it_waits_for_those_at_work_and_holds_back_the_next(recycled: list[str]) -> None:
    begun = threading.Event()

    def work() -> None:
        with usage.used():
            begun.set()

    with usage.used():
        assert not usage.recycle_when_idle()
        second = threading.Thread(target=work)
        second.start()
        assert not begun.wait(0.2)
    assert not begun.wait(0.2)
    assert recycled == []
    assert usage.recycle_when_idle()
    second.join(10)
    assert begun.is_set()
    assert recycled == ["anew"]


def test_what_was_done_on_it_is_counted_whoever_did_it(recycled: list[str]) -> None:
    assert usage.recycle_when_idle()
    for _ in range(3):
        with usage.used():
            pass
    with pytest.raises(KeyError), usage.used():
        raise KeyError
    assert usage.done() == 4
    assert usage.recycle_when_idle()
    assert usage.done() == 0


def test_one_who_wanted_it_and_is_gone_holds_up_nobody_for_ever(
    recycled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PATIENCE", 0.1)
    with usage.used():
        usage.recycle_when_idle()
    with usage.used():
        pass
    assert recycled == []


def test_who_is_at_work_for_long_is_known_and_one_may_begin_beside_it(recycled: list[str]) -> None:
    assert usage.longest() == 0
    with usage.used():
        first = usage.longest()
        with usage.used():
            assert usage.longest() >= first, "the first one's"
        assert not usage.recycle_when_idle()
        usage.recycle_later()
        with usage.used():
            pass
    assert recycled == []
