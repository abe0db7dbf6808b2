"""The judge of `make chaos-ingest` is judged: what it must notice is done to a small lake, and it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import duckdb
import pytest

from tests.ingest.journal import Journals, Record, Request, Told
from tests.ingest.model import Batch, Kept, judge


def _plain(key: str, *values: int) -> Request:
    return Request(key, "plain", tuple(Record("insert", {"req": key, "i": i, "v": v}) for i, v in enumerate(values)))


REQUESTS = (
    _plain("a", 10, 11),
    _plain("b", 20),
    Request("c", "keyed", (Record("upsert", {"k": 1, "v": 1, "req": "c", "i": 0}),)),
    Request("d", "keyed", (Record("upsert", {"k": 1, "v": 2, "req": "d", "i": 0}), Record("delete", {"k": 2}))),
    Request(
        "e",
        "noted",
        (
            Record("insert", {"req": "e", "i": 0, "v": 1}, "e/0"),
            Record("insert", {"req": "e", "i": 1, "v": "x"}, "e/1", good=False),
        ),
        keyed=False,
    ),
    _plain("unheard", 30, 31),
    replace(_plain("bad", 40), refused=True),
)


class Small:
    """Everything as it should be."""

    def __init__(self) -> None:
        answers = [Told(key, token, 1, 0, 0, False) for token, key in enumerate("abcde", 1)]
        self.journals = Journals({one.key: one for one in REQUESTS}, answers)
        self.kept = Kept(
            requests={("plain", "a"): 1, ("plain", "b"): 2, ("keyed", "c"): 3, ("keyed", "d"): 4},
            records={"e/0": 5, "e/1": 5},
            batches={"plain": [Batch(1, 2, None, 3, 0)], "keyed": [Batch(3, 4, None, 1, 0)], "noted": []},
            letters=[(5, {"idempotency_key": "e/1"})],
            head=(5, 5),
        )
        self.duck = duckdb.connect()
        for statement in (
            "CREATE TABLE plain AS FROM (VALUES ('a', 0, 10), ('a', 1, 11), ('b', 0, 20)) t (req, i, v)",
            "CREATE TABLE keyed AS FROM (VALUES ('d', 1, 2)) t (req, k, v)",
            "CREATE TABLE noted AS FROM (VALUES ('e', 0, 1)) t (req, i, v)",
        ):
            self.duck.execute(statement)

    def wrong(self) -> list[str]:
        return judge(self.kept, self.journals, self.duck.execute)


def test_nothing_is_wrong() -> None:
    assert Small().wrong() == []


def _accept_the_unheard(small: Small) -> None:
    small.kept.requests["plain", "unheard"] = 6
    small.kept.batches["plain"].append(Batch(6, 6, None, 2, 0))
    small.kept.head = (6, 6)


def _with(*statements: str) -> Callable[[Small], None]:
    def change(small: Small) -> None:
        for statement in statements:
            small.duck.execute(statement)

    return change


CASES: list[tuple[Callable[[Small], object], str]] = [
    (_with("DELETE FROM plain WHERE v = 20"), "LOST 1 rows"),
    (_with("INSERT INTO plain SELECT * FROM plain WHERE v = 20"), "DOUBLED, or too early or too late, 1"),
    (_with("INSERT INTO plain VALUES ('unheard', 0, 30)"), "too late, 1"),
    (_with("UPDATE keyed SET req = 'c', v = 1"), "keyed at the end"),
    (_with("INSERT INTO keyed VALUES ('x', 2, 0)"), "keyed at the end"),
    (_with("DELETE FROM noted"), "noted at the end"),
    (lambda small: small.journals.answers.append(Told("a", 2, 2, 0, 0, True)), "was told, and the lake has 1"),
    (lambda small: small.kept.requests.pop(("plain", "a")), "was told, and the lake has None"),
    (lambda small: small.kept.records.pop("e/1"), "PARTLY: e"),
    (lambda small: small.kept.letters.clear(), "dead letters: missing [(5, 'e/1')]"),
    (lambda small: small.kept.letters.append(small.kept.letters[0]), "dead letters: missing [], more"),
    (lambda small: small.kept.requests.update({("plain", "bad"): 6}), "bad was refused, and has"),
    (lambda small: setattr(small.kept, "head", (5, 4)), "the watermark is 4"),
    (lambda small: setattr(small.kept, "head", (7, 7)), "2 tokens that no request has"),
    (lambda small: small.kept.batches["plain"].append(Batch(2, 6, None, 1, 0)), "came after"),
    (lambda small: small.kept.batches["keyed"].clear(), "keyed: no batch has [3, 4]"),
    (lambda small: small.journals.wrong.append("a read without its write"), "a read without its write"),
    (_accept_the_unheard, "LOST 2 rows"),
]


@pytest.mark.parametrize(("change", "told"), CASES)
def test_what_is_wrong_is_told(change: Callable[[Small], object], told: str) -> None:
    small = Small()
    change(small)
    assert any(told in one for one in small.wrong()), small.wrong()


def test_what_nobody_heard_of_may_be_there_whole() -> None:
    small = Small()
    _accept_the_unheard(small)
    small.duck.execute("INSERT INTO plain VALUES ('unheard', 0, 30), ('unheard', 1, 31)")
    assert small.wrong() == []
