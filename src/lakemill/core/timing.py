"""When was a row deleted? The rule for delete files whose positions carry snapshot ids (traps 1).

Stock DuckDB rewrites a data file's delete file on each further delete and stamps the new positions with *transaction
start + 1*, which is too small whenever another commit came in between. A group of positions with stamp ``s`` was
therefore deleted by some commit ``c >= s``, and by the conflict rules of the extension ``c`` lies before the next
group's stamp. The labels of the commits in that interval name the possible ones. With one possible commit the time is
known; with several, only reads between the first and the last are in doubt, and those are refused. Two kinds of stamps
are exact: those from before the data file was written, which came with it (from a flush or Lakemill's compaction), and
the smallest one of a delete file, which was the first delete's own commit before anybody had to rewrite the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakemill.core.changes import COMPACTIONS, FLUSHES, INSERTS, SHAPES
from lakemill.errors import DeleteInDoubt

# A delete whose transaction spans one of these on its table would have been refused by the extension.
_EXCLUDES_OPEN_DELETE = INSERTS | SHAPES | COMPACTIONS


@dataclass(frozen=True, slots=True)
class Labels:
    """What the commits did to one table: snapshot id → kinds. Ids that are absent were expired: holes."""

    kinds: Mapping[int, frozenset[str]]

    def at(self, snapshot: int) -> frozenset[str] | None:
        return self.kinds.get(snapshot)


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """The commit that wrote a file: the first snapshot whose next_file_id exceeds the file's id.

    Where that one was expired, it lies between ``earliest`` and ``latest``, the first one that is left.
    """

    earliest: int
    latest: int

    @property
    def exact(self) -> bool:
        return self.earliest == self.latest


def deleted_up_to(stamps: Sequence[int], at: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> int:
    """The largest stamp whose positions count as deleted at snapshot ``at``; −1 when none do.

    ``stamps`` are the distinct stamps of one delete file, ascending; ``data`` and ``delete`` tell who wrote the data
    file and the delete file. Only asked for ``at`` before the delete file was written: afterwards all its positions
    are deleted.
    """
    cut = -1
    for index, stamp in enumerate(stamps):
        possible = possible_commits(stamps, index, data, delete, labels)
        if max(possible) <= at:
            cut = stamp
        elif min(possible) > at:
            break
        else:
            raise DeleteInDoubt(
                f"rows stamped {stamp} may have been deleted by any of the snapshots {sorted(possible)}, "
                f"so the table's content at snapshot {at} is not known",
                remedy="read another snapshot; the newest one is never in doubt",
            )
    return cut


def possible_commits(stamps: Sequence[int], index: int, data: WrittenBy, delete: WrittenBy, labels: Labels) -> set[int]:
    """The commits that can have made this group of deletes; never empty."""
    stamp = stamps[index]
    if index == 0 or stamp <= data.earliest:
        return {stamp}
    if index < len(stamps) - 1:
        return _older(stamp, stamps[index + 1] - 1, labels)
    writer = labels.at(delete.latest) if delete.exact else None
    if writer is None:
        return _older(stamp, delete.latest, labels) | {delete.latest}
    flushed = bool(writer & FLUSHES)
    possible = set()
    if "deleted_from_table" in writer and not flushed and not _surely_flushed(stamps, data, labels):
        possible.add(delete.latest)
    # A flush that finds only inlined deletes calls itself a delete; it adds at least one of their stamps.
    if flushed or any(_may(labels, s, "inlined_delete") for s in stamps if s > data.earliest):
        possible |= _older(stamp, delete.latest - 1, labels)
    return possible or {stamp, delete.latest}


def _older(stamp: int, end: int, labels: Labels) -> set[int]:
    """The commits up to ``end`` that can have made a group which a later file copied."""
    possible = set()
    if _may(labels, stamp, "inlined_delete"):
        possible.add(stamp)  # a flushed inlined delete carries its true commit
    for commit in range(stamp, end + 1):
        kinds = labels.at(commit)
        if kinds is None or ("deleted_from_table" in kinds and not (kinds & FLUSHES)):
            possible.add(commit)
        if kinds is not None and kinds & _EXCLUDES_OPEN_DELETE:
            break
    return possible or {stamp, max(end, stamp)}


def _surely_flushed(stamps: Sequence[int], data: WrittenBy, labels: Labels) -> bool:
    """Whether the writer of the file can only have been a flush.

    It was, when the first delete was an inlined one and no flush can have brought it into a file that a delete with
    the last stamp (which began just before it) could have seen. Commits that made a group of their own were deletes.
    """
    first, last = stamps[0], stamps[-1]
    kinds = labels.at(first)
    if first <= data.earliest or kinds is None or "inlined_delete" not in kinds or "deleted_from_table" in kinds:
        return False
    middle = [_older(stamp, after - 1, labels) for stamp, after in pairwise(stamps[1:])]
    deletes = set().union(*(group for group in middle if len(group) == 1))
    between = (labels.at(commit) for commit in range(first + 1, last) if commit not in deletes)
    return not any(known is None or "deleted_from_table" in known or known & FLUSHES for known in between)


def _may(labels: Labels, snapshot: int, kind: str) -> bool:
    kinds = labels.at(snapshot)
    return kinds is None or kind in kinds
