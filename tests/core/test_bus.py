"""Who gets a token: the judgement that every bus makes, on what it remembers."""

from __future__ import annotations

from typing import Any

from lakemill.core.bus import Accepted, Request, Seen, decide
from lakemill.core.records import Bad
from lakemill.errors import BadArgument, BadRecords, DefinitionChanged, IdempotencyConflict, NoIngestTable

T = 1


def asked(*lines: str, key: str | None = None, keys: str = "", bad: tuple[Bad, ...] = (), **more: Any) -> Request:
    """Lines are their own digests; ``keys`` are those of the lines, a letter each, - for none."""
    named = {n: letter for n, letter in enumerate(keys) if letter != "-"}
    digests = {n: lines[n].encode() for n in named}
    body = [line.encode() for line in lines]
    return Request(T, "v", body, range(len(lines)), named, digests, bad, key, "|".join(lines).encode(), **more)


def judged(*requests: Request, head: int = 10, **known: Any) -> list[Any]:
    """Each outcome as a tuple: token, accepted, duplicate, rejected; or the class of the error."""
    given = {"tables": {T: ()}, "known_requests": {}, "known_records": {}} | known
    outcomes = decide(requests, head, **given).outcomes
    return [
        (one.token, one.accepted, one.duplicate, one.rejected) if isinstance(one, Accepted) else type(one)
        for one in outcomes
    ]


LETTER = Bad(1, b"{}", "records[1]", "bad", "l", b"bad")


def test_tokens_are_drawn_in_order_and_only_for_what_is_new() -> None:
    assert judged(asked("a"), asked(), asked("b", "c")) == [(11, 1, 0, 0), (11, 0, 0, 0), (12, 2, 0, 0)]


def test_one_that_was_there_before_is_told_what_it_was_told() -> None:
    known = {(T, "k"): Seen(3, b"a", Accepted(3, 1, 2, 4))}
    found = decide([asked("a", key="k")], 10, {T: ()}, known, {})
    assert found.outcomes == [Accepted(3, 1, 2, 4, repeated=True)]
    assert (found.taken, found.head) == ([], 10)
    assert judged(asked("b", key="k"), known_requests=known) == [IdempotencyConflict]
    assert judged(asked("b", key="k"), asked("b", key="k")) == [(11, 1, 0, 0), (11, 1, 0, 0)], "in one group, too"


def test_keys_of_records() -> None:
    known = {(T, "x"): Seen(3, b"a"), (T, "y"): Seen(7, b"b")}
    assert judged(asked("a", "b", keys="xy"), known_records=known) == [(7, 0, 2, 0)], "the later original"
    assert judged(asked("a", "c", keys="xz"), known_records=known) == [(11, 1, 1, 0)], "the new one is later still"
    assert judged(asked("other", keys="x"), asked("c"), known_records=known) == [IdempotencyConflict, (11, 1, 0, 0)]
    assert judged(asked("a", "a", keys="pp"), asked("a", keys="p")) == [(11, 1, 1, 0), (11, 0, 1, 0)]
    assert judged(asked("a", "b", keys="pp")) == [IdempotencyConflict]
    assert judged(asked("a", "b", keys="pp"), asked("z", keys="p")) == [IdempotencyConflict, (11, 1, 0, 0)]


def test_letters_have_keys_too() -> None:
    assert judged(asked("a", bad=(LETTER,)), asked("b", bad=(LETTER,))) == [(11, 1, 0, 1), (12, 1, 1, 0)]
    assert judged(asked(bad=(LETTER,))) == [(11, 0, 0, 1)]


def test_what_no_longer_fits_is_known_by_its_bytes() -> None:
    before = Request(T, "v", [], [], key="k", digest=b"m" * 16 + b"sent")
    known = {(T, "k"): Seen(3, before.digest, Accepted(3, 1))}
    changed = Request(T, "w", [], [], key="k", digest=b"n" * 16 + b"sent", refused=BadRecords("does not fit"))
    assert judged(changed, known_requests=known) == [(3, 1, 0, 0)]
    assert judged(changed) == [BadRecords]
    other = Request(T, "w", [], [], key="k", digest=b"n" * 16 + b"other")
    assert judged(other, known_requests=known) == [IdempotencyConflict]


def test_what_is_gone() -> None:
    assert judged(asked("a"), tables={}) == [NoIngestTable]
    assert judged(asked("a"), tables={T: ("id",)}) == [DefinitionChanged]
    assert judged(asked("a", replays=5), asked("a", replays=5), waiting_letters=[5]) == [(11, 1, 0, 0), BadArgument]
