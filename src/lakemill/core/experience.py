"""What earlier refreshes of a table teach ADAPTIVE: whether deltas, or the whole query, were the quicker way.

Beside line 7 of a refresh: ``runtime/recording`` reads the past, ``core/plan`` asks what was learnt. Hidden states are
kept for deltas alone. A whole refresh that was chosen because it is quicker gives them up; to fill them again costs
about as much as the query, so it is done only where deltas are likely tried next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from lakemill.core.refresh import DELTAS, WHOLE, Action

FULL_IS_CHEAPER = "FULL_IS_CHEAPER"
LARGE_DELTA = "LARGE_DELTA"
STATES_FILLED = "STATES_FILLED"
AGAIN = 10
"""After so many whole refreshes deltas are tried again: machines and tables change."""
WITH_STATES = 2
"""A whole refresh that computes states takes so many times the query alone, about."""


@dataclass(frozen=True, slots=True)
class Past:
    """A refresh that succeeded: what it did, the code of its reason, how long it took, how many rows had changed."""

    action: Action | None
    code: str
    seconds: float
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Experience:
    """What refreshes of a table took, in seconds: the last one from deltas, of so many rows, and the whole query."""

    deltas: float | None
    """None: deltas were never tried."""
    rows: int
    whole: float
    whole_since: int = 0
    """How many were whole, because that was cheaper, since the last one from deltas or since states were filled."""
    in_vain: bool = False
    """States were filled, and given up again before a delta was tried."""

    @property
    def quick(self) -> bool:
        """Whether the last one from deltas took no longer than the whole query."""
        return self.deltas is not None and self.deltas <= self.whole

    def against_deltas(self, rows: int) -> bool:
        """Whether deltas of this many rows are likely slower; now and then they are tried again."""
        slower = self.deltas is not None and not self.quick
        return slower and 2 * rows > self.rows and self.whole_since < AGAIN

    def against_states(self, rows: int) -> bool:
        """Whether states that were given up had better stay so; where deltas say nothing, for a while."""
        if self.deltas is None or self.in_vain:
            return 0 < self.whole_since < AGAIN
        return self.against_deltas(rows)


def learnt(past: Sequence[Past], *, stateful: bool) -> Experience | None:
    """From the refreshes by one definition, the newest first; None where none was whole.

    ``stateful``: its query has states. Then only a refresh that gave them up says what the query alone takes.
    """
    exact = [one.seconds for one in past if one.action in WHOLE and (not stateful or one.code == FULL_IS_CHEAPER)]
    more = [one.seconds / WITH_STATES for one in past if one.action in WHOLE]
    whole = next(iter(exact or more), None)
    if whole is None:
        return None
    deltas = next((one for one in past if one.action in DELTAS), None)
    told = [one for one in past if one.action in DELTAS or one.code in (FULL_IS_CHEAPER, STATES_FILLED)]
    # states that were filled last are still to be used: what led to it counts as it did then
    before = list(dropwhile(lambda one: one.code == STATES_FILLED, told))
    since = list(takewhile(lambda one: one.code == FULL_IS_CHEAPER, before))
    in_vain = len(since) < len(before) and before[len(since)].code == STATES_FILLED
    if deltas is None:
        return Experience(None, 0, whole, len(since), in_vain)
    return Experience(deltas.seconds, deltas.rows, whole, len(since), in_vain)
