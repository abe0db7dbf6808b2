"""Which records of a batch can't be written, where nothing but the attempt itself tells: halves, and halves of those.

Asked when a batch keeps failing over its values in a way that ``spark/bus`` does not foresee. First by requests, then
by the records of each bad one. Every trial is a Spark job, so there are not more than a few hundred: what is left then
is refused as a whole, with the reason of its part, and can be replayed from the dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakemill.core.batch import Letter
from lakemill.errors import LakemillError

TRIALS = 200


@dataclass(frozen=True, slots=True)
class Piece:
    """Records first to last of one request, or whole requests."""

    token: int
    last_token: int
    first: int
    last: int


Trial = Callable[[Piece], LakemillError | None]
"""Why a piece can't be written; None where it can."""


def refused(requests: Sequence[tuple[int, int]], trial: Trial, trials: int = TRIALS) -> list[Letter]:
    """Of requests (token, records), each record that can't be written, with the reason."""
    sizes = dict(requests)
    letters: list[Letter] = []
    todo: list[Sequence[int] | Piece] = [[token for token, _ in requests]]
    while todo:
        part = todo.pop()
        piece = (
            part if isinstance(part, Piece) else Piece(part[0], part[-1], 0, max(sizes[token] for token in part) - 1)
        )
        error = trial(piece)
        trials -= 1
        if error is None:
            continue
        alone = piece.token == piece.last_token
        if trials <= 0 or (alone and piece.first == piece.last):
            tokens = [piece.token] if isinstance(part, Piece) else part
            letters += [
                Letter(token, at, error.code, error.message, error.place or "")
                for token in tokens
                for at in range(piece.first, min(piece.last, sizes[token] - 1) + 1)
            ]
        elif alone:
            middle = (piece.first + piece.last) // 2
            todo += [
                Piece(piece.token, piece.token, piece.first, middle),
                Piece(piece.token, piece.token, middle + 1, piece.last),
            ]
        elif not isinstance(part, Piece):
            half = len(part) // 2
            todo += [part[:half], part[half:]]
    return sorted(letters, key=lambda letter: (letter.token, letter.position))
